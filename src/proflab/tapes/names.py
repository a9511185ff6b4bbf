"""The placeholders in file names, such as `rank%rank%_%pid%`, as ROCprofiler-SDK and rocprof-sys
expand them.

Source: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/lib/output and
source/docs/how-to/using-rocprofv3.rst (ROCm 7).
"""

from __future__ import annotations

import os
import re
import time
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
"""Variables for %rank%, in the order in which they are looked up. torchrun's RANK is not among
them.
"""

SIZE_VARIABLES = (
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MPI_NRANKS",
    "MPI_LOCALNRANKS",
    "MPI_SIZE",
)
"""Variables for %size%, in the order in which they are looked up (format_path.cpp: the last one in
its list wins): 1 under plain srun.
"""

TIME_FORMAT = "%F_%H.%M"

PLACEHOLDER = re.compile(r"%env\{([A-Z0-9_]+)\}%|\$ENV\{([A-Z0-9_]+)\}|%arg(\d+)%|%([a-z_]+)%")

_LONG_NAMES = {"h": "hostname", "p": "pid", "r": "rank", "s": "size", "j": "job"}


@dataclass(frozen=True)
class Process:
    """The values of the placeholders for one process.

    command     -- the program's words.
    environment -- its variables.
    """

    hostname: str
    pid: int
    command: Sequence[str]
    environment: Mapping[str, str]

    @property
    def tag(self) -> str:
        """The program's base name."""
        return PurePath(self.command[0]).name if self.command else ""


def expand(text: str, process: Process) -> str:
    """Return `text` with its placeholders replaced; unknown ones are kept."""
    values = _values(process)

    def replace(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable:
            # Blanks and slashes would change the name into other folders.
            return re.sub(r"[ \t/]", "_", process.environment.get(variable, ""))
        if match[3]:
            number = int(match[3])
            return process.command[number] if number < len(process.command) else match[0]
        return values.get(_LONG_NAMES.get(match[4], match[4]), match[0])

    return PLACEHOLDER.sub(replace, text)


def _values(process: Process) -> dict[str, str]:
    environment = process.environment
    rank = _first(environment, RANK_VARIABLES)
    arguments = "_".join(word.strip("-") for word in process.command[1:]).replace("/", "_")
    launch = time.strftime(environment.get("ROCPROF_TIME_FORMAT", TIME_FORMAT))
    return {
        "hostname": process.hostname,
        "pid": str(process.pid),
        "ppid": str(os.getppid()),
        "cwd": os.getcwd(),
        "rank": rank or "0",
        "size": _first(environment, SIZE_VARIABLES) or "1",
        "nid": rank or str(process.pid),
        "job": environment.get("SLURM_JOB_ID", "0"),
        "launch_time": launch,
        "launch_date": launch,
        "argv": "_".join([process.tag, arguments]) if arguments else process.tag,
        "argt": process.tag,
        "args": arguments,
        "tag": process.tag,
    }


def _first(environment: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((environment[name] for name in names if name in environment), None)
