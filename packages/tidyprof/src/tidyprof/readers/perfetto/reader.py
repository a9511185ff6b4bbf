"""Reader for Perfetto traces from rocprofv3 (`--output-format pftrace`) and rocprof-sys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.perfetto.decoder import text
from tidyprof.readers.perfetto.file import read_file
from tidyprof.readers.perfetto.recognition import sorted_files
from tidyprof.tables.codes import ABSENT, Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import (
    Part,
    profile_of,
    rank_in_name,
    read_recorded,
    refuse_overlap,
    selected_rank,
)


@guarded
def read_perfetto(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a Perfetto trace, such as a `.pftrace` file from rocprofv3 or a `perfetto-trace-*.proto`
    file from rocprof-sys.

    - path: path to a file, or to a folder with one file per process. The files can also be in
      subfolders. For example, rocprofv3 creates a subfolder for each host.
    - rank: see `tidyprof.read`.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    `events` has one row per slice and instant event. The frames of call-stack samples are also
    rows. Times are in nanoseconds on the trace's own clock. The entry `clock` in `meta` contains
    the name of the clock. In all known files, this clock counts the time since boot, as in
    rocprofv3's other files. These columns of `tables.contract` have a special meaning:

    - source_category: category in the file, such as `kernel_dispatch`, `hip_api` or
      `timer_sampling`. Several categories are joined by commas.
    - stream: HIP stream, or the queue if the file doesn't contain the stream
    - queue: queue number from the track's name, or from the event's arguments
    - device: number of the GPU or agent, depending on `meta["device_numbering"]`
    - grid: number of work-items, or `[n]` if the file contains only the product
    - source_device: agent that a copy reads from
    - destination_device: agent that a copy writes to
    - memory_device: agent that owns the memory
    - track: name of the event's track. For a thread, it is the thread's name.
    - depth: number of events that enclose a host event on its track. The frames of a sample are
      numbered separately, and the outermost frame has depth 0.
    - parent: row label of the innermost event that encloses a host event
    - sample: number of a frame's sample, in chronological order

    Device events have a process but no thread.

    `meta` contains the common entries and these, if known:

    - data_loss: number of losses of each kind. This entry is always first. The entry is missing if
      the file has no statistics.
    - clock: name of the trace's clock
    - device_numbering: `agent` if the numbers count all ROCm agents, including CPUs, or `index` if
      they count only GPUs

    The warnings start with lost data.

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    files, others = _files_of_folder(path) if path.is_dir() else ([path], [])
    texts = Codes()
    parts = read_traces(path, files, texts, maximum_bytes)
    refuse_repeated(path, parts)
    parts = selected_rank(path, parts, rank)
    parts[0].ignored |= dict.fromkeys(others, FOREIGN)
    return profile_of(parts, map(text, texts), data_loss(parts), origin)


def read_traces(path: Path, files: Sequence[Path], texts: Codes, maximum_bytes: int) -> list[Part]:
    """Read the given trace files from the folder `path`. The first part lists files without events
    in `ignored`. Raises ProfileReadError in the same cases as `read_perfetto`.

    - texts: collects strings and their codes. The function `text` decodes these strings.
    """
    parts, nothing = read_recorded(files, lambda file: read_file(file, texts, maximum_bytes))
    for part in parts:
        part.rank = rank_in_name(part.path, path)
        part.ignored |= nothing
    return parts


def _files_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    files, others = sorted_files(folder)
    if not files:
        raise ProfileReadError(
            folder,
            "the folder contains no Perfetto trace",
            "the profiler wrote a different format, or it wrote to a different folder",
            "check the path, or record again with rocprofv3 --output-format pftrace or"
            " ROCPROFSYS_TRACE=true",
        )
    return files, others


def refuse_repeated(path: Path, parts: Sequence[Part]) -> None:
    """Raise ProfileReadError if two files contain overlapping data from the same process of the
    same rank.
    """
    spans = []
    for part in parts:
        of_rank = "" if part.rank is None else f" of rank {part.rank}"
        span = part.extent().span
        spans += [(f"process {number}{of_rank}", *span, part.path) for number in processes_of(part)]
    refuse_overlap(path, spans)


def processes_of(part: Part) -> set[int]:
    """Return the processes of the part's events."""
    return {*pd.unique(part.records.get("process")).tolist()} - {ABSENT}


def data_loss(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the `Profile.meta` entry about the data losses in all files."""
    losses = [Counter(part.facts["data_loss"]) for part in parts if "data_loss" in part.facts]
    return {"data_loss": dict(sum(losses, Counter()))} if losses else {}
