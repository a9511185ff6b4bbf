"""Conversion of start and end events to nested slices, and of counter samples to a table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tidyprof.readers.perfetto.events import NO_VALUE, EventColumns
from tidyprof.readers.perfetto.sequences import LABELS, text
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, ON_DEVICE, Codes, mapped, nullable
from tidyprof.tables.records import Records


def add_nesting(slices: Records) -> None:
    """Add the columns depth, parent and sample. Only host events are nested, and the frames of
    samples are nested separately.

    An event's parent is the innermost earlier event that completely encloses it. If two events have
    the same start and end, the first event encloses the second. This applies only to frames and to
    events with a duration.
    """
    host = np.flatnonzero(~ON_DEVICE[slices["kind"]])
    is_frame = slices["kind"][host] == KIND_CODE["sample"]
    start = slices["start_ns"][host]
    end = start + slices["duration_ns"][host]
    group = 2 * slices["lane"][host] + is_frame
    # In this order, every event follows all events that enclose it.
    order = np.lexsort((-end, start, group))
    host, is_frame = host[order], is_frame[order]
    parent = _parents(group[order], start[order], end[order], is_frame)
    depth, root = _depths(parent)
    for name in ("depth", "parent", "sample"):
        slices[name] = np.full(len(slices), ABSENT)
    slices["depth"][host] = depth
    slices["parent"][host] = np.where(parent < 0, ABSENT, host[parent])
    outermost, number = np.unique(host[root[is_frame]], return_inverse=True)
    in_time = np.argsort(np.argsort(slices["start_ns"][outermost], kind="stable"))
    slices["sample"][host[is_frame]] = in_time[number]


def _parents(
    group: np.ndarray, start: np.ndarray, end: np.ndarray, is_frame: np.ndarray
) -> np.ndarray:
    """Return the row position of each event's parent, or -1 if it has no parent. The events must be
    sorted by group, start, and end in descending order.
    """
    parent = np.arange(len(start)) - 1
    unsettled = np.arange(1, len(start))
    while len(unsettled):
        tried = parent[unsettled]
        is_around = end[tried] >= end[unsettled]
        begins_before = (end[tried] > start[unsettled]) | (
            is_frame[unsettled] & (start[tried] == start[unsettled])
        )
        is_other = group[tried] != group[unsettled]
        parent[unsettled[is_other]] = -1
        unsettled = unsettled[~is_other & ~(is_around & begins_before)]
        # If the candidate doesn't enclose the event, try the candidate's parent next.
        parent[unsettled] = parent[parent[unsettled]]
        unsettled = unsettled[parent[unsettled] >= 0]
    return parent


def _depths(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of events that enclose each event. Also return each event's outermost
    enclosing event, which is the event itself if nothing encloses it.
    """
    depth, root = (parent >= 0).astype(np.int64), np.arange(len(parent))
    further = parent.copy()
    # Each round doubles the distance to the outer event.
    while len(inner := np.flatnonzero(further >= 0)):
        outer = further[inner]
        depth[inner], root[inner] = depth[inner] + depth[outer], root[outer]
        further[inner] = further[outer]
    return depth, root


NO_BEGIN = "whose begin is missing"

OPEN_PER_TRACK = 256
"""Maximum number of slices per track that can be cut off at the start or end of the trace. The
limit is about the depth of a call stack. If more slices are cut off, the file is damaged.
"""

_SHAPE = re.compile(r"\(?([0-9]+(?:, ?[0-9]+)*)\)?")


def slices_of(collected: EventColumns) -> Records:
    """Return all slices and instant events as `Records`, without the column `kind`. A slice without
    an end time gets the end time 0.

    In addition to event columns, the result contains these columns:

    - lane: track number
    - spoilt: 1 if the end time can't be used, otherwise 0
    - kernel_id: kernel number from the file
    - agent: code of the agent's label
    - source: code of the source's label
    - destination: code of the destination's label

    Events are processed in file order, and each end event closes the latest slice that its sequence
    started on the track. AMD's profilers write the start and end of a record together, so file
    order keeps overlapping kernels separate. Only the remaining end events are matched by time,
    because matching by time would mix up overlapping kernels.
    """
    start = np.frombuffer(collected.starts, np.int64)
    end = np.frombuffer(collected.ends, np.int64).copy()
    lane, name, category = np.frombuffer(collected.common, np.int64).reshape(-1, 3).T
    _match_strays(collected, lane, start, end)
    spoilt = np.zeros(len(start), np.int64)
    spoilt[collected.spoilt] = 1
    columns = {
        "start_ns": start,
        "duration_ns": np.where(end == ABSENT, 0, end) - start,
        "name": name.astype(np.int32),
        "source_category": category.astype(np.int32),
        "lane": lane,
        "spoilt": spoilt,
    }
    for column in {*LABELS, *collected.annotated}:
        row, value = np.frombuffer(collected.annotated[column], np.int64).reshape(-1, 2).T
        columns[column] = np.full(len(start), ABSENT)
        columns[column][row] = value
    for shape in ("grid", "block"):
        columns[shape] = _shapes(columns[shape], collected.texts)
    return Records(columns)


def _shapes(labels: np.ndarray, texts: Codes) -> np.ndarray:
    """Parse the shapes in these labels. A label `(256,1,1)` from rocprof-sys becomes `[256, 1, 1]`.
    rocprofv3 writes only the product, which becomes `[256]`.
    """
    known, codes = list(texts), {}
    for label in np.unique(labels[labels != ABSENT]).tolist():
        if found := _SHAPE.fullmatch(text(known[label])):
            codes[label] = texts[f"[{', '.join(found[1].replace(' ', '').split(','))}]"]
    return np.maximum(mapped(labels, codes), NO_TEXT).astype(np.int32)


def _match_strays(
    collected: EventColumns, lane: np.ndarray, start: np.ndarray, end: np.ndarray
) -> None:
    """Match end events with start events from a different sequence. Count the end events that
    remain.
    """
    strays = np.frombuffer(collected.strays, np.int64).reshape(-1, 3)
    if not len(strays):
        return
    open_rows = np.flatnonzero((end == ABSENT) & np.isin(lane, strays[:, 0]))
    # Sort begins and ends by time, and by file order at the same time.
    times = np.concatenate((start[open_rows], strays[:, 1]))
    order = np.lexsort((np.concatenate((2 * open_rows, strays[:, 2])), times))
    begun: dict[int, list[int]] = defaultdict(list)
    for number in order.tolist():
        if number < len(open_rows):
            row = int(open_rows[number])
            begun[int(lane[row])].append(row)
            continue
        track, time, _ = strays[number - len(open_rows)].tolist()
        if rows := begun[track]:
            end[rows.pop()] = time
        else:
            collected.dropped[NO_BEGIN] += 1


CLOSING_ZEROS = "zeros that close counters"


def counter_table(collected: EventColumns, places: Sequence[Place]) -> pd.DataFrame:
    """Return the columns time_ns, process, device, name, value and unit, sorted by track and time.

    Values that count multiples of a unit, such as 1024 bytes, are converted to that unit. The
    values of an incremental counter are summed. A counter has a device if its track's name
    identifies a device other than a CPU.
    """
    time, lane = np.frombuffer(collected.counters, np.int64).reshape(-1, 2).T
    value = np.frombuffer(collected.counter_values, np.float64).copy()
    # Sort first, because an incremental counter must be summed in time order.
    order = np.lexsort((time, lane))
    time, lane, value = time[order], lane[order], value[order]
    for code in np.unique(lane).tolist():
        value[lane == code] = _scaled(value[lane == code], places[code])
    of_track = {
        "process": [place.process for place in places],
        "device": [ABSENT if place.is_cpu else place.device for place in places],
    }
    stated = {
        "name": pd.Categorical([place.name for place in places]),
        "unit": pd.Categorical([place.unit for place in places]),
    }
    columns = {
        name: nullable(np.array(numbers, np.int64)[lane], "Int64")
        for name, numbers in of_track.items()
    }
    columns |= {"time_ns": time, "value": value} | {
        name: texts[lane] for name, texts in stated.items()
    }
    kept = np.isfinite(value)
    collected.dropped += Counter({NO_VALUE: int((~kept).sum())})
    closing = _closing_zeros(time, value, lane, places)
    kept[closing] = False
    collected.not_kept[CLOSING_ZEROS] += len(closing)
    return pd.DataFrame(columns)[kept]


def _scaled(value: np.ndarray, track: Place) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        value = value * float(track.multiplier)
        return np.cumsum(value) if track.is_incremental else value


def _closing_zeros(
    time: np.ndarray, value: np.ndarray, lane: np.ndarray, places: Sequence[Place]
) -> np.ndarray:
    """Return the final rows of rocprof-sys's CPU and process counters. These rows aren't
    measurements, because rocprof-sys sets all of these counters to 0 at the end of a run
    (source/lib/rocprof-sys/library/cpu_freq.cpp).

    If any of the counters doesn't end with such a row, the result is empty.
    """
    is_sampled = np.array(
        [place.name.startswith("CPU ") and place.name.endswith("(S)") for place in places], bool
    )
    rows = np.flatnonzero(is_sampled[lane]) if len(lane) else np.empty(0, np.int64)
    if not len(rows):
        return rows
    # The rows are sorted by track and time, so this selects the last row of each track.
    last = rows[np.append(lane[rows][1:] != lane[rows][:-1], True)]
    end = time[last].max()
    earlier = np.setdiff1d(rows, last)
    is_closing = (
        (value[last] == 0).all() and (time[last] == end).all() and (time[earlier] < end).all()
    )
    return last if is_closing and len(earlier) else rows[:0]
