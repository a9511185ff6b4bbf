"""Which interval of a thread encloses another one most closely."""

from __future__ import annotations

import numpy as np
import pandas as pd

_Threads = tuple[np.ndarray, np.ndarray]


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
        order = np.lexsort((-end, start))
        start, end = start[order], end[order]
        place = _enclosing(start, end, inner[0][asked], inner[1][asked])
        found[asked] = np.where(place >= 0, rows[order[place]], -1)
    return found


def _rows_of_threads(threads: _Threads) -> dict[tuple[int, int], np.ndarray]:
    return pd.DataFrame(dict(enumerate(threads))).groupby([0, 1], sort=False).indices


def _enclosing(start: np.ndarray, end: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Positions in intervals sorted by start, outer before inner, of the innermost one around [first, last]."""
    parent = np.arange(len(start)) - 1
    # What ends too early is passed by on its own way outwards, so the steps double.
    while (wrong := np.flatnonzero((parent >= 0) & (end[parent] < end))).size:
        parent[wrong] = parent[parent[wrong]]
    place = np.searchsorted(start, first, side="right") - 1
    while (wrong := np.flatnonzero((place >= 0) & (end[place] < last))).size:
        place[wrong] = parent[place[wrong]]
    return place
