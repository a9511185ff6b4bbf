"""One file of torch.profiler as columns, with what the file says about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.io.byte_stream import ByteStream
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.torch.chrome_json import ChromeTrace
from tidyprof.readers.torch.events import (
    ABSENT,
    MEMORY_CATEGORY,
    UNFINISHED,
    WINDOW_CATEGORY,
    CodeTables,
    Event,
    EventColumns,
    decode_events,
    nanoseconds,
)
from tidyprof.readers.torch.links import link
from tidyprof.readers.torch.meta import back_end, base_time, facts, missing_gpu_warning, stated_rank
from tidyprof.tables.damage import refuse_damage
from tidyprof.tables.kind_codes import ON_DEVICE, is_launching, kind_of_category, refined


@dataclass
class TraceFile:
    """What one file holds.

    columns  -- as EventColumns describes them, with absolute starts, links and ranks.
    facts    -- entries of `Profile.meta` about tool and machine.
    ranks    -- the ranks of its events; None stands for one that the file does not state.
    window   -- start and end of the profiler's span in ns since 1970, None if not stated.
    dropped  -- reason -> events left out.
    launches -- device events without a launch record, and repeated launch records.
    """

    path: Path
    columns: dict[str, np.ndarray]
    facts: dict[str, Any]
    ranks: list[int | None]
    base_ns: int
    window: tuple[int, int] | None
    total: int
    by_category: Counter[str]
    not_kept: Counter[str]
    dropped: Counter[str]
    memory: list[Event]
    unlaunched: int
    shared_launches: int
    warnings: list[str] = field(default_factory=list)


def read_file(
    path: Path, tables: CodeTables, python_functions: bool, maximum_bytes: int, advance: Callable[[int], Any]
) -> TraceFile:
    """Read one trace; `advance` is told how many bytes of the file were consumed since its last call.

    Raises ProfileReadError where the file is no sound trace of torch.profiler.
    """
    trace, collected = _decoded(path, tables, python_functions, maximum_bytes, advance)
    _refuse_other_tools(path, collected)
    damage = Counter({reason: count for reason, count in collected.dropped.items() if reason != UNFINISHED})
    refuse_damage(
        path,
        "events",
        damage,
        collected.kept + damage.total(),
        "the profiler lost times, or was stopped within a step",
        "record again with a warm-up step and the profiler stopped between steps",
    )
    file = _assembled(path, trace.metadata, collected)
    if trace.tolerated:
        file.warnings.append(
            f"{path.name}: parts of the file are no strict JSON (NaN, control characters or broken UTF-8); "
            "numbers that are none were dropped, unreadable characters replaced."
        )
    return file


def _decoded(
    path: Path, tables: CodeTables, python_functions: bool, maximum_bytes: int, advance: Callable[[int], Any]
) -> tuple[ChromeTrace, EventColumns]:
    """The file's events as columns."""
    stream = ByteStream(path, maximum_bytes)
    collected = EventColumns(tables, python_functions)
    reported = 0
    with stream.chunks() as chunks:
        trace = ChromeTrace(path, chunks, decode_events)
        for events, text in trace.batches():
            collected.add(events, text)
            advance(stream.position - reported)
            reported = stream.position
    return trace, collected


def _assembled(path: Path, metadata: dict[str, Any], collected: EventColumns) -> TraceFile:
    tables = collected.tables
    columns = collected.collected()
    base = base_time(metadata, path)
    columns["kind"] = refined(
        columns["kind"], columns["name"], tables.names, columns["collective"] != tables.collectives[None]
    )
    links = link(columns, tables)
    columns["start"] += base
    columns["launch"][columns["launch"] != ABSENT] += base
    dialect = back_end(metadata, collected.by_category, _call_names(columns, tables))
    warning = None if ON_DEVICE[columns["kind"]].any() else missing_gpu_warning(path, dialect)
    return TraceFile(
        path=path,
        columns=columns,
        facts=facts(metadata, dialect),
        ranks=_settle_ranks(columns, stated_rank(metadata, path)),
        base_ns=base,
        window=_window(collected.windows, base),
        total=collected.total,
        by_category=Counter({category: n for category, n in collected.by_category.items() if category}),
        not_kept=_not_kept(collected),
        dropped=collected.dropped,
        memory=collected.memory,
        unlaunched=links.unlaunched,
        shared_launches=links.shared,
        warnings=[warning] if warning else [],
    )


def _refuse_other_tools(path: Path, collected: EventColumns) -> None:
    if not collected.total:
        raise ProfileReadError(
            path,
            "an empty event list",
            "the profiler's schedule never reached a recording step",
            "run more steps than skip_first + wait + warmup + active",
        )
    known = (
        kind_of_category(category) or category in (MEMORY_CATEGORY, WINDOW_CATEGORY)
        for category in collected.by_category
    )
    if not any(known):
        present = ", ".join(repr(category) for category in list(collected.by_category)[:5])
        raise ProfileReadError(
            path,
            f"a Chrome trace without events of torch.profiler (categories: {present})",
            "another tool wrote it",
            "use that tool's reader, or pass the file of export_chrome_trace",
        )


def _call_names(columns: dict[str, np.ndarray], tables: CodeTables) -> list[str]:
    """Distinct names of runtime and driver calls."""
    launching = np.array([is_launching(category) for category in tables.categories], bool)
    if not launching.any():
        return []
    names = list(tables.names)
    return [names[code] for code in np.unique(columns["name"][launching[columns["category"]]]).tolist()]


def _settle_ranks(columns: dict[str, np.ndarray], stated: int | None) -> list[int | None]:
    """Give events without a rank of their own the rank of the file; returns the ranks found."""
    own = columns["rank"]
    if stated is not None:
        own[own == ABSENT] = stated
    found = np.unique(own).tolist() if len(own) else [ABSENT if stated is None else stated]
    return [None if rank == ABSENT else rank for rank in found]


def _window(windows: list[tuple[float, float]], base: int) -> tuple[int, int] | None:
    if not windows:
        return None
    start, end = zip(*windows, strict=True)
    times = nanoseconds(np.array([min(start), max(end)]))
    return base + int(times[0]), base + int(times[1])


def _not_kept(collected: EventColumns) -> Counter[str]:
    """Events by category that have no row of their own, instant and metadata events without category excepted."""
    return Counter(
        {
            category: count
            for category, count in collected.by_category.items()
            if category and category not in collected.categories_kept
        }
    )
