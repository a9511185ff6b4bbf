"""Intervals of the gate, against every way in which two equal versions can share their runs."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from tidyprof.gate.intervals import CONFIDENCE, differs, ratio_of_totals


def every_deal(runs: int, paired: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """All ways in which equal versions can share the same times: within pairs, or at will."""
    times = np.random.default_rng(runs).lognormal(0, 1, 2 * runs)
    if paired:
        pairs = times.reshape(2, runs)
        return [
            (np.where(order, *pairs), np.where(order, *pairs[::-1]))
            for order in product((False, True), repeat=runs)
        ]
    chosen = [list(one) for one in combinations(range(2 * runs), runs)]
    return [(times[one], np.delete(times, one)) for one in chosen]


@pytest.mark.parametrize(("runs", "paired"), [(5, True), (6, True), (9, True), (5, False)])
def test_the_interval_contains_the_ratio_of_equal_versions_as_often_as_it_says(
    runs: int, paired: bool
):
    found = [ratio_of_totals(*deal, paired) for deal in every_deal(runs, paired)]
    held = np.mean([one.low <= 1 <= one.high for one in found])
    assert held == pytest.approx(found[0].level)
    assert held >= CONFIDENCE or (runs, paired) == (5, True)
    assert held < CONFIDENCE + 1 / 2**runs + 1 / 32, "a narrower one would do"


@pytest.mark.parametrize("paired", [True, False])
def test_random_exchanges_represent_all(paired: bool):
    random, held = np.random.default_rng(1), []
    for _ in range(1000):
        found = ratio_of_totals(*random.lognormal(0, 1, (2, 15)), paired)
        held.append(found.low <= 1 <= found.high)
    assert np.mean(held) == pytest.approx(CONFIDENCE, abs=0.02)


@pytest.mark.parametrize("paired", [True, False])
def test_a_ratio_is_that_of_the_means_and_inside_its_interval(paired: bool):
    base = np.array([10, 10.1, 10.2, 10.3, 10.4])
    found = ratio_of_totals([11, 12, 13, 14, 15], base, paired)
    assert found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(13 / 10.2)
    longer = ratio_of_totals(1.5 * base, base, paired=True)
    assert longer[:3] == pytest.approx((1.5, 1.5, 1.5))


def test_one_long_run_widens_one_end():
    base = 10 + np.arange(9) / 100
    new = base.copy()
    new[4] = 100
    found = ratio_of_totals(new, base, paired=True)
    assert found.low == pytest.approx(1)
    assert found.high > 2


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("parts", "needed"), [(1, (5, 6)), (5, (5, 8)), (12, (6, 9))])
def test_more_parts_need_more_runs(parts: int, needed: tuple[int, int], paired: bool):
    error = (1 - CONFIDENCE) / parts
    runs = needed[paired]
    base = np.arange(runs, dtype=float)
    assert differs(base + 100, base, paired, error)
    assert runs == 5 or not differs(base[1:] + 100, base[1:], paired, error)
    assert not differs(base, base, paired, error)


@pytest.mark.parametrize(
    ("over", "under"),
    [([1.0] * 4, [1.0] * 5), ([1.0] * 5, [1, 2, 3, 4, 0]), ([1.0] * 6, [1.0] * 5)],
)
def test_values_that_are_no_repeats_are_refused(over: list[float], under: list[float]):
    with pytest.raises(ValueError, match=r"runs|value"):
        ratio_of_totals(over, under, paired=True)
