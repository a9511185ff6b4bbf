"""Test of a job script for rocprofv3 under srun without a cluster: processes and file names.

`bash -n` checks the syntax. Then the script runs in an empty folder with replacements: srun starts
two tasks one after the other, and the tools log their command lines and start the program after
`--`. The player's table of rocprofv3 checks the options.
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
"""Maps the name of each replacement, which comes first in PATH, to its script."""


@dataclass(frozen=True)
class Call:
    """One call of a tool: its name, its srun task ("" outside srun), RANK, and its arguments."""

    tool: str
    task: str
    rank: str
    words: tuple[str, ...]


def problem(script: str) -> str | None:
    """Return the first problem of a job script that should trace the kernels of each rank."""
    if not script.startswith("#!"):
        return (
            "The script doesn't start with `#!/bin/bash`. sbatch rejects a script without this"
            " line, so put it first."
        )
    if found := _unreadable(script):
        return found
    if not re.search(r"^#SBATCH .*(--ntasks(-per-node)?[= ]|-n ?)4\b", script, re.MULTILINE):
        return "The script doesn't request four ranks. Add `#SBATCH --ntasks-per-node=4`."
    if re.search(r"(#SBATCH|srun) .*(--nodes[= ]|-N ?)(?!1\b)", script, re.MULTILINE):
        return "The script requests several nodes. Use `--nodes=1` for four ranks on one node."
    calls, errors = _try(script)
    return _order(calls, errors) or _options(calls) or _names(calls, script)


def _unreadable(script: str) -> str | None:
    read = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    if read.returncode:
        return f"bash can't parse the script: {read.stderr.splitlines()[0].removeprefix('bash: ')}"
    return None


def _try(script: str) -> tuple[list[Call], str]:
    """Return the calls of the script in order and the last line of stderr."""
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
            return [], f"it ran for more than {LONGEST_S} s"
        text = log.read_text() if log.is_file() else ""
    records = [record.split(_FIELD)[:-1] for record in text.split(_RECORD)[:-1]]
    calls = [Call(tool, task, rank, tuple(words)) for tool, task, rank, *words in records]
    return calls, (done.stderr.strip().splitlines() or [""])[-1]


def _of(calls: Sequence[Call], tool: str) -> list[Call]:
    return [call for call in calls if call.tool.startswith(tool)]


def _order(calls: Sequence[Call], errors: str) -> str | None:
    """Return a problem unless srun starts the tool, and the tool the program, for each rank."""
    tools, tasks = _of(calls, "rocprofv3"), _of(calls, "srun")
    if not tasks:
        ended = f" Its last error: {errors}" if errors else ""
        return f"The script doesn't start `srun`, so only one process runs. Add `srun`.{ended}"
    if not tools:
        return (
            "`srun` doesn't start `rocprofv3`, so nothing is recorded. Put `rocprofv3` after"
            " `srun`."
        )
    if any(not call.task for call in tools):
        return (
            "The tool starts srun, so it profiles srun instead of the ranks. Write `srun rocprofv3"
            " ... -- python ...`."
        )
    if any("--" not in call.words for call in tools):
        return "Put `--` before the program. Otherwise, rocprofv3 reads its arguments as options."
    started = {call.task for call in _of(calls, "python")}
    if len(started) < RANKS:
        return "Each rank must start `python`. Put the program after `--`."
    return None


def _options(calls: Sequence[Call]) -> str | None:
    """Return a problem unless the options are valid, record kernels and name a format."""
    words = _of(calls, "rocprofv3")[0].words
    try:
        options, _ = parse("rocprofv3", words)
    except ToolError as error:
        return f"rocprofv3 rejects this command: {error}"
    if not (options.kernel_trace or options.runtime_trace or options.sys_trace):
        return "rocprofv3 records only what you request. Add `--kernel-trace`."
    if not options.output_format:
        return "The default format depends on the release. Add `--output-format csv`."
    return None


def _names(calls: Sequence[Call], script: str) -> str | None:
    """Return a problem unless each rank writes a separate file with the rank in its name."""
    names = []
    for pid, call in enumerate(_of(calls, "rocprofv3")):
        options, program = parse("rocprofv3", call.words)
        environment = _environment(call)
        parts = (options.output_directory, options.output_file)
        # Equal process IDs show whether the rank itself is in the name.
        processes = [
            Process("node1", number, program, environment) for number in (4000 + 17 * pid, 4000)
        ]
        names.append(
            tuple("/".join(expand(part, process) for part in parts) for process in processes)
        )
    if not names[0][0].startswith("ranks/"):
        return f"The files go to `{names[0][0]}`. Add `--output-directory ranks`."
    if len({whole for whole, _ in names}) < len(names):
        return (
            f"All ranks write `{names[0][0]}`, so only the last rank's file remains."
            f" {_why(names[0][0], script)}"
        )
    if len({same for _, same in names}) < len(names):
        return (
            "The file names differ only by process ID, which doesn't identify the rank. Add"
            " `%rank%` to the name."
        )
    return None


def _environment(call: Call) -> Mapping[str, str]:
    own = {"SLURM_PROCID": call.task, "SLURM_LOCALID": call.task, "SLURM_JOB_ID": "4711"}
    return own | ({"RANK": call.rank} if call.rank else {})


def _why(name: str, script: str) -> str:
    if "$" in name:
        return "The shell doesn't expand variables in single quotes. Use `%rank%` instead."
    expanded = re.search(r"\$\{?(SLURM_PROCID|SLURM_LOCALID|RANK)\b", script)
    early = "The script expands the variable before srun starts. " if expanded else ""
    return f"{early}Add `%rank%` to the name."
