"""Intervals of the gate, against all ways in which coins can fall."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tidyprof.gate.verdict import (
    CONFIDENCE,
    differs,
    median_interval,
    ratio_of_medians,
    ratio_of_turns,
)


def level_by_counting(number: int, k: int) -> float:
    """How often the median lies between the k-th smallest and the k-th largest of so many values:
    each of them is above it or below it as a coin falls, and it is outside where fewer than k are
    on one side.
    """
    above = [sum(coins) for coins in product((0, 1), repeat=number)]
    return sum(k <= count <= number - k for count in above) / len(above)


@pytest.mark.parametrize("turns", range(5, 15))
def test_the_interval_of_turns_is_the_narrowest_that_holds_the_median_often_enough(turns: int):
    ratios = 1 + np.random.default_rng(turns).permutation(turns) / 100
    found = ratio_of_turns(ratios, np.ones(turns))
    k = round(100 * (found.low - 1)) + 1
    assert found.high == pytest.approx(1 + (turns - k) / 100)
    assert found.level == pytest.approx(level_by_counting(turns, k))
    assert found.level >= CONFIDENCE or (turns, k) == (5, 1)
    assert level_by_counting(turns, k + 1) < CONFIDENCE, "a narrower one would do"


def test_seven_turns_need_all_of_them():
    """The bootstrap left the outer two out, and held the median in 87.5 % of cases."""
    ratios = [0.8, 1.06, 1.07, 1.08, 1.09, 1.1, 1.2]
    assert ratio_of_turns(ratios, [1.0] * 7) == (1.08, 0.8, 1.2, 1 - 2 / 2**7)
    assert ratio_of_turns(ratios[:5], [1.0] * 5).level == 0.9375
    assert ratio_of_medians(ratios, ratios).level == CONFIDENCE


def test_the_interval_holds_the_median_as_often_as_it_says():
    """Also of a distribution that leans to one side."""
    random = np.random.default_rng(1)
    for turns in (7, 13):
        intervals = [
            median_interval(random.lognormal(0, 0.5, turns), CONFIDENCE) for _ in range(4000)
        ]
        held = np.mean([low <= 1 <= high for low, high, _ in intervals])
        assert held == pytest.approx(intervals[0][2], abs=0.012)
        assert held > CONFIDENCE - 0.005


@pytest.mark.parametrize(("parts", "turns"), [(1, 6), (5, 8), (7, 9)])
def test_more_parts_need_more_turns(parts: int, turns: int):
    level = 1 - (1 - CONFIDENCE) / parts
    for number, sure in ((turns - 1, False), (turns, True)):
        base = np.arange(number, dtype=float)
        assert differs(base + 1, base, True, level) is sure
    assert not differs(np.r_[base[1:] + 1, base[0] - 1], base[np.r_[1:turns, 0]], True, level), (
        "one turn disagrees"
    )


def test_five_runs_of_a_side_can_overlap_so_rarely_and_no_more_rarely():
    """2 of the 252 ways to deal ten times to two sides keep them apart."""
    assert differs([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], False, 1 - 2 / 252)
    assert not differs([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], False, 1 - 1.99 / 252)
