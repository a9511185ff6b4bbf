"""Sets of half-open time intervals [start, end) in int64 nanoseconds.

Every statement about overlap (busy, exposed, idle) is a union, an intersection or a
difference of such sets; adding durations instead counts overlapping work twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        # How far the intervals so far reach: an interval that begins beyond that starts a new
        # stretch.
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
        index = np.searchsorted(self.starts, times, side="right") - 1
        return (index >= 0) & (times < self.ends[np.maximum(index, 0)])

    def covered_before(self, times: ArrayLike) -> Times:
        """For each time in ns how much of the set lies before it, in ns."""
        times = np.asarray(times, dtype=np.int64)
        if not len(self):
            return np.zeros(times.shape, dtype=np.int64)
        lengths = self.ends - self.starts
        before = np.concatenate(([0], np.cumsum(lengths)))
        begun = np.searchsorted(self.starts, times, side="right")
        latest = np.maximum(begun - 1, 0)
        # The latest interval that begins before the time may end after it: that part is taken off.
        beyond = np.where(begun > 0, np.maximum(self.ends[latest] - times, 0), 0)
        return before[begun] - beyond

    def covered_within(self, starts: ArrayLike, ends: ArrayLike) -> Times:
        """For each window [start, end) the covered time in it, in ns."""
        return self.covered_before(ends) - self.covered_before(starts)

    def clip(self, start: int, end: int) -> Intervals:
        """The part of the set inside [start, end)."""
        return self & Intervals.window(start, end)

    def __or__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return self if len(self) else other
        return Intervals.union(
            np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends))
        )

    def __and__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return Intervals.empty()
        cuts = self._cuts(other)
        return _from_mask(cuts, self.contains(cuts) & other.contains(cuts))

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return self
        cuts = self._cuts(other)
        return _from_mask(cuts, self.contains(cuts) & ~other.contains(cuts))

    def _cuts(self, other: Intervals) -> Times:
        """All times at which either set begins or ends, sorted: between two of them nothing
        changes.
        """
        return np.sort(np.concatenate((self.starts, self.ends, other.starts, other.ends)))


def _from_mask(cuts: Times, inside: NDArray[np.bool_]) -> Intervals:
    """The set of segments [cuts[i], cuts[i + 1]) for which inside[i] holds; the last cut is not
    inside.
    """
    # Changes alternate, beginning with one to inside: the even ones begin an interval, the odd ones
    # end it.
    changes = np.flatnonzero(np.diff(inside, prepend=False))
    return Intervals(cuts[changes[::2]], cuts[changes[1::2]])
