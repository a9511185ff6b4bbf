"""Reader for what rocprofv3 writes as CSV and JSON."""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from pathlib import Path

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.rocprofv3.collected import Collected, common_meta, refuse_copies
from tidyprof.readers.rocprofv3.files import ProcessFiles, find_processes
from tidyprof.readers.rocprofv3.process import read_process
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import Part, profile_of


@guarded
def read_rocprofv3(
    path: str | PathLike[str],
    *,
    only: Collection[Path] = (),
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read the CSV and JSON output of rocprofv3 (ROCm 6.2 to 7.x), also where rocpd converted a database to CSV.

    path -- a file, a folder (`--output-directory`), or folder and start of the names that belong to one process
            (`out/908` for `out/908_kernel_trace.csv` and the others). In a folder every process is read, in folders
            below it too. Where a process has JSON results, its CSV traces are ignored: they say the same.
    only -- of the files in a folder these alone.
    rank, origin, maximum_bytes -- as of `tidyprof.read`.

    `events` (times in ns since the node was started) has the columns of `tables.contract`. Here
      device           number in `Agent 4`, which counts CPUs too and is not HIP's device number
      source_category  domain in the file: KERNEL_DISPATCH, MEMORY_COPY, HIP_RUNTIME_API_EXT, MARKER_CORE_API, ...
      dispatch_id      of samples too
      grid             counts work-items, not workgroups
      bytes            of copies (JSON only) and of memory allocations
      lds_bytes        of a workgroup; CSV rounds up to 512
      source_device, destination_device  agents of a copy; `device` is the GPU of the two, between GPUs the destination
      source_line, instruction_type, stall_reason, exec_mask, wave_issued, wave_count  of program counter samples,
                       whose `name` is the instruction and duration 0
    Correlation ids are unique within a process. Kernels and copies have a process, but no thread.

    `counters` has a row per dispatch and counter, at the start of the dispatch, which runs alone and is being measured.
    Files of ROCm 6.2 state no times: time_ns is 0 and duration_ns <NA> then. The unit is not stated.

    `meta` has, besides the common entries and where stated: `stats` (of `--stats`; subject such as `kernel`, `hip_api`
    or `domain` -> table in the columns STATISTICS_COLUMNS), `agents` (a dict per CPU and GPU), `device_numbering`
    (`agent`, or `index` with `--agent-index type-relative`), `command`, `record_window_ns`.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    processes, others = find_processes(path, only)
    texts = Codes()
    found = [
        own
        for process in _of_rank(path, processes, rank)
        for own in read_process(process, rank, texts, maximum_bytes, others)
    ]
    found[0].ignored |= others
    refuse_copies(path, found)
    parts = [own.part(texts) for own in found]
    _refuse_nothing(path, found, parts)
    return profile_of(parts, texts, common_meta(found) | {"tool": "rocprofv3"}, origin)


def _refuse_nothing(path: Path, found: list[Collected], parts: list[Part]) -> None:
    if not any(part.records.total or part.counters for part in parts) and not any(own.stats for own in found):
        raise ProfileReadError(
            path,
            "no record of any kind",
            "only the list of agents was written: the program used no GPU, or nothing was asked to be recorded",
            "record with --kernel-trace, and check that the program runs on a GPU",
        )


def _of_rank(path: Path, processes: list[ProcessFiles], rank: int | None) -> list[ProcessFiles]:
    """The processes of this rank; all if rank is None, or if there is one that states none."""
    known = sorted({process.rank for process in processes if process.rank is not None})
    if rank is None or (not known and len(processes) == 1):
        return processes
    if rank in known:
        return [process for process in processes if process.rank == rank]
    raise ProfileReadError(
        path,
        f"no rank {rank}, only {', '.join(map(str, known))}"
        if known
        else f"{len(processes)} processes whose names state no rank",
        "a wrong rank was asked for, or %rank% was not in the name of the output file",
        "leave rank out to read them all",
    )
