"""Events, counter samples and flows as lines of a Chrome trace. The lines are grouped into chunks
of limited size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.export.chrome_tracks import Tracks
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
    categories = _categories(events)
    names = events["name"].astype("category").cat
    codes = names.codes.to_numpy()
    # The last text is for code -1, a missing name.
    texts = [json.dumps(str(name)) for name in [*names.categories, ""]]
    pids, tids, moved = tracks.pid_texts(), tracks.tid_texts(), tracks.true_numbers()
    for first in range(0, len(order), LINES_AT_ONCE):
        rows = order[first : first + LINES_AT_ONCE]
        arguments = _arguments(events.iloc[rows], moved[rows], tracks.states_rank)
        columns = (categories[rows], codes[rows].tolist(), pids[rows], tids[rows])
        times = ((start[rows] - base_ns).tolist(), duration[rows].tolist())
        yield [
            f'{{"ph":"X","cat":"{category}","name":{texts[code]},"pid":{pid},"tid":{tid},'
            f'"ts":{_microseconds(begin)},"dur":{_microseconds(length)},"args":{{{members[1:]}}}}}'
            for category, code, pid, tid, begin, length, members in zip(
                *columns, *times, arguments, strict=True
            )
        ]


def counter_lines(counters: pd.DataFrame, tracks: Tracks, base_ns: int) -> Iterator[list[str]]:
    """Yield every sample as a counter event (phase C).

    NaN and infinity are left out because JSON doesn't support them.
    """
    pids: dict[int | None, str] = {}
    for first in range(0, len(counters), LINES_AT_ONCE):
        lines = []
        for row in counters.iloc[first : first + LINES_AT_ONCE].itertuples():
            device = None if pd.isna(row.device) else int(row.device)
            if device not in pids:
                pids[device] = tracks.counter_pid(device)
            if math.isfinite(row.value):
                value = json.dumps({"value" if pd.isna(row.unit) else str(row.unit): row.value})
                name = json.dumps(str(row.name))
                lines.append(
                    f'{{"ph":"C","cat":"counter","name":{name},"pid":{pids[device]},"tid":0,'
                    f'"ts":{_microseconds(row.time_ns - base_ns)},"args":{value}}}'
                )
        yield lines


def flow_lines(events: pd.DataFrame, tracks: Tracks, base_ns: int) -> Iterator[list[str]]:
    """Yield two flow events (phases s and f) for each device event whose launching call is among
    the events.
    """
    launched, call = launching_calls(events)
    start = events["start_ns"].to_numpy(np.int64) - base_ns
    pids, tids = tracks.pid_texts(), tracks.tid_texts()
    half = LINES_AT_ONCE // 2
    for first in range(0, len(call), half):
        lines = []
        for number in range(first, min(first + half, len(call))):
            for phase, row in (('"s"', call[number]), ('"f","bp":"e"', launched[number])):
                lines.append(
                    f'{{"ph":{phase},"cat":"ac2g","name":"ac2g","id":{number + 1},'
                    f'"pid":{pids[row]},"tid":{tids[row]},'
                    f'"ts":{_microseconds(int(start[row]))}}}'
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
    kinds = events["kind"].astype(str).to_numpy(object)
    categories = np.array([CATEGORY_OF_KIND[kind] for kind in kinds], dtype=object)
    categories[(kinds == "collective") & _is_named_collective(events)] = "kernel"
    categories[(kinds == "annotation") & events["device"].notna().to_numpy()] = (
        "gpu_user_annotation"
    )
    if "source_category" in events.columns:
        stated = events["source_category"].astype("category").cat
        readable = np.array(
            [kind_of_category(name) is not None for name in [*stated.categories, ""]]
        )
        texts = np.array([*stated.categories, ""], dtype=object)
        chosen = readable[stated.codes]
        categories[chosen] = texts[stated.codes][chosen]
    return categories


def _is_named_collective(events: pd.DataFrame) -> np.ndarray:
    """Return a mask of the events whose name would make a reader classify them as collectives if
    they were kernels.
    """
    names = events["name"].astype("category").cat
    count = len(names.categories)
    as_kernel = np.full(count, KIND_CODE["kernel"], np.int8)
    found = refined(
        as_kernel, np.arange(count), names.categories.astype(str), np.zeros(count, bool)
    )
    return np.append(found == KIND_CODE["collective"], False)[names.codes]


def _arguments(events: pd.DataFrame, moved: np.ndarray, states_rank: bool) -> list[str]:
    """Return the members of each event's `args` as JSON that starts with a comma."""
    members = [
        _members(name, events[column].to_numpy(dtype=object, na_value=None), text)
        for column, name, text in _ARGUMENTS
        if column in events.columns
    ]
    if states_rank:
        members.append(_members("rank", events["rank"].to_numpy(dtype=object, na_value=None), str))
        members.append(_members("pid_raw", moved, str))
    return ["".join(parts) for parts in zip(*members, strict=True)]


def _members(name: str, values: Any, text: Callable[[Any], str]) -> list[str]:
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
