"""Reader for Perfetto traces from rocprofv3 (`--output-format pftrace`) and rocprof-sys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded, progress_bar
from tidyprof.readers.perfetto.file import read_file
from tidyprof.readers.perfetto.recognition import sorted_files
from tidyprof.readers.perfetto.sequences import text
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
    progress: bool | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a Perfetto trace, such as a .pftrace from rocprofv3 or a perfetto-trace-*.proto from
    rocprof-sys.

    path          -- a file, or a folder with one file per process. The files can also be in
                     subfolders, such as rocprofv3's folder per host.
    rank, origin, maximum_bytes -- see `tidyprof.read`.
    progress      -- show a progress bar on stderr. The default shows it on a terminal if reading
                     takes more than two seconds.

    `events` has one row per slice and instant event, including frames of call-stack samples.
    Times are in nanoseconds on the trace's own clock (meta `clock`). In all known files, this is
    the time since boot, which rocprofv3's other files also use. Columns of `tables.contract` with a
    special meaning here:
      - source_category: category in the file (`kernel_dispatch`, `hip_api`, `timer_sampling`, ...).
        Several names are joined by `,`.
      - stream: HIP stream, or the queue if the file has no stream
      - queue: queue number from the track's name, otherwise from the arguments
      - device: number of the GPU or agent, see meta `device_numbering`
      - grid: work-items; `[n]` if the file has only the product
      - source_device, destination_device, memory_device: agents
      - track: name of the track; for a thread, its thread name
      - depth: for host events, the number of events that enclose it on its track. Frames are
        numbered within their sample, and the outermost frame is 0.
      - parent: for host events, the row label of the innermost event that encloses it
      - sample: for frames, the number of the sample in time order

    Device events have a process but no thread.

    `meta` has the common entries and these, if known:
      - data_loss: kind of loss -> count. This entry is the first. It is missing if the file has no
        statistics.
      - clock: name of the trace's clock
      - realtime_offset_ns: number to add to get nanoseconds since 1970
      - commands: process id -> command line
      - traces: identifiers; several if traces were concatenated
      - system, cpus, perfetto_version, buffer_kilobytes, buffer_fill_policy
      - device_numbering: `agent`: ROCm agents, including CPUs; `index`: GPUs
      - agent_taken_as_device: see the documentation
      - packets: number of packets

    Warnings start with lost data.

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    files, others = _files_of_folder(path) if path.is_dir() else ([path], [])
    texts = Codes()
    parts = read_traces(path, files, texts, progress, maximum_bytes)
    refuse_repeated(path, parts)
    parts = selected_rank(path, parts, rank)
    parts[0].ignored |= dict.fromkeys(others, FOREIGN)
    return profile_of(parts, map(text, texts), merged_facts(parts), origin)


def read_traces(
    path: Path,
    files: Sequence[Path],
    texts: Codes,
    progress: bool | None,
    maximum_bytes: int,
) -> list[Part]:
    """Read these trace files in the folder `path`. The first part lists files without events in
    `ignored`. Raises ProfileReadError like `read_perfetto`.

    texts -- collects the strings behind the codes. Use `text` to decode them.
    """
    with progress_bar(files, progress) as advance:
        parts, nothing = read_recorded(
            files, lambda file: read_file(file, texts, maximum_bytes, advance)
        )
    for part in parts:
        part.rank = rank_in_name(part.path, path)
        part.ignored |= nothing
    return parts


def _files_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    files, others = sorted_files(folder)
    if not files:
        raise ProfileReadError(
            folder,
            "the folder has no Perfetto trace",
            "the profiler wrote another format, or wrote to another folder",
            "record with rocprofv3 --output-format pftrace or with ROCPROFSYS_TRACE=true, or check"
            " the path",
        )
    return files, others


def refuse_repeated(path: Path, parts: Sequence[Part]) -> None:
    """Raise ProfileReadError if two files contain the same process of the same rank at overlapping
    times.
    """
    spans = []
    for part in parts:
        of_rank = "" if part.rank is None else f" of rank {part.rank}"
        spans += [
            (f"process {number}{of_rank}", *span, part.path)
            for number, span in process_spans(part).items()
        ]
    refuse_overlap(path, spans)


def process_spans(part: Part) -> dict[int, tuple[int, int]]:
    """Return process id -> start of its first event and end of its last event in nanoseconds."""
    process, start = part.records.get("process"), part.records["start_ns"]
    end = start + part.records["duration_ns"]
    known = np.unique(process[process != ABSENT]).tolist()
    return {
        number: (int(start[process == number].min()), int(end[process == number].max()))
        for number in known
    }


def merged_facts(parts: Sequence[Part]) -> dict[str, Any]:
    """Return `Profile.meta` entries with the combined facts of all files. Data loss comes first."""
    facts: dict[str, Any] = {}
    losses = [part.facts["data_loss"] for part in parts if "data_loss" in part.facts]
    if losses:
        facts["data_loss"] = dict(sum(map(Counter, losses), Counter()))
    commands = {
        process: command
        for part in parts
        for process, command in part.facts.get("commands", {}).items()
    }
    if commands:
        facts["commands"] = commands
    return facts | {"packets": sum(part.facts["packets"] for part in parts)}
