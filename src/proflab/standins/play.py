"""Playing the workload behind `--`: understand it, say that it is modelled, simulate it, print the trainer's lines.

Files of a writer are put where the real tool would have put them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cifar_train.errors import UserError
from cifar_train.whole_files import whole_file
from gpumodel.command import Command, read_command
from gpumodel.workload import SOLUTIONS, Sampling
from proflab.standins.errors import ToolError
from proflab.standins.placeholders import Process

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run


DEFAULT_DEVICE = "MI300X"


@dataclass(frozen=True)
class Played:
    """A played workload and where it was started.

    run -- of all ranks; command -- what was understood; environment -- of this process.
    """

    run: Run
    command: Command
    environment: Mapping[str, str]

    @property
    def ranks(self) -> tuple[RankRun, ...]:
        """Those whose files this process has to write."""
        return tuple(self.run.ranks[rank] for rank in self.command.ranks)

    def process(self, rank: RankRun) -> Process:
        """What placeholders in file names mean for a rank."""
        environment = self.command.environment_of(rank.rank, self.environment)
        return Process(self.run.hostname, rank.process_id, self.command.program, environment)


def device_name(environment: Mapping[str, str] | None = None) -> str:
    """The modelled device: PROFLAB_DEVICE, else the MI300X."""
    return (os.environ if environment is None else environment).get("PROFLAB_DEVICE") or DEFAULT_DEVICE


def knobs(environment: Mapping[str, str]) -> dict[str, Any]:
    """The model's knobs from PROFLAB_DEVICE, PROFLAB_SOLUTIONS and PROFLAB_SEED. Raises UserError."""
    from gpumodel.devices import device

    solutions = environment.get("PROFLAB_SOLUTIONS") or SOLUTIONS[0]
    if solutions not in SOLUTIONS:
        raise UserError(f"PROFLAB_SOLUTIONS must be one of {', '.join(SOLUTIONS)}, not {solutions!r}")
    seed = environment.get("PROFLAB_SEED") or "0"
    if not seed.isdecimal():
        raise UserError(f"PROFLAB_SEED must be a whole number, not {seed!r}")
    return {"device": device(device_name(environment)).name, "solutions": solutions, "seed": int(seed)}


def understand(words: Sequence[str], environment: Mapping[str, str], **more: Any) -> Command:
    """The workload of a command line, with the knobs of `environment`; `more` are profiler and stacks."""
    return read_command(words, environment, **knobs(environment), **more)


def play(
    tool: str, words: Sequence[str], *, profiler: str = "none", stacks: Sampling | Literal[False] = False
) -> Played:
    """Play the workload that `words` start, under the eyes of `profiler`; prints one line about it on stderr.

    The trainer's own lines go to stdout. With PROFLAB_RUN_WORKLOAD=1 the real workload runs first, and prints.
    Raises UserError for another workload, ToolError with the workload's exit code where that fails.
    """
    environment = dict(os.environ)
    command = understand(words, environment, profiler=profiler, stacks=stacks)
    real = environment.get("PROFLAB_RUN_WORKLOAD") == "1"
    if real:
        _run_real_workload(tool, words)
    from gpumodel.simulation import simulate

    run = simulate(command.workload)
    announce(tool, f"modelled {run.device.name}{_nodes(command)}, {run.error or 'error not known'}")
    if not real and 0 in command.ranks:
        from proflab.standins.trainer_lines import trainer_lines

        print("\n".join(trainer_lines(run)))
    return Played(run, command, environment)


def announce(tool: str, what: str) -> None:
    """The one line that every stand-in prints before anything else."""
    print(f"{tool}: stand-in, nothing was measured: {what}", file=sys.stderr, flush=True)


def _nodes(command: Command) -> str:
    return f", {command.nodes} nodes played as one" if command.nodes > 1 else ""


def _run_real_workload(tool: str, words: Sequence[str]) -> None:
    try:
        code = subprocess.run(words, check=False).returncode
    except OSError as error:
        raise UserError(f"PROFLAB_RUN_WORKLOAD=1, but {words[0]} cannot be started ({error.strerror})") from error
    if code:
        raise ToolError(f"{tool}: stand-in: the workload ended with exit code {code}; nothing was written", code)


MARKER = "modelled.json"


def deliver(
    format_name: str,
    run: Run,
    rank: RankRun,
    target: Path,
    **options: Any,
) -> list[Path]:
    """Write a rank's files in ROCprofiler-SDK's naming, `<target>_<suffix>`, and return them.

    target -- folder and first part of the names; options -- of the writer. A file of that name is replaced, as the
    tools do. Beside the files lies the writer's note that they are modelled. Raises UserError where the folder
    cannot be written.
    """
    from gpumodel import writers

    with tempfile.TemporaryDirectory() as scratch:
        written = writers.write(format_name, run, Path(scratch), rank=rank.rank, **options)
        return [place(path, target.parent / _name(path.name, rank, target.name)) for path in written]


def _name(name: str, rank: RankRun, prefix: str) -> str:
    """The writers' default names begin with the number of the process; a marker's need not."""
    own = f"{rank.process_id}_"
    return f"{prefix}_{name.removeprefix(own)}" if name.startswith(own) else name


def place(source: Path, target: Path) -> Path:
    """Move a file, replacing what is there. Raises UserError where that cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            shutil.move(source, partial)
        return target
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); give another output folder") from error
