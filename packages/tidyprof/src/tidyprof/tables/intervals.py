"""Sets of half-open time intervals [start, end) in int64 nanoseconds.

Every statement about overlap (busy, exposed, idle) uses a union, an intersection or a difference of
such sets. If durations were added instead, overlapping work would count twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of times, represented by sorted, non-empty intervals that neither overlap nor touch.

    - starts, ends: int64 arrays of equal length, in nanoseconds.

    Use `union` or `window` to create a set. The constructor doesn't check whether its input has
    this form.
    """

    starts: Times
    ends: Times

    @classmethod
    def union(cls, starts: ArrayLike, ends: ArrayLike) -> Intervals:
        """Return the set of times that any of the given intervals covers. The intervals may be in
        any order, and empty intervals are ignored.

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
        # An interval that starts after the latest end so far starts a new stretch.
        reach = np.maximum.accumulate(ends)
        first = np.concatenate(([True], starts[1:] > reach[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], reach[last])

    @classmethod
    def window(cls, start: int, end: int) -> Intervals:
        """Return the interval [start, end), or the empty set if end isn't after start."""
        return cls.union([start], [max(start, end)])

    @classmethod
    def empty(cls) -> Intervals:
        """Return the empty set."""
        return cls.union([], [])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length(self) -> int:
        """Total covered time in nanoseconds."""
        return int((self.ends - self.starts).sum())

    def contains(self, times: ArrayLike) -> NDArray[np.bool_]:
        """For each time in nanoseconds, return True if the time is in the set. The end of an
        interval isn't in the set.
        """
        times = np.asarray(times, dtype=np.int64)
        if not len(self):
            return np.zeros(times.shape, dtype=bool)
        index = np.searchsorted(self.starts, times, side="right") - 1
        return (index >= 0) & (times < self.ends[np.maximum(index, 0)])

    def covered_before(self, times: ArrayLike) -> Times:
        """Return how much of the time before each given time is covered, in nanoseconds."""
        times = np.asarray(times, dtype=np.int64)
        if not len(self):
            return np.zeros(times.shape, dtype=np.int64)
        lengths = self.ends - self.starts
        before = np.concatenate(([0], np.cumsum(lengths)))
        begun = np.searchsorted(self.starts, times, side="right")
        latest = np.maximum(begun - 1, 0)
        # The latest interval that starts before the time may end after it, so subtract that part.
        beyond = np.where(begun > 0, np.maximum(self.ends[latest] - times, 0), 0)
        return before[begun] - beyond

    def covered_within(self, starts: ArrayLike, ends: ArrayLike) -> Times:
        """Return how much of each window [start, end) is covered, in nanoseconds."""
        return self.covered_before(ends) - self.covered_before(starts)

    def clip(self, start: int, end: int) -> Intervals:
        """Return the part of the set inside [start, end)."""
        return self & Intervals.window(start, end)

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.union(
            np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends))
        )

    def __and__(self, other: Intervals) -> Intervals:
        cuts = self._cuts(other)
        return _from_mask(cuts, self.contains(cuts) & other.contains(cuts))

    def __sub__(self, other: Intervals) -> Intervals:
        cuts = self._cuts(other)
        return _from_mask(cuts, self.contains(cuts) & ~other.contains(cuts))

    def _cuts(self, other: Intervals) -> Times:
        """Return the sorted times at which an interval of either set starts or ends.

        Between two consecutive times, nothing changes.
        """
        return np.sort(np.concatenate((self.starts, self.ends, other.starts, other.ends)))


def _from_mask(cuts: Times, inside: NDArray[np.bool_]) -> Intervals:
    """Return the set of all segments [cuts[i], cuts[i + 1]) for which inside[i] is True. The value
    for the last cut is always False.
    """
    # Changes alternate, and the first one enters the set. Even changes therefore start an interval,
    # and odd changes end it.
    changes = np.flatnonzero(np.diff(inside, prepend=False))
    return Intervals(cuts[changes[::2]], cuts[changes[1::2]])
