"""Plays the workload after `--`: understands it, tells that it is modelled, simulates it, and
prints the trainer's lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpumodel.command import Command, read_command
from gpumodel.workload import Sampling
from proflab.standins.output_files import Process
from proflab.standins.trainer_lines import trainer_lines
from tidyprof.errors import UserError
from tidyprof.standard_streams import PAGE_COLUMNS, as_shown

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run


DEFAULT_DEVICE = "MI300X"


@dataclass(frozen=True)
class Played:
    """A played workload and where it was started.

    run         -- of all ranks.
    command     -- the command as it was understood.
    environment -- of this process.
    """

    run: Run
    command: Command
    environment: Mapping[str, str]

    @property
    def ranks(self) -> tuple[RankRun, ...]:
        """The ranks whose files this process has to write."""
        return tuple(self.run.ranks[rank] for rank in self.command.ranks)

    def process(self, rank: RankRun) -> Process:
        """The values of the placeholders in file names for a rank."""
        environment = self.command.environment_of(rank.rank, self.environment)
        return Process(self.run.hostname, rank.process_id, self.command.program, environment)


def device_name(environment: Mapping[str, str] | None = None) -> str:
    """The modelled device: PROFLAB_DEVICE, else the MI300X."""
    return (os.environ if environment is None else environment).get(
        "PROFLAB_DEVICE"
    ) or DEFAULT_DEVICE


def knobs(environment: Mapping[str, str]) -> dict[str, Any]:
    """The model's settings from PROFLAB_DEVICE and PROFLAB_SEED. Raises UserError for values that
    it can't take.
    """
    from gpumodel.devices import device

    seed = environment.get("PROFLAB_SEED") or "0"
    if not seed.isdecimal():
        raise UserError(f"PROFLAB_SEED must be a whole number, not {seed!r}")
    return {"device": device(device_name(environment)).name, "seed": int(seed)}


def understand(words: Sequence[str], environment: Mapping[str, str], **more: Any) -> Command:
    """The workload of a command line, with the settings of `environment`; `more` are profiler and
    stacks.
    """
    return read_command(words, environment, **knobs(environment), **more)


def play(
    tool: str,
    words: Sequence[str],
    *,
    profiler: str = "none",
    stacks: Sampling | Literal[False] = False,
) -> Played:
    """Play the workload that `words` start, as recorded by `profiler`; prints one line about it on
    stderr.

    The trainer's own lines go to stdout. Raises UserError for another workload.
    """
    environment = dict(os.environ)
    command = understand(words, environment, profiler=profiler, stacks=stacks)
    from gpumodel.simulation import simulate

    run = simulate(command.workload)
    announce(tool, f"modelled {run.device.name}{_nodes(command)}, {run.error or 'error not known'}")
    # Of several processes only the one with rank 0 prints the result, as the trainer does.
    if 0 in command.ranks:
        print("\n".join(trainer_lines(run)))
    return Played(run, command, environment)


def announce(tool: str, what: str) -> None:
    """Print the line with which every stand-in begins, folded to fit a page."""
    text = f"{tool}: stand-in, nothing was measured: {what}"
    print(as_shown(text, sys.stderr, PAGE_COLUMNS), file=sys.stderr, flush=True)


def _nodes(command: Command) -> str:
    return f", {command.nodes} nodes played as one" if command.nodes > 1 else ""
