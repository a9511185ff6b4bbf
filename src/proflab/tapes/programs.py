"""The program that a tool starts: the arguments that select a tape, and the program's ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

IGNORED = ("--run-dir", "--data", "--data-path")
"""Trainer options that set the image source and the results folder."""

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "mpiexec": ("PALS_RANKID", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
}
"""Environment variables with a process's rank and the number of ranks, by launcher.

The order matters because torchrun and mpirun inherit Slurm's variables within a Slurm job.
"""

_COUNT = re.compile(r"(?:^| )--?(?:nproc[-_]per[-_]node|ntasks|np|n)[ =]?(\d+)")
_PROGRAM = re.compile(r"(?<= )(?=(?:-m|--|bash|\S*python[\d.]*|cifar-train|\S*\.py) )")


@dataclass(frozen=True)
class Program:
    """Program without its launcher's arguments.

    - words: the program's command line.
    - options: each option with its values. The key "" contains the words before the first
      option.
    - ranks: the number of processes.
    - rank: the rank of this process if a launcher started it, otherwise None.
    - launcher: the launcher in the command itself, or "".
    """

    words: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    ranks: int = 1
    rank: int | None = None
    launcher: str = ""

    def environment_of(self, rank: int) -> dict[str, str]:
        """Return the environment variables that the command's launcher sets for a rank."""
        return dict(
            zip(LAUNCHERS.get(self.launcher, ()), (str(rank), str(self.ranks)), strict=False)
        )


def read_program(words: Sequence[str], environment: Mapping[str, str]) -> Program:
    """Return the program in a command line, with or without a launcher.

    The launcher in the command sets the number of ranks. If the command has no launcher, the
    number comes from the environment variables of the launcher that started this process.
    """
    own, name = list(words), PurePath(words[0]).name if words else ""
    if name in LAUNCHERS:
        options = _PROGRAM.split(f"{' '.join(own)} ", maxsplit=1)[0]
        own = own[len(options.split()) :]
        count = _COUNT.search(options)
        own = ["python", *own] if own[:1] == ["-m"] else own  # torchrun adds "python"
        return Program(tuple(own), _options(own), int(count[1]) if count else 1, None, name)
    for one in LAUNCHERS.values() if own else ():
        if all(environment.get(variable, "").isdecimal() for variable in one):
            rank, ranks = (int(environment[variable]) for variable in one)
            return Program(tuple(own), _options(own), ranks, rank)
    return Program(tuple(own), _options(own))


def _options(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each option with its values. If an option occurs twice, its last occurrence counts.

    The key "" contains the words before the first option.
    """
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = (value,) if equals else ()
        else:
            plain = word if found else re.sub(r"python[\d.]*", "python", PurePath(word).name)
            found[name] = (*found.get(name, ()), plain)
    return found
