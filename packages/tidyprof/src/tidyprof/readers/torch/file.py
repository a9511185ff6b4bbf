"""Events of one torch.profiler file as columns, and the file's metadata."""

from __future__ import annotations

from collections import Counter
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
    MEMORY_CATEGORY,
    EventColumns,
    is_known,
    is_launching,
    memory_tables,
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
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    ON_DEVICE,
    Codes,
    first_equal,
    refined,
    taken,
    used_codes,
)
from tidyprof.tables.damage import UNFINISHED, cut_overlaps, left_out, refuse_damage, without_damage
from tidyprof.tables.launches import keys_of, link
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records, nothing


@dataclass
class TracePart(Part):
    """The contents of one file: events with absolute start times, links and ranks. The codes refer
    to bytes and strings, which `events.readable` decodes.

    - base_ns: base time of the file in nanoseconds since 1970
    - untraced: see `meta.untraced`
    """

    base_ns: int = 0
    untraced: dict[str, Any] | None = None


def link_trace(records: Records, is_call: np.ndarray) -> int:
    """Add launches to the events of one file, and add `operator` to device and runtime rows. If an
    event has no `bytes`, `grid` or `block`, these values are copied from the launch.

    - is_call: a mask of the calls that can launch work.

    Return the number of calls with a reused correlation id.
    """
    call, repeated = link(records, is_call, records["rank"])
    on_device = ON_DEVICE[records["kind"]]
    for name in ("bytes", "grid", "block"):
        values, absent = records[name], nothing(name, 1)[0]
        missing = (values == absent) & (call >= 0)
        values[missing] = values[call[missing]]
        values[~on_device] = absent
    # External ids are unique within a rank. If traces of several processes were merged, the ids are
    # unique within a process.
    group = records["rank"]
    if repeated:
        owners = pd.DataFrame({name: records[name] for name in ("rank", "process")})
        group = owners.groupby(["rank", "process"]).ngroup().to_numpy()
    records["operator"] = _operators(records, on_device, group)
    return repeated


def _operators(records: Records, on_device: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the name code of the operator for each device or runtime row, or NO_TEXT if there is
    none. The row's External id identifies the operator.

    If there was no operator, older profilers wrote the correlation ID as the External id, which may
    match an unrelated operator. Therefore, the operator must enclose the launch on its thread. If
    the launch is missing, the two IDs must differ.

    - group: number for each group of rows with unique External ids
    """
    external, start, kind = records["external_id"], records["start_ns"], records["kind"]
    asked = on_device | (kind == KIND_CODE["runtime"])
    key, has_id = keys_of(external, group)
    rows, owner = (
        np.flatnonzero(has_id & where) for where in (asked, kind == KIND_CODE["operator"])
    )
    # Of several operators with the same id, the one that starts first counts, or the longest.
    owner = owner[np.lexsort((-records["duration_ns"][owner], start[owner], key[owner]))]
    owner = taken(owner, first_equal(key[owner], key[rows]), -1)
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    called = np.where(on_device[rows], records["launch_ns"][rows], start[rows])
    thread = np.where(on_device[rows], records["launch_thread"][rows], records["thread"][rows])
    end = start[owner] + records["duration_ns"][owner]
    encloses = (start[owner] <= called) & (called <= end) & (thread == records["thread"][owner])
    plausible = (called == ABSENT) & (external[rows] != records["correlation_id"][rows])
    names = np.full(len(records), NO_TEXT, np.int32)
    proven = encloses | plausible
    names[rows[proven]] = records["name"][owner[proven]]
    return names


def read_file(path: Path, texts: Codes, python_functions: bool, maximum_bytes: int) -> TracePart:
    """Read one trace.

    Raises ProfileReadError if the file isn't a valid torch.profiler trace.
    """
    collected = EventColumns(texts, python_functions)
    with closing(ByteStream(path, maximum_bytes).chunks()) as chunks:
        trace = ChromeTrace(path, chunks)
        for events, text in trace.batches():
            collected.add(events, text)
    _refuse_other_tools(path, collected)
    part = _assembled(path, trace.metadata, collected)
    if trace.tolerated:
        part.warnings.append(
            f"{path.name}: parts of the file aren't strict JSON because of NaN, control characters,"
            " invalid UTF-8, or names that an old version of torch didn't escape"
            " (pytorch/pytorch#98432). Invalid numbers were dropped, unreadable characters were"
            " replaced, and such names were read literally."
        )
    return part


def _assembled(path: Path, metadata: dict[str, Any], collected: EventColumns) -> TracePart:
    records, by_category = collected.collected(), Counter(collected.by_category)
    # Names and categories are already strings. The other values, JSON lists, aren't needed yet.
    texts = [text if isinstance(text, str) else "" for text in collected.texts]
    base, rank = base_time(metadata, path), stated_rank(metadata)
    lost = +collected.lost
    refuse_damage(path, "events", lost, len(records) + lost.total())
    records.dropped += lost
    records["kind"] = refined(
        records["kind"], records["name"], texts, records["collective"] != NO_TEXT
    )
    without_damage(path, records, {UNFINISHED: records["unfinished"] == 1})
    records["start_ns"] = records["start_ns"] + base
    if rank is not None:
        records["rank"] = np.where(records["rank"] == ABSENT, rank, records["rank"])
    # Instant and metadata events have no category, so they aren't counted.
    total = by_category.total()
    del by_category[None]
    kept = {*collected.kinds, MEMORY_CATEGORY}
    records.not_kept = Counter({name: n for name, n in by_category.items() if name not in kept})
    launching = np.array([is_launching(text) for text in texts], bool)[records["source_category"]]
    calls = used_codes(records["name"][launching], len(texts)).tolist()
    dialect = back_end(metadata, by_category, [texts[code] for code in calls])
    repeated = link_trace(records, launching & (records["kind"] == KIND_CODE["runtime"]))
    warnings = left_out(path, collected.unknown)
    if not ON_DEVICE[records["kind"]].any():
        warnings += missing_gpu_warning(path, dialect)
    if repeated:
        warnings.append(
            f"{path.name}: {repeated:,} calls share a correlation ID with another call."
            " The launches of their device events are unknown."
            " Likely cause: the file contains traces of several processes. Next step: read the"
            " trace of each process separately."
        )
    if cut := cut_overlaps(path, records):
        warnings.append(cut)
    return TracePart(
        path,
        records,
        [*memory_tables(collected.memory, base), *watch_tables(metadata, rank)],
        facts(metadata, dialect),
        rank=None if len(records) else rank,
        total=total,
        by_category=by_category,
        warnings=warnings,
        base_ns=base,
        untraced=untraced(metadata),
    )


def _refuse_other_tools(path: Path, collected: EventColumns) -> None:
    if not collected.by_category:
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
