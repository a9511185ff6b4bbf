"""Slices made of begins and ends."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from tidyprof.readers.perfetto.annotations import LABELS
from tidyprof.readers.perfetto.events import EventColumns
from tidyprof.readers.perfetto.texts import text
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, mapped
from tidyprof.tables.records import Records

NO_BEGIN = "whose begin is missing"

OPEN_PER_TRACK = 256
"""Slices of one track that a recording can cut off at its start or end: about the depth of a call stack.
More of them are damage."""

_SHAPE = re.compile(r"\(?([0-9]+(?:, ?[0-9]+)*)\)?")


def slices_of(collected: EventColumns) -> Records:
    """Everything that begins, as columns of `Records` that still lack the kind; one without an end ends at 0.

    Beside columns of the event table there are lane (number of the track), spoilt (1 where the end is unusable),
    kernel_id, and agent, source and destination (codes of labels).
    Each sequence's ends close its own latest begin on the track, in the order of the file: AMD's profilers write begin
    and end of a record one after the other, so that overlapping kernels stay apart, which they do not when ends close
    the latest begin in order of time. Only what is left over is matched by time.
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
    return Records(columns, objects=_asked_for(collected))


def _asked_for(collected: EventColumns) -> dict[str, np.ndarray]:
    found = {name: np.full(len(collected.starts), None) for name in collected.extras}
    for name, values in collected.extras.items():
        for row, value in values:
            found[name][row] = value
    return found


def _shapes(labels: np.ndarray, texts: Codes) -> np.ndarray:
    """`[256, 1, 1]` of rocprof-sys's `(256,1,1)`; `[256]` of the product, which is all that rocprofv3 writes."""
    known, codes = list(texts), {}
    for label in np.unique(labels[labels != ABSENT]).tolist():
        if found := _SHAPE.fullmatch(text(known[label])):
            codes[label] = texts[f"[{', '.join(found[1].replace(' ', '').split(','))}]"]
    return np.maximum(mapped(labels, codes), NO_TEXT).astype(np.int32)


def _match_strays(collected: EventColumns, lane: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
    """Fill in ends that another sequence than the begin's wrote; count those that are left."""
    strays = np.frombuffer(collected.strays, np.int64).reshape(-1, 3)
    if not len(strays):
        return
    open_rows = np.flatnonzero((end == ABSENT) & np.isin(lane, strays[:, 0]))
    # Begins and ends in order of time, those of one time in the order of the file.
    times = np.concatenate((start[open_rows], strays[:, 1]))
    order = np.lexsort((np.concatenate((2 * open_rows, strays[:, 2])), times))
    begun: dict[int, list[int]] = defaultdict(list)
    for place in order.tolist():
        if place < len(open_rows):
            row = int(open_rows[place])
            begun[int(lane[row])].append(row)
            continue
        stray = strays[place - len(open_rows)]
        if rows := begun[int(stray[0])]:
            end[rows.pop()] = stray[1]
        else:
            collected.dropped[NO_BEGIN] += 1
