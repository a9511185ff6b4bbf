"""Reader for rocpd databases: the SQLite files (`*_results.db`) of rocprofv3 and rocprofiler-systems in ROCm 7."""

from __future__ import annotations

from collections import Counter
from os import PathLike
from pathlib import Path

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.databases import database_files
from tidyprof.readers.rocpd.process import RocpdProcess, read_processes
from tidyprof.readers.rocpd.recognition import PATTERNS, is_rocpd
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import FOREIGN, profile_of, rank_in_name, refuse_mixed_ranks, selected_rank


@guarded
def read_rocpd(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a rocpd database, schema version 3, with or without its views.

    path -- a .db file, or a folder with one file per process (also one level below, in a folder per host).
    rank, origin, maximum_bytes -- as of `tidyprof.read`.

    The rank is that of the process's environment in the database, or else of the name of the file or its folder.
    `events` (times in ns of the node's monotonic clock) has the columns of `tables.contract`. Here
      device           counts the GPUs of the node
      source_category  category in the file (`KERNEL_DISPATCH`, `HIP_RUNTIME_API_EXT`, ...)
      correlation_id   the tool's own (`stack_id`), unique within a process
      grid             counts work-items
      source_device, destination_device  of copies, <NA> for the host; `device` is the target or else the source
      memory_device    of allocations (kind `runtime`, named `ALLOC`, `FREE`, ...)
    Ranges of roctx are annotations named by their text. Calls that began and ended in the same nanosecond are samples,
    for which the file keeps no name but that of their category.

    `counters` has hardware counters, added up over the instances of a block, and the samples that
    rocprofiler-systems takes.

    `meta` has, besides the common entries and where stated: `agents` (the GPUs), `gpu_arch`, `clock`,
    `device_numbering` (`index`).

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    files, ignored = database_files(path, is_rocpd, PATTERNS, "rocpd databases")
    texts = Codes()
    read = [process for file in files for process in read_processes(file, texts, maximum_bytes)]
    _refuse_same_run(path, read)
    for process in read:
        if process.part.rank is None:
            process.part.rank = rank_in_name(process.part.path, path)
    on_gpu = [process for process in read if process.device_events]
    if len(read) > 1:
        refuse_mixed_ranks(path, [(process.part.path.name, process.part.rank) for process in on_gpu])
        # Helper processes, such as those that load data, use no GPU.
        for process in read:
            process.part.warnings = process.part.warnings if process.device_events or not on_gpu else []
    parts = selected_rank(path, [process.part for process in read], rank)
    parts[0].ignored = dict.fromkeys(ignored, FOREIGN)
    meta = {"clock": "monotonic clock of the node", "device_numbering": "index"}
    return profile_of(parts, texts, meta, origin)


def _refuse_same_run(path: Path, processes: list[RocpdProcess]) -> None:
    for run, count in Counter(process.run for process in processes if process.run).items():
        if count > 1:
            names = ", ".join(repr(process.part.path.name) for process in processes if process.run == run)
            raise ProfileReadError(
                path,
                f"the same recording {count} times ({names})",
                "a copy of a file in the same folder",
                "keep each file once",
            )
