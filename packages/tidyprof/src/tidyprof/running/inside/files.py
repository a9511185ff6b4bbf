"""Write the output files of the hooks.

Rank N has the files run_rankN.json, times_rankN.jsonl and trace_rankN.json.gz.
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
"""Environment variables in which launchers pass the rank of this process and the number of
processes. Slurm's variables have the lowest priority, because Slurm may have started only one
process per node.
"""


def launched(names: Iterable[str]) -> int | None:
    """Return the value of the first of these variables that is set, or None if none is set.

    Slurm also sets its variables in a job script, which is a single process. Therefore, ignore
    these variables outside a job step.
    """
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal() and ("SLURM_STEP_ID" in os.environ or not name.startswith("SLURM_")):
            return int(text)
    return None


def rank_of(torch: ModuleType) -> tuple[int, int]:
    """Return the rank of this process and the total number of ranks.

    The numbers come from torch.distributed if it is initialized, otherwise from the launcher.
    Without a launcher, this process has rank 0, and there is only one rank.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank = launched(RANKS) or 0
    return rank, max(launched(WORLDS) or 1, rank + 1)


def machine(torch: ModuleType) -> dict[str, Any]:
    """Return a description of the machine and the software versions."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_initialized() else None
    versions = {"torch": torch.__version__, "rocm": torch.version.hip, "cuda": torch.version.cuda}
    return {"host": platform.node(), "python": platform.python_version(), "gpu": gpu, **versions}


COMPRESSION = 5
"""The gzip level. Files are a third larger than at the highest level, but compression is several
times as fast.
"""

_INCOMPLETE = "only a part was written, for example because of a full disk or ulimit -f"
"""The likely cause if torch.profiler wrote an incomplete file, which it doesn't report."""


class Files:
    """The files of one process. The first process of a rank writes to the folder itself, and other
    processes of that rank write to subfolders.
    """

    def __init__(self, folder: str, rank: int) -> None:
        """Create the folder and its first file. Raises OSError if the folder isn't writable."""
        number = 1
        while True:
            self.folder = folder if number == 1 else os.path.join(folder, f"program-{number}")
            os.makedirs(self.folder, exist_ok=True)
            self.about = os.path.join(self.folder, f"run_rank{rank}.json")
            try:
                # With O_EXCL, only one of two simultaneous processes creates the file.
                os.close(os.open(self.about, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                break
            except FileExistsError:
                number += 1
        self.times = os.path.join(self.folder, f"times_rank{rank}.jsonl")
        self.trace = os.path.join(self.folder, f"trace_rank{rank}.json.gz")

    def tell(self, about: dict[str, Any]) -> None:
        """Replace the rank's metadata file atomically, so readers see either the old file or the
        new file.
        """
        # Leave out the arguments, which may contain secrets.
        written = {"program": sys.argv[0], "pid": os.getpid(), **about}
        with open(self.about + ".new", "w") as file:
            json.dump(written, file, indent=1, default=str)
        os.replace(self.about + ".new", self.about)

    def begin_anew(self) -> None:
        """Delete the previous times and the previous trace, because their steps no longer count."""
        open(self.times, "w").close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.trace)

    def add_times(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows to the times file as JSON lines."""
        with open(self.times, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def keep_trace(self, export: Callable[[str], None]) -> None:
        """Write a trace with the function `export`, and compress the file.

        Raises OSError and deletes the file if the trace can't be written completely.
        """
        plain, packed = self.trace.removesuffix(".gz") + ".part", self.trace + ".part"
        try:
            export(plain)
            with open(plain, "rb") as source, gzip.open(packed, "wb", COMPRESSION) as target:
                size = source.seek(0, os.SEEK_END)
                source.seek(max(0, size - 16))
                if not source.read().rstrip().endswith(b"}"):
                    raise OSError(_INCOMPLETE)
                source.seek(0)
                shutil.copyfileobj(source, target, 1 << 20)
            os.replace(packed, self.trace)
        except FileNotFoundError:
            raise OSError(_INCOMPLETE) from None
        finally:
            # torch.profiler adds the ending `.tmp` while it writes.
            for part in (plain, plain + ".tmp", packed):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(part)
