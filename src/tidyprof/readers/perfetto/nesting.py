"""Which host event of a Perfetto trace lies within which other one of its track."""

from __future__ import annotations

import numpy as np

from tidyprof.tables.codes import ABSENT
from tidyprof.tables.kinds import KIND_CODE, ON_DEVICE
from tidyprof.tables.records import Records


def add_nesting(slices: Records) -> None:
    """Add depth, parent and sample; only events on the host lie within each other, frames of samples among themselves.

    The innermost earlier event that encloses an event as a whole is its parent. Of two events with the same times
    the one that comes first encloses the other, if they last or are frames.
    """
    host = np.flatnonzero(~ON_DEVICE[slices["kind"]])
    is_frame = slices["kind"][host] == KIND_CODE["sample"]
    start = slices["start_ns"][host]
    end = start + slices["duration_ns"][host]
    group = 2 * slices["lane"][host] + is_frame
    # In this order an event comes after all that enclose it.
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


def _parents(group: np.ndarray, start: np.ndarray, end: np.ndarray, is_frame: np.ndarray) -> np.ndarray:
    """For each event, in order of group, start and falling end, the place of the one that encloses it, -1 for none."""
    parent = np.arange(len(start)) - 1
    unsettled = np.arange(1, len(start))
    while len(unsettled):
        tried = parent[unsettled]
        is_around = end[tried] >= end[unsettled]
        begins_before = (end[tried] > start[unsettled]) | (is_frame[unsettled] & (start[tried] == start[unsettled]))
        is_other = group[tried] != group[unsettled]
        parent[unsettled[is_other]] = -1
        unsettled = unsettled[~is_other & ~(is_around & begins_before)]
        # What does not enclose an event is passed by on its own way outwards.
        parent[unsettled] = parent[parent[unsettled]]
        unsettled = unsettled[parent[unsettled] >= 0]
    return parent


def _depths(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many events enclose each one, and the outermost of them (itself where there is none)."""
    depth, root = (parent >= 0).astype(np.int64), np.arange(len(parent))
    further = parent.copy()
    # Each round looks twice as far outwards as the last.
    while len(inner := np.flatnonzero(further >= 0)):
        outer = further[inner]
        depth[inner], root[inner] = depth[inner] + depth[outer], root[outer]
        further[inner] = further[outer]
    return depth, root
