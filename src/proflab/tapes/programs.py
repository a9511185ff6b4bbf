"""The program that a tool starts: its words without what selects no tape, and its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

IGNORED = ("--run-dir", "--data", "--data-path")
"""Options of the trainer that say where images come from and where results go."""

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "mpiexec": ("PALS_RANKID", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}
"""Launcher -> the variables with a process's rank and with the number of ranks. The order matters,
since torchrun and mpirun inherit Slurm's variables within a job.
"""

_COUNT = re.compile(r"(?:^| )--?(?:nproc[-_]per[-_]node|ntasks|np|n)[ =]?(\d+)")
_PROGRAM = re.compile(r"-m|--|bash|python[\d.]*|cifar-train|.*\.py")


@dataclass(frozen=True)
class Program:
    """A program, with the words of its launcher taken away.

    options  -- each option with its values; "" holds the words in front.
    ranks    -- how many processes it has.
    rank     -- the rank of this process if a launcher started it, otherwise None.
    launcher -- the launcher in the command itself, or "".
    words    -- the program's command line.
    """

    options: Mapping[str, tuple[str, ...]]
    ranks: int
    rank: int | None
    launcher: str
    words: tuple[str, ...]

    @property
    def run_folder(self) -> str | None:
        """The folder into which the trainer writes its own files."""
        values = self.options.get("--run-dir", ())
        return values[0] if values else None

    @property
    def key(self) -> dict[str, tuple[str, ...]]:
        """What selects a tape: every option that isn't in IGNORED."""
        return {name: words for name, words in self.options.items() if name not in IGNORED}

    def environment_of(self, rank: int, environment: Mapping[str, str]) -> dict[str, str]:
        """Return `environment` with the variables that the command's launcher sets for a rank."""
        if not self.launcher:
            return dict(environment)
        own_rank, size = LAUNCHERS[self.launcher]
        return {**environment, own_rank: str(rank), size: str(self.ranks)}


def read_program(words: Sequence[str], environment: Mapping[str, str]) -> Program:
    """Return the program of a command line, alone or behind a launcher.

    The number of ranks comes from the launcher in the command. Without one, it comes from the
    variables of the launcher that started this process.
    """
    own, launcher, ranks = list(words), "", 1
    if own[1:3] == ["-m", "torch.distributed.run"]:
        own = ["torchrun", *own[3:]]
    name = PurePath(own[0]).name if own else ""
    rank = None
    if name in LAUNCHERS:
        start = next(
            (place for place, word in enumerate(own) if place and _PROGRAM.fullmatch(word)),
            len(own),
        )
        found = _COUNT.search(" ".join(own[1:start]))
        launcher, ranks, own = name, int(found[1]) if found else 1, own[start:]
        if own[:1] == ["-m"]:
            own = ["python", *own]  # torchrun adds Python itself
    elif own:
        for one in LAUNCHERS.values():
            if all(environment.get(variable, "").isdecimal() for variable in one):
                rank, ranks = (int(environment[variable]) for variable in one)
                break
    return Program(_options(own), ranks, rank, launcher, tuple(own))


def _options(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each option with its values, of which the last one counts; "" holds the words in
    front.
    """
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for place, word in enumerate(words):
        if place == 0:
            word = re.sub(r"python[\d.]*", "python", PurePath(word).name)
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = (value,) if equals else ()
        else:
            found[name] = (*found.get(name, ()), word)
    return found
