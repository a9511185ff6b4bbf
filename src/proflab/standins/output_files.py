"""The files that a stand-in writes: at the places where the real tool would put them, and under its
names.

Names have placeholders such as `rank%rank%_%pid%`, as ROCprofiler-SDK and rocprof-sys expand them.
Source: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/lib/output and
source/docs/how-to/using-rocprofv3.rst (ROCm 7).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tidyprof.errors import UserError
from tidyprof.whole_files import whole_file

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run

MARKER = "modelled.json"


def deliver(
    format_name: str,
    run: Run,
    rank: RankRun,
    target: Path,
    **options: Any,
) -> list[Path]:
    """Write a rank's files with ROCprofiler-SDK's names, `<target>_<suffix>`, and return their
    paths.

    target  -- folder and first part of the names.
    options -- of the writer.

    A file of that name is replaced, as the tools do. Beside the files lies the writer's note that
    they are modelled. Raises UserError if the folder cannot be written.
    """
    from gpumodel import writers

    with tempfile.TemporaryDirectory() as scratch:
        written = writers.write(format_name, run, Path(scratch), rank=rank.rank, **options)
        return [
            put_file(path, target.parent / _name(path.name, rank, target.name)) for path in written
        ]


def _name(name: str, rank: RankRun, prefix: str) -> str:
    """The file's name, with `prefix` for the process number with which the writers' default names
    begin; a marker's name need not have one.
    """
    own = f"{rank.process_id}_"
    return f"{prefix}_{name.removeprefix(own)}" if name.startswith(own) else name


def put_file(source: Path, target: Path) -> Path:
    """Move a file and replace the one that is there. Raises UserError if that cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            shutil.move(source, partial)
        return target
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror}); give another output folder"
        ) from error


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

_LONG_NAMES = {"h": "hostname", "p": "pid", "r": "rank", "s": "size", "j": "job"}
_PLACEHOLDER = re.compile(r"%env\{([A-Z0-9_]+)\}%|\$ENV\{([A-Z0-9_]+)\}|%arg(\d+)%|%([a-z_]+)%")


@dataclass(frozen=True)
class Process:
    """The values of the placeholders for one process.

    command     -- the program's words.
    environment -- its variables.
    launch_time -- seconds since 1970.
    """

    hostname: str
    pid: int
    command: Sequence[str]
    environment: Mapping[str, str]
    launch_time: float = field(default_factory=time.time)

    @property
    def tag(self) -> str:
        """The program's base name."""
        return PurePath(self.command[0]).name


def expand(text: str, process: Process) -> str:
    """`text` with its placeholders replaced; unknown ones are kept."""
    values = _values(process)

    def replace(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable:
            # Blanks and slashes would change the name into other folders.
            return re.sub(r"[ \t/]", "_", process.environment.get(variable, ""))
        if match[3]:
            number = int(match[3])
            return process.command[number] if number < len(process.command) else match[0]
        name = _LONG_NAMES.get(match[4], match[4])
        return values.get(name, match[0])

    return _PLACEHOLDER.sub(replace, text)


def _values(process: Process) -> dict[str, str]:
    environment = process.environment
    rank = _first(environment, RANK_VARIABLES)
    arguments = "_".join(word.strip("-") for word in process.command[1:]).replace("/", "_")
    moment = time.localtime(process.launch_time)
    launch = time.strftime(environment.get("ROCPROF_TIME_FORMAT", TIME_FORMAT), moment)
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
