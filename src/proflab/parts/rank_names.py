"""What a profiler's file name becomes for each rank, under each launcher: the variables decide, not the tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proflab.display import near
from proflab.errors import CourseError
from proflab.standins.placeholders import Process, expand

if TYPE_CHECKING:
    import pandas as pd

RANKS, NODE_COUNT = 4, 2
"""The job that the names are worked out for: ranks, and nodes that share them equally."""

FIRST_PID = 41_250
"""Made up. Process numbers differ within a node, and may repeat on another."""

_TORCHRUN = {"RANK": "{rank}", "LOCAL_RANK": "{local}", "WORLD_SIZE": "{size}"}
_SRUN = {"SLURM_PROCID": "{rank}", "SLURM_LOCALID": "{local}", "SLURM_NTASKS": "{size}"}
_OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "{rank}",
    "OMPI_COMM_WORLD_LOCAL_RANK": "{local}",
    "OMPI_COMM_WORLD_SIZE": "{size}",
}
_BATCH_STEP = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "17"}

LAUNCHERS: dict[str, Mapping[str, str]] = {
    "torchrun": _TORCHRUN,
    "srun": {**_SRUN, "SLURM_JOB_ID": "17"},
    "mpirun": _OPEN_MPI,
    "mpirun in a Slurm job": {**_BATCH_STEP, **_OPEN_MPI},
}
"""Launcher -> the variables that each of its ranks has. Sources: pytorch.org/docs/stable/elastic/run.html; man srun,
OUTPUT ENVIRONMENT VARIABLES; docs.open-mpi.org, "Environment variables set by mpirun". In the last one, mpirun's
ranks also inherit the variables of the batch script, which is itself task 0 of a Slurm step."""


@dataclass(frozen=True)
class Name:
    """What a pattern becomes for one rank: on which node, and the file's name."""

    rank: int
    node: str
    text: str


def file_names(pattern: str, launcher: str, same_pid: bool = False) -> list[Name]:
    """The name of each of RANKS ranks on NODE_COUNT nodes; `same_pid` gives all processes the same number.

    Placeholders are those of ROCprofiler-SDK (see `proflab.standins.placeholders`). Raises CourseError for an
    unknown launcher.
    """
    if launcher not in LAUNCHERS:
        raise CourseError(f"there is no launcher {launcher!r}: {near(launcher, LAUNCHERS)}")
    names = []
    for rank in range(RANKS):
        node, local = divmod(rank, RANKS // NODE_COUNT)
        values = {"rank": rank, "local": local, "size": RANKS}
        variables = {name: value.format(**values) for name, value in LAUNCHERS[launcher].items()}
        process = Process(f"node{node}", FIRST_PID + (0 if same_pid else local), ["python"], variables)
        names.append(Name(rank, process.hostname, expand(pattern, process)))
    return names


def names_table(patterns: Sequence[str], launchers: Sequence[str] = tuple(LAUNCHERS)) -> pd.DataFrame:
    """One row per launcher and pattern. Columns: launcher, pattern, names (of all ranks), files (different ones)."""
    import pandas as pd

    rows = []
    for launcher in launchers:
        for pattern in patterns:
            names = [name.text for name in file_names(pattern, launcher)]
            files = len(set(names))
            rows.append({"launcher": launcher, "pattern": pattern, "names": ", ".join(names), "files": files})
    table = pd.DataFrame(rows)
    table.attrs["origin"] = f"modelled: {RANKS} ranks on {NODE_COUNT} nodes, names by the tool's documented rules"
    return table


def naming_problem(pattern: object, launcher: str) -> str | None:
    """What is wrong with a pattern for `--output-file`, None if each rank has a file of its own that tells the rank."""
    if not isinstance(pattern, str) or not pattern.strip():
        return "A text such as `rank%rank%_%pid%` is asked."
    names = [name.text for name in file_names(pattern, launcher)]
    if "%q{" in pattern or "$" in pattern:
        return "Use the tool's own placeholders between percent signs: the shell must not replace anything."
    if len(set(names)) == 1:
        return f"All {RANKS} ranks write `{names[0]}`: the last one replaces the others. Which variable differs here?"
    if len(set(names)) < RANKS:
        return f"{RANKS} ranks write {len(set(names))} files, {', '.join(sorted(set(names)))}: two nodes count alike."
    if len({name.text for name in file_names(pattern, launcher, same_pid=True)}) < RANKS:
        return f"The files differ, but none tells its rank: `{names[0]}`. Is the variable set under {launcher}?"
    return None
