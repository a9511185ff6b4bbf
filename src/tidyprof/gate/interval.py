"""The ratio of two medians, and how far it can be trusted."""

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
    """A ratio of medians with the ends of its 95 % interval."""

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
    sides = [np.asarray(values, dtype=float) for values in (over, under)]
    for values in sides:
        if values.ndim != 1 or len(values) < LEAST_REPEATS:
            raise ValueError(f"{len(values)} repeats; at least {LEAST_REPEATS} are needed")
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError("a time must be a positive number")
    random = np.random.default_rng(SEED)
    drawn = [np.median(random.choice(values, (RESAMPLES, len(values))), axis=1) for values in sides]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn[0] / drawn[1], [tail, 1 - tail])
    return Ratio(float(np.median(sides[0]) / np.median(sides[1])), float(low), float(high))
