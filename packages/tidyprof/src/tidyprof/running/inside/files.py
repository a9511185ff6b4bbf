"""The files of a process with hooks, in one folder: run_rankN.json, times_rankN.jsonl and
trace_rankN.json.gz.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PALS_RANKID", "PMI_RANK", "SLURM_PROCID")
WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PALS_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""Environment variables in which launchers state the number of this process, and how many there
are; Slurm's come last, as it may have started just one process on each node.
"""


def launched(names: Iterable[str]) -> int | None:
    """The number in the first of these variables that is set; None if a launcher set none.

    Slurm also sets its variables in the script of a job, which is a single process. They count only
    within a step of the job.
    """
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal() and ("SLURM_STEP_ID" in os.environ or not name.startswith("SLURM_")):
            return int(text)
    return None


def rank_of(torch: ModuleType) -> tuple[int, int]:
    """Return rank and number of ranks: torch.distributed's if it runs, otherwise the launcher's,
    and otherwise 0 of 1.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank = launched(RANKS) or 0
    return rank, max(launched(WORLDS) or 1, rank + 1)


def machine(torch: ModuleType) -> dict[str, Any]:
    """What the process runs on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_initialized() else None
    versions = {"torch": torch.__version__, "rocm": torch.version.hip, "cuda": torch.version.cuda}
    return {"host": platform.node(), "python": platform.python_version(), "gpu": gpu, **versions}


def started(pid: int | str = "self") -> int | None:
    """Return when a process started, in clock ticks since the machine did; None if there is none.

    A process that has ended may leave its number to another one, which started later.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The program's name, in brackets, may contain blanks.
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


COMPRESSION = 5
"""Level of gzip: a third larger than the highest level, and several times as fast."""


class Files:
    """The files of one process. The first process of a rank writes into the folder, others into
    folders inside it.
    """

    def __init__(self, folder: str, rank: int) -> None:
        """Raises OSError if the folder can't be written."""
        number = 1
        while True:
            self.folder = folder if number == 1 else os.path.join(folder, f"program-{number}")
            os.makedirs(self.folder, exist_ok=True)
            self.about = os.path.join(self.folder, f"run_rank{rank}.json")
            try:
                # O_EXCL: of two processes that try at the same time, only one creates the file.
                os.close(os.open(self.about, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                break
            except FileExistsError:
                number += 1
        self.times = os.path.join(self.folder, f"times_rank{rank}.jsonl")
        self.trace = os.path.join(self.folder, f"trace_rank{rank}.json.gz")

    def tell(self, about: dict[str, Any]) -> None:
        """Replace what is known of this rank, so that a reader finds the old text or the new one,
        and never half of one.
        """
        # Further arguments may hold secrets.
        written = {"program": sys.argv[0], "pid": os.getpid(), "started": started(), **about}
        with open(self.about + ".new", "w") as file:
            json.dump(written, file, indent=1, default=str)
        os.replace(self.about + ".new", self.about)

    def begin_anew(self) -> None:
        """Forget the times and the trace so far: they were of steps that count no more."""
        open(self.times, "w").close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.trace)

    def add_times(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add lines to the times."""
        with open(self.times, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def keep_trace(self, export: Callable[[str], None]) -> None:
        """Let `export` write a trace, and compress it.

        Raises OSError if it can't be written whole. Then no trace is left.
        """
        plain, packed = self.trace.removesuffix(".gz") + ".part", self.trace + ".part"
        try:
            export(plain)
            with open(plain, "rb") as source, gzip.open(packed, "wb", COMPRESSION) as target:
                size = source.seek(0, os.SEEK_END)
                source.seek(max(0, size - 16))
                if not source.read().rstrip().endswith(b"}"):
                    raise self._not_whole(size)
                source.seek(0)
                shutil.copyfileobj(source, target, 1 << 20)
            os.replace(packed, self.trace)
        except FileNotFoundError:
            raise self._not_whole(0) from None
        finally:
            # torch's profiler adds the second ending while it writes.
            for part in (plain, plain + ".tmp", packed):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(part)

    def _not_whole(self, size: int) -> OSError:
        """Return an error that names the cause, which torch's profiler does not."""
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit != resource.RLIM_INFINITY:
            return OSError(f"files are limited to {limit} bytes (ulimit -f)")
        free = shutil.disk_usage(self.folder).free
        return OSError(f"{size} bytes of it were written, and {free} bytes of the disk are free")
