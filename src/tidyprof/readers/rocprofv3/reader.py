"""Reader for what rocprofv3 writes as CSV and JSON."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.readers.rocprofv3.collected import Collected, common_meta, refuse_copies
from tidyprof.readers.rocprofv3.files import ProcessFiles, find_processes
from tidyprof.readers.rocprofv3.process import read_process
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import Part, profile_of


def read_rocprofv3(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read the CSV and JSON output of rocprofv3 (ROCm 6.2 to 7.x), also where rocpd converted a database to CSV.

    path          -- a file, a folder (`--output-directory`), or folder and start of the names that belong to one
                     process (`out/908` for `out/908_kernel_trace.csv` and the others). Files may be compressed
                     with gzip or zstd. In a folder every process is read, in folders below it too. Where a
                     process has JSON results, its CSV traces are ignored: they say the same.
    rank          -- read only this rank; where no name states one, the rank that the files have.
    origin        -- where the recording comes from; not stated if None.
    maximum_bytes -- refuse files that are larger when unpacked.

    `events` has, after the columns of every Profile (times in ns since the node was started; `device` is the number
    in `Agent 4`, which counts CPUs too and is not HIP's device number):
      source_category  domain in the file: KERNEL_DISPATCH, MEMORY_COPY, HIP_RUNTIME_API_EXT, MARKER_CORE_API, ...
      queue            Int64, HSA queue of kernels
      dispatch_id      Int64, number of the dispatch in its process; of samples too
      grid, block      of kernels, as text such as `[1024, 1, 1]`: work-items (not workgroups) of the whole grid,
                       and of a workgroup
      bytes            Int64, of copies (JSON only) and of memory allocations
      launch_ns        Int64, start of the HIP or HSA call with the same correlation id, <NA> if it was not traced
      launch_thread    Int64, thread that launched a kernel or copy
    and where a file states them:
      lds_bytes, scratch_bytes    Int64, of a workgroup (CSV rounds up to 512) and of a work-item
      vgprs, accum_vgprs, sgprs   Int32, registers of a kernel
      source_device, destination_device  Int32, agents of a copy; `device` is the GPU of the two, for copies
                                  between GPUs the destination
      memory_device               Int32, agent whose memory a host call allocates
      source_line, instruction_type, stall_reason, exec_mask (UInt64), wave_issued, wave_count (Int32)
                                  of program counter samples, whose `name` is the instruction and duration 0
    Correlation ids are unique within a process. Kernels and copies have a process, but no thread.

    `counters` has a row per dispatch and counter, at the start of the dispatch, with the columns rank, process,
    thread, queue, dispatch_id, correlation_id, kernel (name), duration_ns (of a dispatch that runs alone and is
    being measured), work_items (of the grid), workgroup_size, lds_bytes, scratch_bytes, vgprs, accum_vgprs, sgprs
    and replay_pass. Files of ROCm 6.2 state no times: time_ns is 0 and duration_ns <NA> then. The unit is not stated.

    `meta` has, besides the common entries and where stated: `stats` (of `--stats`; subject such as `kernel`,
    `hip_api` or `domain` -> table in the columns `STATISTICS_COLUMNS`: rank, process, name, calls, total_ns, mean_ns,
    min_ns, max_ns, std_ns, percent), `agents` (a dict per CPU and GPU), `device_numbering` (`agent`, or `index` with
    `--agent-index type-relative`), `rank` or `ranks`, `processes`, `command`, `record_window_ns`, `events_total`,
    `events_by_category`, `not_kept`, `device_events_without_launch`, `shared_launch_records`, `ignored_files`,
    `warnings` (a list of sentences).

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    processes, others = find_processes(path)
    texts = Codes()
    found = [
        own for process in _of_rank(path, processes, rank) for own in read_process(process, rank, texts, maximum_bytes)
    ]
    found[0].ignored += others
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
