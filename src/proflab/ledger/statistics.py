"""How much faster: the ratio of two medians and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidyprof.gate.verdict import CONFIDENCE, LEAST_REPEATS, ratio_of_medians

__all__ = ["CONFIDENCE", "LEAST_REPEATS", "SpeedUp", "speed_up"]


@dataclass(frozen=True)
class SpeedUp:
    """before_ns, after_ns -- medians; ratio -- before / after, so above 1 is faster; low, high -- its interval."""

    before_ns: int
    after_ns: int
    ratio: float
    low: float
    high: float


def speed_up(before_ns: Sequence[int], after_ns: Sequence[int]) -> SpeedUp:
    """Ratio of the medians of two sets of repeats (ns) with its 95 % interval; raises what `ratio_of_medians` does."""
    found = ratio_of_medians(before_ns, after_ns)
    before, after = (round(float(np.median(values))) for values in (before_ns, after_ns))
    return SpeedUp(before, after, found.ratio, found.low, found.high)
