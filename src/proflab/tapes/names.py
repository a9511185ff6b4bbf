"""Placeholders in file names, such as `rank%rank%_%pid%`.

ROCprofiler-SDK and rocprof-sys expand these placeholders in the same way
(github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/lib/output and
source/docs/how-to/using-rocprofv3.rst, ROCm 7).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

RANK_VARIABLES = (
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "MPI_RANKID",
    "MPI_LOCALRANKID",
    "MPI_RANK",
)
"""Environment variables for %rank%, in lookup order. The list doesn't contain torchrun's RANK."""

SIZE_VARIABLES = (
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MPI_NRANKS",
    "MPI_LOCALNRANKS",
    "MPI_SIZE",
)
"""Environment variables for %size%, in lookup order.

format_path.cpp uses the last match in its list. Under plain srun, %size% is 1.
"""

PLACEHOLDER = re.compile(r"(?:%env|\$ENV)\{([A-Z0-9_]+)\}%?|%([a-z_]+)%")


@dataclass(frozen=True)
class Process:
    """Placeholder values for one process.

    - command: words of the program's command line
    - environment: environment variables of the process
    """

    hostname: str
    pid: int
    command: Sequence[str]
    environment: Mapping[str, str]


def expand(text: str, process: Process) -> str:
    """Return `text` with its placeholders replaced. Unknown placeholders remain unchanged."""
    environment, pid = process.environment, str(process.pid)
    rank = next((environment[name] for name in RANK_VARIABLES if name in environment), "")
    size = next((environment[name] for name in SIZE_VARIABLES if name in environment), "1")
    tag = PurePath(process.command[0]).name if process.command else ""
    values = {"hostname": process.hostname, "pid": pid, "rank": rank or "0", "size": size}
    values |= {"nid": rank or pid, "job": environment.get("SLURM_JOB_ID", "0"), "tag": tag}
    values |= {name[0]: values[name] for name in ("hostname", "pid", "rank", "size", "job")}

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            # Spaces and slashes in a value would change the folder.
            return re.sub(r"[ \t/]", "_", environment.get(match[1], ""))
        return values.get(match[2], match[0])

    return PLACEHOLDER.sub(replace, text)
