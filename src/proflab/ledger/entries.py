"""Experiments as they stand in runs/ledger.jsonl, one JSON object a line, and how much faster each says it got."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np

from proflab import journal
from proflab.correctness_gate import CorrectnessGate
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


FILE = "ledger.jsonl"

VERDICTS = ("faster", "slower", "undecided", "unproven")
"""Slower: the whole interval of the ratio lies below 1, whatever the correctness gate says, which guards gains only.
Unproven: it does not, and the gate is not green. Undecided: the gate is green, and the interval contains 1."""

Times = Annotated[
    tuple[Annotated[int, msgspec.Meta(gt=0, le=2**62)], ...], msgspec.Meta(min_length=LEAST_REPEATS, max_length=10_000)
]


@dataclass(frozen=True)
class Experiment:
    """One entry of the ledger.

    change -- what was changed, its short name; per -- step or image; before_ns, after_ns -- the repeats, ns per step
    or image; attempt -- how often this change has been tried so far.
    """

    hypothesis: str
    change: str
    per: str
    origin: str
    before_ns: Times
    after_ns: Times
    gate: CorrectnessGate
    attempt: int = 1

    @cached_property
    def speed_up(self) -> SpeedUp:
        """Ratio of the medians with its interval."""
        return speed_up(self.before_ns, self.after_ns)

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if self.speed_up.high < 1:
            return "slower"
        if not self.gate.green:
            return "unproven"
        return "faster" if self.speed_up.low > 1 else "undecided"

    @property
    def interval(self) -> str:
        """The speed-up and its interval as text, with as many decimals as show that the ends differ."""
        found = self.speed_up
        width = found.high - found.low
        places = min(6, max(2, 1 - math.floor(math.log10(width)))) if width > 0 else 2
        ratio, low, high = (f"{value:.{places}f}" for value in (found.ratio, found.low, found.high))
        return f"{ratio} times ({CONFIDENCE:.0%} interval {low} to {high})"


def store(experiment: Experiment) -> None:
    """Append to the ledger. The ratio and the verdict follow from the rest; they are for people who read the file."""
    found = {"ratio": experiment.speed_up.ratio, "interval": experiment.interval, "verdict": experiment.verdict}
    journal.append(FILE, asdict(experiment) | found)


def stored() -> list[Experiment]:
    """All experiments in order. A line that is no whole experiment is left out, as in every journal."""
    found: list[Experiment] = []
    for entry in journal.read(journal.runs_folder() / FILE):
        try:
            one = msgspec.convert(entry, Experiment)
        except msgspec.ValidationError:
            continue
        found.append(replace(one, attempt=1 + sum(known.change == one.change for known in found)))
    return found
