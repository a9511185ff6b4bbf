"""A job script for rocprofv3 under srun, tried without a cluster: which program starts which, and
which files result.

`bash -n` reads the script. Then it runs in an empty folder, with
a srun that starts two tasks one after the other, and with tools that log their command line and
start the program after it. The options are read with the player's table of rocprofv3.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proflab.tapes.names import Process, expand
from proflab.tapes.options import ToolError
from proflab.tapes.requests import parse

RANKS = 2
LONGEST_S = 20

_FIELD, _RECORD = "\x1f", "\x1e"

_LOG = r"""#!/bin/bash
{
    printf '%s\x1f' "${0##*/}" "${PROFLAB_TASK-}" "${RANK-}" "$@"
    printf '\x1e'
} >>"$PROFLAB_JOB_LOG"
"""
_SRUN = r"""
while [[ ${1-} == -* ]]; do
    case $1 in
    --) shift; break ;;
    --*=* | --overlap | --exclusive | --label | --unbuffered | --exact) shift ;;
    -l | -u | -[a-zA-Z]?*) shift ;;
    *) shift 2 ;;
    esac
done
for rank in 0 1; do
    PROFLAB_TASK=$rank SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 "$@" || exit
done
"""
_BEHIND_DASHES = r"""
while (($#)) && [[ $1 != -- ]]; do shift; done
shift
(($#)) || exit 0
exec "$@"
"""
TOOLS = {
    "srun": _LOG + _SRUN,
    "rocprofv3": _LOG + _BEHIND_DASHES,
    "python": _LOG,
    "python3": _LOG,
    "scontrol": "#!/bin/bash\necho node1\n",
    "getent": "#!/bin/bash\necho 10.0.0.1 node1\n",
    "module": "#!/bin/bash\n",
}
"""Programs that the script finds in PATH before all others: name -> text."""


@dataclass(frozen=True)
class Call:
    """One start of a tool: its name, the task of srun that started it ("" outside of srun), RANK in
    its environment, and its words.
    """

    tool: str
    task: str
    rank: str
    words: tuple[str, ...]


def problem(script: str) -> str | None:
    """What is wrong with a job script that is to record a kernel trace of each rank; None if
    nothing was found.
    """
    if not script.startswith("#!"):
        return (
            "The first line is not `#!/bin/bash`, as the very first characters: sbatch refuses a"
            " script without it."
        )
    if found := _unreadable(script):
        return found
    if not re.search(r"^#SBATCH .*(--ntasks|-n ?\d)", script, re.MULTILINE) and not re.search(
        r"srun .*-n", script
    ):
        return "How many ranks? Ask Slurm for them: `#SBATCH --ntasks-per-node=4`."
    calls, errors = _try(script)
    return _order(calls, errors) or _options(calls) or _names(calls, script)


def _unreadable(script: str) -> str | None:
    read = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    if read.returncode:
        return f"bash can't read it: {read.stderr.strip().splitlines()[0].removeprefix('bash: ')}"
    return None


def _try(script: str) -> tuple[list[Call], str]:
    """The calls that the script made, in order, and the last line of its errors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools, work = folder / "bin", folder / "work"
        tools.mkdir()
        work.mkdir()
        for tool, text in TOOLS.items():
            (tools / tool).write_text(text)
            (tools / tool).chmod(0o755)
        (work / "job.sh").write_text(script)
        log = folder / "log"
        job = {
            "SLURM_JOB_ID": "4711",
            "SLURM_NTASKS": "2",
            "SLURM_JOB_NODELIST": "node1",
            "SLURM_PROCID": "0",
        }
        # RANK of this process would hide that the script sets none.
        known = {
            key: value for key, value in os.environ.items() if key not in ("RANK", "PROFLAB_TASK")
        }
        path = f"{tools}{os.pathsep}{known.get('PATH', '')}"
        environment = known | job | {"PATH": path, "PROFLAB_JOB_LOG": str(log)}
        try:
            done = subprocess.run(
                ["bash", "job.sh"],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            return [], f"it still ran after {LONGEST_S} s"
        text = log.read_text() if log.is_file() else ""
    records = [record.split(_FIELD)[:-1] for record in text.split(_RECORD)[:-1]]
    calls = [Call(tool, task, rank, tuple(words)) for tool, task, rank, *words in records]
    return calls, (done.stderr.strip().splitlines() or [""])[-1]


def _of(calls: Sequence[Call], tool: str) -> list[Call]:
    return [call for call in calls if call.tool.startswith(tool)]


def _order(calls: Sequence[Call], errors: str) -> str | None:
    """Whether srun starts the tool, and the tool the program, once for each rank; None if so, else
    what is wrong.
    """
    tools, tasks = _of(calls, "rocprofv3"), _of(calls, "srun")
    if not tasks:
        ended = f" It ended with: {errors}" if errors else ""
        return f"No `srun` was started: one process runs then, on the first node of the job.{ended}"
    if not tools:
        return "`srun` was started, but no `rocprofv3`: nothing is recorded."
    if any(not call.task for call in tools):
        return (
            "The tool stands around srun, so it watches srun, not a rank. Inside: `srun rocprofv3"
            " ... -- python ...`."
        )
    if any("--" not in call.words for call in tools):
        return "There is no `--` before the program: rocprofv3 takes its words for its own options."
    started = {call.task for call in _of(calls, "python")}
    if len(started) < RANKS:
        return "Behind `--` each rank has to start `python`."
    return None


def _options(calls: Sequence[Call]) -> str | None:
    """Whether the tool takes these options, records kernels and writes a known format; None if so,
    else what is wrong.
    """
    words = _of(calls, "rocprofv3")[0].words
    try:
        options, _ = parse("rocprofv3", words)
    except ToolError as error:
        return f"rocprofv3 refuses this: {error}"
    if not (options.kernel_trace or options.runtime_trace or options.sys_trace):
        return "No kernels are recorded: nothing is, unless you name it (`--kernel-trace`)."
    if not options.output_format:
        return "Name the format, as the default changes with the release: `--output-format csv`."
    return None


def _names(calls: Sequence[Call], script: str) -> str | None:
    """Whether each rank has a file of its own, with the rank in its name; None if so, else what is
    wrong.
    """
    names = []
    for pid, call in enumerate(_of(calls, "rocprofv3")):
        options, program = parse("rocprofv3", call.words)
        environment = _environment(call)
        parts = (options.output_directory, options.output_file)
        # Also with equal process numbers: a process number doesn't tell the rank.
        processes = [
            Process("node1", number, program, environment) for number in (4000 + 17 * pid, 4000)
        ]
        names.append(
            tuple("/".join(expand(part, process) for part in parts) for process in processes)
        )
    if len({whole for whole, _ in names}) < len(names):
        return (
            f"All ranks write `{names[0][0]}`: the last one replaces the"
            f" others.{_why(names[0][0], script)}"
        )
    if len({same for _, same in names}) < len(names):
        return (
            "The files differ by process number: nobody can tell which rank is which. Put `%rank%`"
            " into the name."
        )
    return None


def _environment(call: Call) -> Mapping[str, str]:
    own = {"SLURM_PROCID": call.task, "SLURM_LOCALID": call.task, "SLURM_JOB_ID": "4711"}
    return own | ({"RANK": call.rank} if call.rank else {})


def _why(name: str, script: str) -> str:
    if "$" in name:
        return " Nobody fills a variable in between single quotes: put `%rank%` there."
    filled_in = re.search(r"\$\{?(SLURM_PROCID|SLURM_LOCALID|RANK)\b", script)
    early = " The script fills the variable in before srun starts." if filled_in else ""
    return f"{early} Put `%rank%` into the name."
