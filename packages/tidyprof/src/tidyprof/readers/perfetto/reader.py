"""Reader for Perfetto traces, as rocprofv3 (`--output-format pftrace`) and rocprof-sys write
them.
"""

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
    """Read a Perfetto trace: a .pftrace of rocprofv3, a perfetto-trace-*.proto of rocprof-sys, or
    any other.

    path          -- a file, or a folder with one file per process (also in folders below it, such
                     as rocprofv3 makes per host).
    rank, origin, maximum_bytes -- as of `tidyprof.read`.
    progress      -- show a progress bar on stderr; None: on a terminal, for files that take over
                     two seconds.

    `events` has a row for every slice and instant event, including frames of call-stack samples.
    Times are ns of the trace's own clock (meta `clock`; the time since boot in all known files),
    which is the clock of rocprofv3's other files, too. Of the columns of `tables.contract`, here
      source_category  category in the file (`kernel_dispatch`, `hip_api`, `timer_sampling`, ...),
                       several names joined by `,`
      stream           the HIP stream where the file states one, else the queue
      queue            number of the queue in the track's name, else in the arguments
      device           counts as meta `device_numbering` says
      grid             counts work-items; `[n]` where the file has only the product
      source_device, destination_device, memory_device  agents
      track            name of the track, for threads the thread's name
      depth            of host events: how many events of its track enclose it; frames of samples
                       count within their sample, 0 being the outermost
      parent           of host events: the row label of the innermost event that encloses it
      sample           of frames: number of the sample, in order of time
    Device events have a process but no thread.

    `meta` begins with `data_loss` (what was lost -> how often; absent where the file has no
    statistics) and has, besides the common entries and where stated: `clock`, `realtime_offset_ns`
    (what to add for ns since 1970), `commands` (process id -> command line), `traces` (identifiers;
    several where files were concatenated), `system`, `cpus`, `perfetto_version`,
    `buffer_kilobytes`, `buffer_fill_policy`, `device_numbering` (`agent`: ROCm's agents, CPUs
    included; `index`: GPUs), `agent_taken_as_device` (see docs), `packets`. Warnings begin with
    lost data.

    Raises ProfileReadError, whose one line says what was found and what to do.
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
    """The contents of each of these traces in the folder `path`; the first has those without any in
    `ignored`. Raises ProfileReadError as
    `read_perfetto` does.

    texts -- collects what the codes stand for; `text` makes it readable.
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
            "a folder without a Perfetto trace",
            "the profiler wrote another format, or to another folder",
            "record with rocprofv3 --output-format pftrace or with ROCPROFSYS_TRACE=true, or check"
            " the path",
        )
    return files, others


def refuse_repeated(path: Path, parts: Sequence[Part]) -> None:
    """Raise ProfileReadError where two files hold the same process of the same rank at the same
    time.
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
    """Process id -> start of its first and end of its last event in ns."""
    process, start = part.records.get("process"), part.records["start_ns"]
    end = start + part.records["duration_ns"]
    known = np.unique(process[process != ABSENT]).tolist()
    return {
        number: (int(start[process == number].min()), int(end[process == number].max()))
        for number in known
    }


def merged_facts(parts: Sequence[Part]) -> dict[str, Any]:
    """Entries of `Profile.meta` to which each file adds, data loss first."""
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
