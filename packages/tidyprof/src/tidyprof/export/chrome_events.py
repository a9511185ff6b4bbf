"""Events, counter samples and flows as lines of a Chrome trace. The lines are grouped into chunks
of limited size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.export.chrome_tracks import Tracks, plain
from tidyprof.readers.torch.events import kind_of_category
from tidyprof.tables.codes import KIND_CODE, refined
from tidyprof.tables.launches import launching_calls

LINES_AT_ONCE = 50_000
"""Number of lines per chunk."""

CATEGORY_OF_KIND = {
    "kernel": "kernel",
    "copy": "gpu_memcpy",
    "fill": "gpu_memset",
    "collective": "collective_comm",
    "runtime": "cuda_runtime",
    "operator": "cpu_op",
    "annotation": "user_annotation",
    "sample": "sample",
}
"""The category of each kind for events without a torch.profiler category. torch.profiler also uses
`cuda_runtime` for HIP calls.
"""

_ARGUMENTS = (
    ("external_id", "External id", str),
    ("device", "device", str),
    ("stream", "stream", str),
    ("correlation_id", "correlation", str),
    ("collective", "Collective name", json.dumps),
    ("group_size", "Group size", str),
    ("bytes", "bytes", str),
    ("grid", "grid", lambda value: _list(value)),
    ("block", "block", lambda value: _list(value)),
    ("input_shapes", "Input Dims", lambda value: _list(value)),
    ("input_types", "Input type", lambda value: _list(value)),
)


def event_lines(events: pd.DataFrame, tracks: Tracks, base_ns: int) -> Iterator[list[str]]:
    """Yield every event as a complete event (phase X), sorted by time.

    If two events start at the same time, the outer event comes first.
    """
    start = events["start_ns"].to_numpy(np.int64)
    duration = events["duration_ns"].to_numpy(np.int64)
    order = np.lexsort((-duration, start))
    events = events.assign(correlation_id=_distinct_ids(events))
    names = events["name"].astype("category").cat
    # The last text is for code -1, a missing name.
    texts = np.array([json.dumps(str(name)) for name in [*names.categories, ""]], object)
    columns = (
        _categories(events),
        texts[names.codes],
        tracks.events["pid"].to_numpy(),
        tracks.events["tid"].to_numpy(),
        start - base_ns,
        duration,
    )
    for first in range(0, len(order), LINES_AT_ONCE):
        rows = order[first : first + LINES_AT_ONCE]
        arguments = _arguments(events.iloc[rows], tracks, rows)
        values = [column[rows].tolist() for column in columns]
        yield [
            f'{{"ph":"X","cat":"{category}","name":{name},"pid":{pid},"tid":{tid},'
            f'"ts":{_microseconds(begin)},"dur":{_microseconds(length)},"args":{{{members[1:]}}}}}'
            for category, name, pid, tid, begin, length, members in zip(
                *values, arguments, strict=True
            )
        ]


def counter_lines(counters: pd.DataFrame, tracks: Tracks, base_ns: int) -> Iterator[list[str]]:
    """Yield every sample as a counter event (phase C).

    NaN and infinity are left out because JSON doesn't support them.
    """
    pid_of = cache(tracks.counter_pid)
    for first in range(0, len(counters), LINES_AT_ONCE):
        lines = []
        for row in counters.iloc[first : first + LINES_AT_ONCE].itertuples():
            pid = pid_of(None if pd.isna(row.device) else int(row.device))
            if math.isfinite(row.value):
                value = json.dumps({"value" if pd.isna(row.unit) else str(row.unit): row.value})
                lines.append(
                    f'{{"ph":"C","cat":"counter","name":{json.dumps(str(row.name))},"pid":{pid},'
                    f'"tid":0,"ts":{_microseconds(row.time_ns - base_ns)},"args":{value}}}'
                )
        yield lines


def flow_lines(events: pd.DataFrame, tracks: Tracks, base_ns: int) -> Iterator[list[str]]:
    """Yield two flow events (phases s and f) for each device event whose launching call is among
    the events.
    """
    launched, call = launching_calls(events)
    start = events["start_ns"].to_numpy(np.int64) - base_ns
    places = tracks.events["pid"].to_numpy(), tracks.events["tid"].to_numpy()
    half = LINES_AT_ONCE // 2
    for first in range(0, len(call), half):
        lines = []
        for number in range(first, min(first + half, len(call))):
            for phase, row in (('"s"', call[number]), ('"f","bp":"e"', launched[number])):
                pid, tid = (column[row] for column in places)
                lines.append(
                    f'{{"ph":{phase},"cat":"ac2g","name":"ac2g","id":{number + 1},"pid":{pid},'
                    f'"tid":{tid},"ts":{_microseconds(int(start[row]))}}}'
                )
        yield lines


def _distinct_ids(events: pd.DataFrame) -> pd.Series:
    """Return the correlation ids. If processes of one rank use the same ids, return new ids.

    A trace doesn't state which process an id belongs to, so a reader couldn't distinguish equal
    ids.
    """
    ids = events["correlation_id"]
    if (events.groupby("rank", dropna=False)["process"].nunique() < 2).all():
        return ids
    used = events[["rank", "correlation_id", "process"]][ids.notna()]
    first = used.groupby(["rank", "correlation_id"], dropna=False)["process"].transform("min")
    shared = used[(used["process"] != first).fillna(False).astype(bool)]
    distinct = ids.copy()
    distinct[shared.index] = (
        ids.max() + 1 + shared.groupby(list(shared), dropna=False).ngroup().astype("Int64")
    )
    return distinct


def _categories(events: pd.DataFrame) -> np.ndarray:
    """Return each event's original category if torch.profiler has this category. Otherwise, return
    a category for the event's kind.
    """
    kinds = events["kind"].astype(str)
    names = events["name"].astype("category").cat
    # A collective is written as a kernel if a reader recognizes it by its name.
    as_kernels = np.full(len(names.categories), KIND_CODE["kernel"], np.int8)
    codes, no_collective = np.arange(len(as_kernels)), np.zeros(len(as_kernels), bool)
    found = refined(as_kernels, codes, names.categories.astype(str), no_collective)
    is_named = np.append(found == KIND_CODE["collective"], False)[names.codes]
    categories = kinds.map(CATEGORY_OF_KIND).to_numpy(object)
    categories[(kinds == "collective") & is_named] = "kernel"
    on_device = events["device"].notna().to_numpy()
    categories[(kinds == "annotation") & on_device] = "gpu_user_annotation"
    if "source_category" in events.columns:
        stated = events["source_category"].astype("category").cat
        texts = [*stated.categories, ""]
        readable = np.array([kind_of_category(name) is not None for name in texts])[stated.codes]
        categories[readable] = np.array(texts, object)[stated.codes][readable]
    return categories


def _arguments(events: pd.DataFrame, tracks: Tracks, rows: np.ndarray) -> list[str]:
    """Return the members of each event's `args` as JSON that starts with a comma.

    - rows: the positions of the events.
    """
    members = [
        _members(name, plain(events[column]), text)
        for column, name, text in _ARGUMENTS
        if column in events.columns
    ]
    if tracks.states_rank:
        members.append(_members("rank", plain(events["rank"]), str))
        members.append(_members("pid_raw", tracks.events["pid_raw"].to_numpy()[rows], str))
    return ["".join(parts) for parts in zip(*members, strict=True)]


def _members(name: str, values: Iterable[Any], text: Callable[[Any], str]) -> list[str]:
    key = f',"{name}":'
    return ["" if value is None or value != value else f"{key}{text(value)}" for value in values]


def _list(text: str) -> str:
    """Convert the string representation of a list to JSON. The result is a list if the string is
    valid JSON, and otherwise a string.
    """
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return json.dumps(text)


def _microseconds(nanoseconds: int) -> str:
    """Convert integer nanoseconds to microseconds with three decimal places."""
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{sign}{whole}.{rest:03d}"
