"""Repeats of an experiment: where they come from, in which order, and in which unit."""

from __future__ import annotations

import math
import numbers
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from proflab.errors import CourseError
from proflab.ledger.statistics import LEAST_REPEATS

if TYPE_CHECKING:
    from proflab.training import TrainingRun

PER = ("step", "image")
"""What a time is for: a step, or one image where steps of different size are compared."""

Measure = Callable[[], "float | TrainingRun"]
"""Runs once and returns seconds per step, or the run itself."""


@dataclass
class Side:
    """One side of a comparison. times_ns -- per step or image; runs -- those behind them; origins -- their texts."""

    times_ns: list[int] = field(default_factory=list)
    runs: list[TrainingRun] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    def add(self, value: Any, per: str, origin: str) -> None:
        """One repeat: a run, or seconds, which come from `origin`."""
        seconds = seconds_of(value, per)
        if not math.isfinite(seconds) or seconds <= 0:
            raise CourseError(f"{seconds!r} is no time; give seconds per {per}, above 0")
        self.times_ns.append(max(1, round(seconds * 1e9)))
        if _is_run(value):
            self.runs.append(value)
        self.origins.append(str(value.origin) if _is_run(value) else origin)


def gather(before: Any, after: Any, repeats: int, per: str, origin: str) -> tuple[Side, Side, str]:
    """Both sides, and in which order they were measured.

    Two functions are called in turn, `repeats` times each, in the order before, after, after, before, ...: a
    machine that slows down steadily then slows both alike. Two lists are taken as they are. Raises CourseError.
    """
    if per not in PER:
        raise CourseError(f"per must be {' or '.join(PER)}, not {per!r}")
    if callable(before) and callable(after):
        return _measured(before, after, repeats, per, origin)
    if callable(before) or callable(after):
        raise CourseError(
            "one side is a function, the other a list: what was measured earlier can't be interleaved with what is "
            "measured now; give two functions or two lists"
        )
    sides = [Side(), Side()]
    for side, values, name in zip(sides, (before, after), ("before", "after"), strict=True):
        if isinstance(values, str | numbers.Real) or _is_run(values):
            raise CourseError(f"{name} is one value; give a list of at least {LEAST_REPEATS} repeats, or a function")
        for value in values:
            side.add(value, per, origin or "recorded: origin not stated")
        if len(side.times_ns) < LEAST_REPEATS:
            raise CourseError(
                f"{name} has {len(side.times_ns)} repeats; at least {LEAST_REPEATS} are needed to see the spread: "
                "repeat the run, since the steps of one run are not independent"
            )
    _refuse_unequal_steps(sides, per)
    return sides[0], sides[1], "not stated"


def seconds_of(value: Any, per: str) -> float:
    """Seconds per step or image of one repeat: the median of a run's steady steps, or the number itself."""
    if not _is_run(value):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise CourseError(f"a repeat is {type(value).__name__}; give seconds per {per}, or a TrainingRun")
        return float(value)
    steady = value.steady
    if not len(steady):
        raise CourseError(f"{value.folder}: it has no step after the warm-up; run more steps")
    images = float(steady["images"].median()) if per == "image" else 1.0
    return float(steady["duration_ns"].median()) / images / 1e9


def _measured(before: Measure, after: Measure, repeats: int, per: str, origin: str) -> tuple[Side, Side, str]:
    if repeats < LEAST_REPEATS:
        raise CourseError(f"{repeats} repeats are too few to see the spread; take at least {LEAST_REPEATS}")
    here = origin or f"measured: {platform.node()}, {datetime.now(UTC):%Y-%m-%d}"
    sides = {"before": (Side(), before), "after": (Side(), after)}
    order = []
    for place in range(repeats):
        pair = ("before", "after") if place % 2 == 0 else ("after", "before")
        for name in pair:
            side, measure = sides[name]
            side.add(measure(), per, here)
            order.append(name)
    first, second = sides["before"][0], sides["after"][0]
    _refuse_unequal_steps([first, second], per)
    return first, second, " ".join(order)


def _refuse_unequal_steps(sides: Sequence[Side], per: str) -> None:
    sizes = [{float(run.steady["images"].median()) for run in side.runs} for side in sides]
    if per == "step" and all(sizes) and sizes[0] != sizes[1]:
        texts = [", ".join(f"{size:g}" for size in sorted(side)) for side in sizes]
        raise CourseError(f"steps of {texts[0]} and of {texts[1]} images are not the same work; pass per='image'")


def _is_run(value: Any) -> bool:
    from proflab.training import TrainingRun

    return isinstance(value, TrainingRun)
