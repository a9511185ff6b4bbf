"""What runs inside what on a thread: calls, and what encloses an interval."""

from __future__ import annotations

import numpy as np
import pandas as pd

_Threads = tuple[np.ndarray, np.ndarray]


def callers(start: np.ndarray, end: np.ndarray, thread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An order of calls by thread and start, outer before inner, and in this order the place of each one's caller.

    start, end -- in ns; thread -- a number for each thread. The caller, -1 for none, is the innermost call that was
    running on the thread when this one began; of two with the same times the first is the outer one.
    """
    order = np.lexsort((-end, start, thread))
    start, end, thread = start[order], end[order], thread[order]
    caller = np.arange(len(order)) - 1
    caller[np.append(True, thread[1:] != thread[:-1])[: len(order)]] = -1
    # What has ended is passed by on its own way outwards, so the steps double.
    while (wrong := np.flatnonzero((caller >= 0) & (end[caller] <= start))).size:
        caller[wrong] = caller[caller[wrong]]
    return order, caller


def innermost(
    outer: tuple[np.ndarray, np.ndarray],
    outer_threads: _Threads,
    inner: tuple[np.ndarray, np.ndarray],
    inner_threads: _Threads,
) -> np.ndarray:
    """For each inner interval the row of the shortest outer one of the same thread around it, -1 for none.

    outer, inner -- starts and ends in ns; threads -- process and thread of each.
    The outer intervals of a thread are nested, as calls are. An interval may enclose an equal one.
    """
    found = np.full(len(inner[0]), -1, np.int64)
    inner_rows = _rows_of_threads(inner_threads)
    for thread, rows in _rows_of_threads(outer_threads).items():
        asked = inner_rows.get(thread, np.empty(0, np.int64))
        start, end = outer[0][rows], outer[1][rows]
        order, caller = callers(start, end, np.zeros(len(rows)))
        start, end = start[order], end[order]
        place = np.searchsorted(start, inner[0][asked], side="right") - 1
        while (wrong := np.flatnonzero((place >= 0) & (end[place] < inner[1][asked]))).size:
            place[wrong] = caller[place[wrong]]
        found[asked] = np.where(place >= 0, rows[order[place]], -1)
    return found


def _rows_of_threads(threads: _Threads) -> dict[tuple[int, int], np.ndarray]:
    return pd.DataFrame(dict(enumerate(threads))).groupby([0, 1], sort=False).indices
