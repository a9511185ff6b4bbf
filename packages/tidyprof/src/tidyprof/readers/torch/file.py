"""Events of one torch.profiler file as columns, and the file's metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import ByteStream
from tidyprof.readers.torch.chrome_json import ChromeTrace
from tidyprof.readers.torch.events import (
    EventColumns,
    decode_events,
    is_known,
    is_launching,
    memory_tables,
    nanoseconds,
)
from tidyprof.readers.torch.meta import (
    back_end,
    base_time,
    facts,
    missing_gpu_warning,
    stated_rank,
    untraced,
    watch_tables,
)
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, ON_DEVICE, Codes, refined, used_codes
from tidyprof.tables.damage import UNFINISHED, cut_overlaps, left_out, refuse_damage, without_damage
from tidyprof.tables.launches import Launches, first_of_each, link, rows_of
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records, nothing


def link_trace(records: Records, texts: list[str]) -> Launches:
    """Add launches to the events of one file, and add `operator` to device and runtime rows. If an
    event has no `bytes`, `grid` or `block`, these values are copied from the launch.
    """
    launching = np.array([is_launching(text) for text in texts], bool)
    is_call = launching[records["source_category"]] & (records["kind"] == KIND_CODE["runtime"])
    launches = link(records, is_call, records["rank"])
    on_device = ON_DEVICE[records["kind"]]
    for name in ("bytes", "grid", "block"):
        values, absent = records[name], nothing(name, 1)[0]
        missing = (values == absent) & (launches.call >= 0)
        values[missing] = values[launches.call[missing]]
        values[~on_device] = absent
    # External ids are unique within a rank. If traces of several processes were merged, the ids are
    # unique within a process.
    group = records["rank"]
    if launches.repeated:
        owners = pd.DataFrame({name: records[name] for name in ("rank", "process")})
        group = owners.groupby(["rank", "process"]).ngroup().to_numpy()
    records["operator"] = _operators(records, on_device, group)
    return launches


def _operators(records: Records, on_device: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the name code of the operator for each device or runtime row, or NO_TEXT if there is
    none. The row's External id identifies the operator.

    If there was no operator, older profilers wrote the correlation ID as the External id, which may
    match an unrelated operator. Therefore, the operator must enclose the launch on its thread. If
    the launch is missing, the two IDs must differ.

    - group: number for each group of rows with unique External ids
    """
    external, start = records["external_id"], records["start_ns"]
    operators, _ = first_of_each(records, external, records["kind"] == KIND_CODE["operator"], group)
    rows = np.flatnonzero(on_device | (records["kind"] == KIND_CODE["runtime"]))
    owner = rows_of(external, group, rows, operators)
    rows = np.flatnonzero(owner >= 0)
    owner = owner[rows]
    called = np.where(on_device[rows], records["launch_ns"][rows], start[rows])
    thread = np.where(on_device[rows], records["launch_thread"][rows], records["thread"][rows])
    end = start[owner] + records["duration_ns"][owner]
    encloses = (start[owner] <= called) & (called <= end) & (thread == records["thread"][owner])
    plausible = (called == ABSENT) & (external[rows] != records["correlation_id"][rows])
    names = np.full(len(records), NO_TEXT, np.int32)
    proven = encloses | plausible
    names[rows[proven]] = records["name"][owner[proven]]
    return names


@dataclass
class TraceFile:
    """The contents of one file.

    - part: events with absolute start times, links and ranks. The codes refer to bytes and strings,
      which `events.readable` decodes.
    - base_ns: base time of the file in nanoseconds since 1970
    - window: start and end of the profiler's span in nanoseconds since 1970, or None
    - untraced: see `meta.untraced`
    """

    part: Part
    base_ns: int
    window: tuple[int, int] | None
    untraced: dict[str, Any] | None


def read_file(
    path: Path,
    texts: Codes,
    python_functions: bool,
    maximum_bytes: int,
    advance: Callable[[int], Any],
) -> TraceFile:
    """Read one trace.

    - advance: function that is called with the number of bytes read since the last call

    Raises ProfileReadError if the file isn't a valid torch.profiler trace.
    """
    stream = ByteStream(path, maximum_bytes)
    collected = EventColumns(texts, python_functions)
    reported = 0
    with closing(stream.chunks()) as chunks:
        trace = ChromeTrace(path, chunks, decode_events)
        for events, text in trace.batches():
            collected.add(events, text)
            advance(stream.position - reported)
            reported = stream.position
    _refuse_other_tools(path, collected)
    file = _assembled(path, trace.metadata, collected)
    if trace.tolerated:
        file.part.warnings.append(
            f"{path.name}: parts of the file aren't strict JSON because of NaN, control characters"
            " or invalid UTF-8. Invalid numbers were dropped, and unreadable characters were"
            " replaced."
        )
    if trace.mended:
        file.part.warnings.append(
            f"{path.name}: some names contain unescaped quotation marks or backslashes, which were"
            " read literally. Likely cause: an older version of torch wrote the file"
            " (pytorch/pytorch#98432)."
        )
    return file


def _assembled(path: Path, metadata: dict[str, Any], collected: EventColumns) -> TraceFile:
    records = collected.collected()
    # Names and categories are already strings. The other values, JSON lists, aren't needed yet.
    texts = [text if isinstance(text, str) else "" for text in collected.texts]
    base = base_time(metadata, path)
    lost = +Counter(
        {"without begin or end": collected.parts_only, "without a category": collected.unsorted}
    )
    refuse_damage(path, "events", lost, len(records) + lost.total())
    records.dropped += lost
    records["kind"] = refined(
        records["kind"], records["name"], texts, records["collective"] != NO_TEXT
    )
    without_damage(path, records, {UNFINISHED: records["unfinished"] == 1})
    records["start_ns"] = records["start_ns"] + base
    rank = stated_rank(metadata)
    if rank is not None:
        records["rank"] = np.where(records["rank"] == ABSENT, rank, records["rank"])
    records.not_kept = _not_kept(collected)
    dialect = back_end(metadata, collected.by_category, _call_names(records, texts))
    launches = link_trace(records, texts)
    gpu_missing = None if ON_DEVICE[records["kind"]].any() else missing_gpu_warning(path, dialect)
    repeated = _repeated_ids(path, launches.repeated)
    warnings = [
        gpu_missing,
        repeated,
        cut_overlaps(path, records),
    ]
    part = Part(
        path,
        records,
        [*memory_tables(collected.memory, base), *watch_tables(metadata, rank)],
        facts(metadata, dialect),
        rank=None if len(records) else rank,
        total=collected.total,
        by_category=Counter(
            {category: n for category, n in collected.by_category.items() if category}
        ),
        shared_launches=launches.shared,
        warnings=[*left_out(path, collected.unknown), *filter(None, warnings)],
    )
    return TraceFile(part, base, _window(collected.windows, base), untraced(metadata))


def _refuse_other_tools(path: Path, collected: EventColumns) -> None:
    if not collected.total:
        raise ProfileReadError(
            path,
            "the event list is empty",
            "the profiler's schedule never reached a recording step",
            "run more steps than skip_first + wait + warmup + active",
        )
    if not any(is_known(category or "") for category in collected.by_category):
        present = ", ".join(repr(category) for category in list(collected.by_category)[:5])
        raise ProfileReadError(
            path,
            f"the Chrome trace has no torch.profiler events (categories: {present})",
            "another tool wrote the file",
            "use the reader for that tool, or pass a file from export_chrome_trace",
        )


def _repeated_ids(path: Path, repeated: int) -> str | None:
    """Return a warning if correlation IDs don't identify the call that launched an event."""
    if not repeated:
        return None
    return (
        f"{path.name}: {repeated:,} calls share a correlation ID with another call. The nearest"
        " call before a device event counts as its launch, which may be wrong. Likely cause: the"
        " file contains traces of several processes. Next step: read the trace of each process"
        " separately."
    )


def _call_names(records: Records, texts: list[str]) -> list[str]:
    launching = np.array([is_launching(text) for text in texts], bool)
    names = records["name"][launching[records["source_category"]]]
    return [texts[code] for code in used_codes(names, len(texts)).tolist()]


def _window(windows: list[tuple[float, float]], base: int) -> tuple[int, int] | None:
    if not windows:
        return None
    start, end = zip(*windows, strict=True)
    times = nanoseconds(np.array([min(start), max(end)]))
    return base + int(times[0]), base + int(times[1])


def _not_kept(collected: EventColumns) -> Counter[str]:
    """Count the events without a row in each category. Instant and metadata events aren't counted,
    because they have no category.
    """
    return Counter(
        {
            category: count
            for category, count in collected.by_category.items()
            if category and category not in collected.categories_kept
        }
    )
