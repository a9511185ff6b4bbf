"""Reader for Perfetto traces, as rocprofv3 (`--output-format pftrace`) and rocprof-sys write them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.perfetto.events import Tables
from tidyprof.readers.perfetto.file import TraceFile, read_file
from tidyprof.readers.perfetto.recognition import trace_files
from tidyprof.readers.perfetto.table import counter_table, event_table
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.database_files import selected_rank

PROGRESS_AFTER_SECONDS = 2
"""Files that take less time are read without a progress bar."""

_RANK_IN_NAME = re.compile(r"rank[-_.]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)


def read_perfetto(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    progress: bool | None = None,
    annotations: Iterable[str] = (),
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a Perfetto trace: rocprofv3's .pftrace, rocprof-sys's perfetto-trace-*.proto, or any other.

    path          -- a file, as it is or compressed with gzip or zstd (found by content), or a folder with one file
                     per process (also in folders below it, such as rocprofv3 makes per host).
    rank          -- read only this rank; where no file name states one (`rank0`, `rank1`, ...), the rank that the
                     files have.
    origin        -- where the recording comes from; not stated if None.
    progress      -- show a progress bar on stderr; None: on a terminal, for files that take over two seconds.
    annotations   -- names of debug annotations to add as columns of these names, such as `pc` or a hardware counter
                     that rocprofv3 attached to a kernel; parts of nested ones are `a.b` and `a[0]`.
    maximum_bytes -- refuse files that unpack to more than this.

    `events` has a row for every slice and instant event, and one for every frame of every call-stack sample. Times
    are ns of the trace's own clock (meta `clock`; the time since boot in all known files), the one in which
    rocprofv3's other files count. After the columns of every Profile it has:
      source_category  category in the file (`kernel_dispatch`, `hip_api`, `timer_sampling`, ...), names joined by `,`
      track            name of the track, for threads the thread's name
      depth            Int32, of host events: how many events of its track enclose it; frames of samples count
                       within their sample, 0 being the outermost
      parent           Int64, of host events: the row label of the innermost event that encloses it
      sample           Int64, of frames: number of the sample, in order of time
      queue            Int64, of device events: number of the queue in the track's name, else in the arguments
      dispatch_id      Int64, number of the dispatch in its process (rocprof-sys)
      grid, block      of kernels, as text: `[x, y, z]`, or `[n]` where the file has only the product. `grid` counts
                       work-items, not workgroups
      bytes            Int64, of copies and allocations
      launch_ns        Int64, start of the call with the same correlation id, <NA> if the file has none
      launch_thread    Int64, thread that launched it
    and where a file states them lds_bytes, scratch_bytes (Int64), vgprs, accum_vgprs, sgprs (Int32) of kernels,
    source_device, destination_device (Int32, agents) of copies and memory_device (Int32, agent) of allocations.
    `stream` is the HIP stream where the file states one, else the queue. `device` counts as meta
    `device_numbering` says. Device events have a process but no thread.

    `counters` has, after the columns of every Profile, rank and process.

    `meta` begins with `data_loss` (what was lost -> how often; absent where the file has no statistics) and has,
    besides the common entries and where stated: `clock`, `realtime_offset_ns` (what to add for ns since 1970),
    `processes`, `commands` (process id -> command line), `traces` (identifiers; several where files were concatenated),
    `system`, `cpus`, `perfetto_version`, `buffer_kilobytes`, `buffer_fill_policy`, `device_numbering` (`agent`:
    ROCm's agents, CPUs included; `index`: GPUs), `agent_taken_as_device` (see docs), `rank` or `ranks`, `packets`,
    `events_by_category`, `not_kept`, `device_events_without_launch`, `repairs`, `warnings` (sentences, lost data
    first).

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    files = _files_of_folder(path) if path.is_dir() else [path]
    tables = Tables()
    read = read_traces(files, tables, annotations, progress, maximum_bytes)
    for file in read:
        file.rank = rank_in_name(file.path)
    refuse_repeated(path, read)
    read = selected_rank(path, read, rank)
    meta = common_meta(read)
    counters = counter_table(read)
    if origin is not None:
        meta["origin"] = origin
    return Profile(event_table(read, tables), counters, meta)


def read_traces(
    files: Sequence[Path], tables: Tables, annotations: Iterable[str], progress: bool | None, maximum_bytes: int
) -> list[TraceFile]:
    """What each of these traces holds; raises ProfileReadError as `read_perfetto` does."""
    wanted = tuple(annotations)
    with _bar(files, progress) as bar:
        return [read_file(file, tables, wanted, maximum_bytes, bar.update) for file in files]


def _files_of_folder(folder: Path) -> list[Path]:
    files = trace_files(folder)
    if not files:
        raise ProfileReadError(
            folder,
            "a folder without a Perfetto trace",
            "the profiler wrote another format, or to another folder",
            "record with rocprofv3 --output-format pftrace or with ROCPROFSYS_TRACE=true, or check the path",
        )
    return files


def rank_in_name(path: Path) -> int | None:
    """The rank in a file's name, which is the only place where these tools can leave it."""
    found = _RANK_IN_NAME.search(path.name)
    return int(found[1]) if found else None


def _bar(files: Iterable[Path], progress: bool | None) -> tqdm:
    return tqdm(
        total=sum(file.stat().st_size for file in files if file.is_file()),
        unit="B",
        unit_scale=True,
        desc="reading",
        delay=PROGRESS_AFTER_SECONDS if progress is None else 0,
        disable=not (sys.stderr.isatty() if progress is None else progress),
        leave=False,
        file=sys.stderr,
    )


def refuse_repeated(path: Path, files: Sequence[TraceFile]) -> None:
    """Of several files no two may hold the same process of the same rank at the same time."""
    spans = sorted(
        (-1 if file.rank is None else file.rank, process, *span, file.path.name)
        for file in files
        for process, span in file.spans.items()
    )
    for (rank, process, _, end, name), (next_rank, next_process, start, _, next_name) in pairwise(spans):
        if (rank, process) == (next_rank, next_process) and start < end:
            raise ProfileReadError(
                path,
                f"{name!r} and {next_name!r} both cover process {process} at the same time",
                "a copy of a trace, or traces of several machines in one folder",
                "keep each trace once, and put rank0, rank1, ... into the names of different machines' traces",
            )


def common_meta(files: Sequence[TraceFile]) -> dict[str, Any]:
    """Entries of `Profile.meta` for these files, data loss first."""
    meta: dict[str, Any] = {}
    if any("data_loss" in file.facts for file in files):
        meta["data_loss"] = dict(sum((Counter(file.facts.get("data_loss", {})) for file in files), Counter()))
    first = files[0].facts
    meta |= {key: value for key, value in first.items() if all(file.facts.get(key) == value for file in files)}
    commands = {process: text for file in files for process, text in file.facts.get("commands", {}).items()}
    if commands:
        meta["commands"] = commands
    ranks = sorted({file.rank for file in files if file.rank is not None})
    if ranks:
        meta |= {"ranks": ranks} if len(ranks) > 1 else {"rank": ranks[0]}
    meta["processes"] = sorted({process for file in files for process in file.spans} | set(commands))
    meta["files"] = [str(file.path) for file in files]
    meta["packets"] = sum(file.packets for file in files)
    meta["events_by_category"] = dict(sorted(sum((file.categories for file in files), Counter()).items()))
    meta["not_kept"] = dict(sorted(sum((file.not_kept for file in files), Counter()).items()))
    meta["device_events_without_launch"] = sum(file.unlaunched for file in files)
    dropped = sum((file.dropped for file in files), Counter())
    meta["repairs"] = {f"dropped events {reason}": count for reason, count in dropped.items()}
    meta["warnings"] = [warning for file in files for warning in file.warnings]
    return meta
