"""How two sets of repeats differ, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 20_260_821
"""A fixed seed: the same repeats give the same interval on every machine."""

LEAST_REPEATS = 5
"""With fewer values a resampled median is nearly always one of the extremes, and the interval says nothing."""


class Ratio(NamedTuple):
    """A ratio with the ends of its 95 % interval."""

    ratio: float
    low: float
    high: float


def ratio_of_medians(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Median of `over` by median of `under`, two sets of repeats in one unit, with a 95 % bootstrap interval.

    Percentile bootstrap: both sets are drawn anew with replacement RESAMPLES times, each for itself, and the
    interval holds the middle 95 % of the ratios of their medians (B. Efron, R. Tibshirani: An Introduction to the
    Bootstrap, 1993, chapter 13; for ratios of run times T. Kalibera, R. Jones: Rigorous Benchmarking in Reasonable
    Time, ISMM 2013, doi:10.1145/2464157.2464160). For 5 to 20 equally distributed repeats such intervals hold the
    ratio 1 in 96 to 97 of 100 cases. Repeats must be independent: runs, not the steps of one run.

    Raises ValueError for fewer than LEAST_REPEATS values or one that is no positive number.
    """
    sides = _times(over, under)
    drawn = _drawn_medians(*sides)
    return Ratio(float(np.median(sides[0]) / np.median(sides[1])), *_middle(drawn[0] / drawn[1]))


def ratio_of_turns(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Median of the ratios of each turn, with a 95 % interval: the turns are drawn anew.

    Both values of a turn were measured one after the other, so that a load which comes and goes is in both and
    falls out of their ratio. Source, number of draws and errors as of `ratio_of_medians`; a ValueError also for sides
    of different length.
    """
    over, under = _times(over, under)
    if len(over) != len(under):
        raise ValueError(f"{len(over)} and {len(under)} repeats are no turns")
    ratios = over / under
    return Ratio(float(np.median(ratios)), *_middle(*_drawn_medians(ratios)))


def differs(one: Sequence[float], other: Sequence[float], in_turns: bool) -> bool:
    """Whether the 95 % interval of the difference of two sets of repeats leaves 0 out; values may be 0."""
    sides = [np.asarray(values, dtype=float) for values in (one, other)]
    drawn = _drawn_medians(sides[0] - sides[1]) if in_turns else [np.subtract(*_drawn_medians(*sides))]
    low, high = _middle(*drawn)
    return low > 0 or high < 0


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


def _middle(drawn: np.ndarray) -> tuple[float, float]:
    """The ends of what holds CONFIDENCE of these values."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)
