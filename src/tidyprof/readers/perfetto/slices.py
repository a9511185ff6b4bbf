"""Slices made of begins and ends."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tidyprof.readers.perfetto.events import EventColumns
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.damage import UNFINISHED

NO_BEGIN = "whose begin is missing"

_IDENTIFIERS = ("correlation", "launch_thread", "stream", "queue", "kernel_id")
_ALWAYS = (*_IDENTIFIERS, "agent", "source", "destination", "block", "grid")
"""Columns of annotations that are there even if no event has one."""

OPEN_PER_TRACK = 256
"""Slices of one track that a recording can cut off at its start or end: about the depth of a call stack.
More of them are damage."""


def settled(collected: EventColumns) -> dict[str, np.ndarray]:
    """Columns of the slices that have a begin and an end: row (the number in `collected`), start, duration, track,
    name, category, and those of annotations. All are int64, ABSENT where the file does not say.

    What cannot be used is counted in `collected.dropped`. Each sequence's ends close its own latest begin on the
    track, in the order of the file: AMD's profilers write begin and end of a record one after the other, so that
    overlapping kernels stay apart, which they do not when ends close the latest begin in order of time. Only what
    is left over is matched by time.
    """
    start = np.frombuffer(collected.starts, np.int64)
    end = np.frombuffer(collected.ends, np.int64).copy()
    track, name, category = np.frombuffer(collected.common, np.int64).reshape(-1, 3).T
    columns = {"track": track, "name": name, "category": category}
    _match_strays(collected, columns["track"], start, end)
    unfinished = int((end == ABSENT).sum()) - len(collected.spoilt)
    if unfinished:
        collected.dropped[UNFINISHED] += unfinished
    for column in {*_ALWAYS, *collected.annotated}:
        row, value = np.frombuffer(collected.annotated[column], np.int64).reshape(-1, 2).T
        columns[column] = np.full(len(start), ABSENT)
        columns[column][row] = value
    columns |= {"row": np.arange(len(start)), "start": start, "duration": end - start}
    return {name: values[end != ABSENT] for name, values in columns.items()}


def _match_strays(collected: EventColumns, track: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
    """Fill in ends that another sequence than the begin's wrote; count those that are left."""
    strays = np.frombuffer(collected.strays, np.int64).reshape(-1, 3)
    if not len(strays):
        return
    is_open = (end == ABSENT) & np.isin(track, strays[:, 0])
    is_open[collected.spoilt] = False
    open_rows = np.flatnonzero(is_open)
    # Begins and ends in order of time, those of one time in the order of the file.
    times = np.concatenate((start[open_rows], strays[:, 1]))
    order = np.lexsort((np.concatenate((2 * open_rows, strays[:, 2])), times))
    begun: dict[int, list[int]] = defaultdict(list)
    unmatched = 0
    for place in order.tolist():
        if place < len(open_rows):
            row = int(open_rows[place])
            begun[int(track[row])].append(row)
            continue
        stray = strays[place - len(open_rows)]
        rows = begun[int(stray[0])]
        if rows:
            end[rows.pop()] = stray[1]
        else:
            unmatched += 1
    if unmatched:
        collected.dropped[NO_BEGIN] += unmatched


def cut_off(collected: EventColumns) -> int:
    """Slices without an end, and ends without a begin, beyond what the edges of a recording explain."""
    tracks = max(1, len(collected.tracks.codes))
    lost = collected.dropped[UNFINISHED] + collected.dropped[NO_BEGIN]
    return max(0, lost - OPEN_PER_TRACK * tracks)
