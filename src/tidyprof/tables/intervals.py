"""Sets of half-open time intervals [start, end) in int64 nanoseconds.

Every statement about overlap (busy, exposed, idle) is a union, an intersection or a
difference of such sets; adding durations instead counts overlapping work twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tidyprof.tables.codes import KIND_CODE, ON_DEVICE
from tidyprof.tables.contract import Profile, categorical_of

Times = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of time points as sorted, disjoint, non-empty intervals that do not touch.

    starts, ends -- int64 arrays of equal length, nanoseconds. Make one with `union` or
    `window`; the constructor trusts its input to be in this form.
    """

    starts: Times
    ends: Times

    @classmethod
    def union(cls, starts: ArrayLike, ends: ArrayLike) -> Intervals:
        """The set covered by any of the given intervals, in any order; empty ones add nothing.

        Raises ValueError if the lengths differ or an interval ends before it starts.
        """
        starts = np.asarray(starts, dtype=np.int64)
        ends = np.asarray(ends, dtype=np.int64)
        if starts.shape != ends.shape or starts.ndim != 1:
            raise ValueError("starts and ends must be one-dimensional and of equal length")
        if (ends < starts).any():
            raise ValueError("an interval ends before it starts")
        filled = ends > starts
        starts, ends = starts[filled], ends[filled]
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        if not len(starts):
            return cls(starts, ends)
        reach = np.maximum.accumulate(ends)
        first = np.concatenate(([True], starts[1:] > reach[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], reach[last])

    @classmethod
    def window(cls, start: int, end: int) -> Intervals:
        """The one interval [start, end); the empty set if end is not after start."""
        return cls.union([start], [max(start, end)])

    @classmethod
    def empty(cls) -> Intervals:
        """The set without any point."""
        return cls.union([], [])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length(self) -> int:
        """Covered time in ns."""
        return int((self.ends - self.starts).sum())

    def contains(self, times: ArrayLike) -> NDArray[np.bool_]:
        """For each time in ns whether it lies in the set; the end of an interval does not."""
        times = np.asarray(times, dtype=np.int64)
        if not len(self):
            return np.zeros(times.shape, dtype=bool)
        place = np.searchsorted(self.starts, times, side="right") - 1
        return (place >= 0) & (times < self.ends[np.maximum(place, 0)])

    def covered_before(self, times: ArrayLike) -> Times:
        """For each time in ns how much of the set lies before it, in ns."""
        times = np.asarray(times, dtype=np.int64)
        if not len(self):
            return np.zeros(times.shape, dtype=np.int64)
        lengths = self.ends - self.starts
        before = np.concatenate(([0], np.cumsum(lengths)))
        place = np.searchsorted(self.starts, times, side="right")
        inside = np.maximum(place - 1, 0)
        beyond = np.where(place > 0, np.maximum(self.ends[inside] - times, 0), 0)
        return before[place] - beyond

    def covered_within(self, starts: ArrayLike, ends: ArrayLike) -> Times:
        """For each window [start, end) the covered time in it, in ns."""
        return self.covered_before(ends) - self.covered_before(starts)

    def clip(self, start: int, end: int) -> Intervals:
        """The part of the set inside [start, end)."""
        return self & Intervals.window(start, end)

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.union(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    def __and__(self, other: Intervals) -> Intervals:
        cuts = self._cuts(other)
        return _from_mask(cuts, self.contains(cuts) & other.contains(cuts))

    def __sub__(self, other: Intervals) -> Intervals:
        cuts = self._cuts(other)
        return _from_mask(cuts, self.contains(cuts) & ~other.contains(cuts))

    def _cuts(self, other: Intervals) -> Times:
        """All times at which either set begins or ends, sorted: between two of them nothing changes."""
        return np.sort(np.concatenate((self.starts, self.ends, other.starts, other.ends)))


def _from_mask(cuts: Times, inside: NDArray[np.bool_]) -> Intervals:
    """The set of segments [cuts[i], cuts[i + 1]) for which inside[i] holds; the last cut is not inside."""
    changes = np.flatnonzero(np.diff(inside, prepend=False))
    return Intervals(cuts[changes[::2]], cuts[changes[1::2]])


def union_length(starts: ArrayLike, ends: ArrayLike) -> int:
    """Time in ns covered by at least one of the intervals."""
    return Intervals.union(starts, ends).length


@dataclass(frozen=True)
class Extent:
    """What one file or process adds to what is asked of all of them; times in ns, from the first start to the last end.

    ranks   -- of its events; None stands for one that is not known.
    span    -- of all its events, (0, 0) without any; device -- of those on a device, None without any.
    kernels -- how many it has; instant -- those without a duration.
    """

    ranks: frozenset[int | None]
    span: tuple[int, int]
    device: tuple[int, int] | None
    kernels: int
    instant: int


def extent_of(ranks: Iterable[int | None], kind: np.ndarray, start_ns: np.ndarray, duration_ns: np.ndarray) -> Extent:
    """The extent of events with these kinds (places in KINDS) and times."""
    is_kernel = (kind == KIND_CODE["kernel"]) | (kind == KIND_CODE["collective"])
    on_device, end = ON_DEVICE[kind], start_ns + duration_ns
    return Extent(
        frozenset(ranks),
        _span(start_ns, end) if len(start_ns) else (0, 0),
        _span(start_ns[on_device], end[on_device]) if on_device.any() else None,
        int(is_kernel.sum()),
        int((duration_ns[is_kernel] == 0).sum()),
    )


def _span(start: np.ndarray, end: np.ndarray) -> tuple[int, int]:
    return int(start.min()), int(end.max())


def extent_of_profile(profile: Profile) -> Extent:
    """The extent of a profile that is one part of a run."""
    events = profile.events
    ranks = [None if pd.isna(rank) else int(rank) for rank in events["rank"].unique()] or [profile.meta.get("rank")]
    start, duration = (events[column].to_numpy(np.int64) for column in ("start_ns", "duration_ns"))
    return extent_of(ranks, categorical_of(events["kind"]).codes, start, duration)


def suspicions(extents: Iterable[Extent]) -> list[str]:
    """What makes otherwise sound events doubtful, whatever the format."""
    found, kernels, instant, spans = [], 0, 0, {}
    for extent in extents:
        kernels, instant = kernels + extent.kernels, instant + extent.instant
        if extent.device:
            # Files of one rank may follow each other.
            own = extent.ranks - {None} or len(spans)
            first, last = spans.get(own, extent.device)
            spans[own] = (min(first, extent.device[0]), max(last, extent.device[1]))
    if instant:
        found.append(f"{instant} of {kernels} kernels last 0 ns: their times were not recorded.")
    in_order = sorted(spans.values())
    ends = np.maximum.accumulate([end for _, end in in_order])
    if any(start >= end for (start, _), end in zip(in_order[1:], ends, strict=False)):
        found.append(
            "not all processes overlap in time: they are separate runs, or of nodes whose clocks differ "
            "(times count from the start of each node)."
        )
    return found
