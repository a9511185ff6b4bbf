"""How two sets of repeats differ, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 20_260_821
"""A fixed seed: the same repeats give the same interval on every machine."""

LEAST_REPEATS = 5
"""With fewer values a resampled median is nearly always one of the extremes, and the interval says nothing. Of so many
turns the widest interval, that of all their ratios, has a level of 93.8 %; from six on it has CONFIDENCE."""


class Ratio(NamedTuple):
    """A ratio with the ends of its interval, and the interval's level: in which share of cases it holds the truth."""

    ratio: float
    low: float
    high: float
    level: float


def ratio_of_medians(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Median of `over` by median of `under`, two sets of repeats in one unit, with a bootstrap interval.

    Percentile bootstrap: both sets are drawn anew with replacement RESAMPLES times, each for itself, and the
    interval holds the middle 95 % of the ratios of their medians (B. Efron, R. Tibshirani: An Introduction to the
    Bootstrap, 1993, chapter 13; for ratios of run times T. Kalibera, R. Jones: Rigorous Benchmarking in Reasonable
    Time, ISMM 2013, doi:10.1145/2464157.2464160). Its level is CONFIDENCE by design, not exactly; docs/gate.md shows
    how often it holds the ratio 1 of equal sides. Repeats must be independent: runs, not the steps of one run.

    Raises ValueError for fewer than LEAST_REPEATS values or one that is no positive number.
    """
    sides = _times(over, under)
    drawn = np.divide(*_drawn_medians(*sides))
    return Ratio(float(np.median(sides[0]) / np.median(sides[1])), *_middle(drawn, CONFIDENCE), CONFIDENCE)


def ratio_of_turns(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Median of the ratios of each turn, with the exact interval of `median_interval`.

    Both values of a turn were measured one after the other, so that a load which comes and goes is in both and
    falls out of their ratio. The order within a turn has to be drawn: a load that only grows would else always slow
    the second one. Errors as of `ratio_of_medians`; a ValueError also for sides of different length.
    """
    over, under = _times(over, under)
    if len(over) != len(under):
        raise ValueError(f"{len(over)} and {len(under)} repeats are no turns")
    ratios = over / under
    return Ratio(float(np.median(ratios)), *median_interval(ratios, CONFIDENCE))


def median_interval(values: Sequence[float], wanted: float) -> tuple[float, float, float]:
    """Both ends of the sign test's interval for the median, and its level, which may be below the one that is wanted.

    The median lies below the k smallest of n independent values, or above the k largest, exactly as often as a coin
    falls on one side fewer than k times of n, whatever the distribution (W. J. Conover: Practical Nonparametric
    Statistics, 3rd edition, 1999, sections 3.2 and 3.4). Of the intervals from the k-th smallest to the k-th largest
    it is the narrowest whose level is at least `wanted`; where none is, it is the widest, k = 1.
    """
    ordered, number = np.sort(values), len(values)
    levels = [1 - 2 * sum(comb(number, i) for i in range(k)) / 2**number for k in range(1, (number + 1) // 2 + 1)]
    k = max(1, sum(level >= wanted for level in levels))
    return float(ordered[k - 1]), float(ordered[-k]), levels[k - 1]


def differs(one: Sequence[float], other: Sequence[float], in_turns: bool, level: float = CONFIDENCE) -> bool:
    """Whether an interval of this level of the difference of two sets of repeats leaves 0 out; values may be 0.

    In turns it is that of `median_interval`, else a bootstrap. False where repeats are too few for this level: in turns
    if even the widest interval has a lower one, else if even equal sides would not overlap at all more often than that.
    """
    sides = [np.asarray(values, dtype=float) for values in (one, other)]
    if in_turns:
        low, high, reached = median_interval(sides[0] - sides[1], level)
    else:
        low, high = _middle(np.subtract(*_drawn_medians(*sides)), level)
        reached = 1 - 2 / comb(len(one) + len(other), len(one))
    return reached >= level and (low > 0 or high < 0)


def _times(*sides: Sequence[float]) -> list[np.ndarray]:
    found = [np.asarray(values, dtype=float) for values in sides]
    for values in found:
        if values.ndim != 1 or len(values) < LEAST_REPEATS:
            raise ValueError(f"{len(values)} repeats; at least {LEAST_REPEATS} are needed")
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError("a time must be a positive number")
    return found


def _drawn_medians(*sides: np.ndarray) -> list[np.ndarray]:
    """Medians of RESAMPLES sets drawn from each side."""
    random = np.random.default_rng(SEED)
    return [np.median(random.choice(values, (RESAMPLES, len(values))), axis=1) for values in sides]


def _middle(drawn: np.ndarray, level: float) -> tuple[float, float]:
    """The ends of what holds this share of the values."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
