"""Interval sets against a bitmap: one boolean per nanosecond of a short time line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidyprof.tables.intervals import Intervals

LENGTH = 60
PAIRS = st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).map(sorted), max_size=12)


def bitmap(pairs):
    line = np.zeros(LENGTH, dtype=bool)
    for start, end in pairs:
        line[start:end] = True
    return line


def intervals(pairs):
    return Intervals.union([start for start, _ in pairs], [end for _, end in pairs])


def as_bitmap(found):
    return bitmap(zip(found.starts, found.ends, strict=True))


@settings(deadline=None)
@given(PAIRS)
def test_union_covers_the_same_points_in_normal_form(pairs):
    found = intervals(pairs)
    assert (as_bitmap(found) == bitmap(pairs)).all()
    assert found.length == bitmap(pairs).sum() if pairs else True
    assert (found.ends > found.starts).all()
    assert (found.starts[1:] > found.ends[:-1]).all(), "neighbors that touch must be merged"


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_set_operations(first, second):
    a, b = intervals(first), intervals(second)
    assert (as_bitmap(a & b) == (bitmap(first) & bitmap(second))).all()
    assert (as_bitmap(a - b) == (bitmap(first) & ~bitmap(second))).all()
    assert (as_bitmap(a | b) == (bitmap(first) | bitmap(second))).all()
    assert (a - b).length + (a & b).length == a.length


@settings(deadline=None)
@given(PAIRS, st.integers(0, LENGTH), st.integers(0, LENGTH))
def test_windows(pairs, start, end):
    found = intervals(pairs)
    line = bitmap(pairs)
    assert (as_bitmap(found.clip(start, end)) == (line & bitmap([(start, end)]))).all()
    assert found.covered_before([start, end]).tolist() == [line[:start].sum(), line[:end].sum()]
    if start <= end:
        assert found.covered_within([start], [end]).tolist() == [line[start:end].sum()]


@settings(deadline=None)
@given(PAIRS)
def test_contains(pairs):
    assert (intervals(pairs).contains(np.arange(LENGTH)) == bitmap(pairs)).all()


def test_times_since_1970_stay_exact():
    start = 1_758_927_066_581_847_261
    found = Intervals.union([start, start + 1], [start + 3, start + 7])
    assert found.starts.tolist() == [start]
    assert found.length == 7


@pytest.mark.parametrize(("starts", "ends"), [([2], [1]), ([1, 2], [3])])
def test_refuses_what_is_no_interval(starts, ends):
    with pytest.raises(ValueError, match=r"ends before|equal length"):
        Intervals.union(starts, ends)
