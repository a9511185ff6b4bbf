"""Experiments as they stand in runs/ledger.jsonl, one JSON object a line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec

from proflab import journal
from proflab.correctness_gate import CorrectnessGate, Part
from proflab.ledger.statistics import CONFIDENCE, LEAST_REPEATS, SpeedUp, speed_up

FILE = "ledger.jsonl"

VERDICTS = ("faster", "slower", "undecided", "unproven")
"""Undecided: the interval of the ratio contains 1. Unproven: the correctness gate is not green, whatever the times."""

Time = Annotated[int, msgspec.Meta(gt=0, le=2**62)]


class _Part(msgspec.Struct):
    name: str
    passed: bool
    figures: str


class _Record(msgspec.Struct):
    hypothesis: str
    change: str
    per: str
    order: str
    origin: str
    before_ns: Annotated[list[Time], msgspec.Meta(min_length=LEAST_REPEATS)]
    after_ns: Annotated[list[Time], msgspec.Meta(min_length=LEAST_REPEATS)]
    gate: list[_Part]
    time: str = ""


@dataclass(frozen=True)
class Experiment:
    """One entry of the ledger.

    change -- what was changed, its short name; per -- step or image; order -- in which the repeats were measured;
    before_ns, after_ns -- the repeats, ns per step or image; attempt -- how often this change has been tried so far.
    """

    hypothesis: str
    change: str
    per: str
    order: str
    origin: str
    before_ns: tuple[int, ...]
    after_ns: tuple[int, ...]
    gate: CorrectnessGate
    attempt: int = 1

    @cached_property
    def speed_up(self) -> SpeedUp:
        """Ratio of the medians with its interval."""
        return speed_up(self.before_ns, self.after_ns)

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if not self.gate.green:
            return "unproven"
        if self.speed_up.low > 1:
            return "faster"
        return "slower" if self.speed_up.high < 1 else "undecided"

    @property
    def interval(self) -> str:
        """The speed-up and its interval as text."""
        found = self.speed_up
        return f"{found.ratio:.2f} times ({CONFIDENCE:.0%} interval {found.low:.2f} to {found.high:.2f})"

    def record(self) -> dict[str, Any]:
        """What is stored. The numbers after `gate` follow from the others; they are for people who read the file."""
        found = self.speed_up
        return {
            "hypothesis": self.hypothesis,
            "change": self.change,
            "per": self.per,
            "order": self.order,
            "origin": self.origin,
            "before_ns": list(self.before_ns),
            "after_ns": list(self.after_ns),
            "gate": [{"name": part.name, "passed": part.passed, "figures": part.figures} for part in self.gate.parts],
            "ratio": found.ratio,
            "interval": [found.low, found.high],
            "verdict": self.verdict,
        }


def store(experiment: Experiment) -> None:
    """Append to the ledger."""
    journal.append(FILE, experiment.record())


def stored() -> list[Experiment]:
    """All experiments in order. A line that is no whole experiment is left out, as in every journal."""
    found: list[Experiment] = []
    tried: Counter[str] = Counter()
    for entry in journal.read(journal.runs_folder() / FILE):
        try:
            record = msgspec.convert(entry, _Record)
        except msgspec.ValidationError:
            continue
        tried[record.change] += 1
        found.append(_experiment(record, tried[record.change]))
    return found


def _experiment(record: _Record, attempt: int) -> Experiment:
    gate = CorrectnessGate(tuple(Part(part.name, part.passed, part.figures) for part in record.gate))
    return Experiment(
        hypothesis=record.hypothesis,
        change=record.change,
        per=record.per,
        order=record.order,
        origin=record.origin,
        before_ns=tuple(record.before_ns),
        after_ns=tuple(record.after_ns),
        gate=gate,
        attempt=attempt,
    )
