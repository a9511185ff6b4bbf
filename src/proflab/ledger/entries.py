"""One experiment with its times, speedup and verdict."""

from __future__ import annotations

import json
import math
import numbers
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from proflab.correctness_gate import CorrectnessGate
from proflab.errors import CourseError
from tidyprof.gate.intervals import CONFIDENCE, LEAST_REPEATS, Ratio, ratio_of_totals

IN_THE_MODEL = " in the model"

MODEL_ONLY = "Modeled, not counted as a gain"
"""Label for a ratio of modeled times, which never counts as a gain."""


@dataclass(frozen=True)
class Experiment:
    """One entry of the ledger.

    - change: short name of the change
    - per: step or image
    - before_ns, after_ns: repeated times in ns per step or image
    - attempt: number of experiments with this change so far, including this experiment
    """

    hypothesis: str
    change: str
    per: str
    origin: str
    before_ns: tuple[int, ...]
    after_ns: tuple[int, ...]
    gate: CorrectnessGate
    attempt: int = 1

    @property
    def before(self) -> int:
        """Mean time before the change, in ns."""
        return round(fmean(self.before_ns))

    @property
    def after(self) -> int:
        """Mean time after the change, in ns."""
        return round(fmean(self.after_ns))

    @cached_property
    def speed_up(self) -> Ratio:
        """Ratio of the time before to the time after, with its interval. A ratio above 1 is a
        speedup.
        """
        return ratio_of_totals(self.before_ns, self.after_ns)

    @property
    def modeled(self) -> bool:
        """Return True if a model computed at least some of the times."""
        return is_modeled(self.origin)

    @property
    def verdict(self) -> str:
        """Verdict: `faster`, `slower`, `inconclusive` or `unproven`.

        - slower: The interval of the ratio is entirely below 1. The correctness gate doesn't
          matter because it guards only gains.
        - unproven: The change isn't slower, but the gate isn't green.
        - inconclusive: The gate is green, but the interval contains 1.

        Verdicts on modeled times end with "in the model". Modeled repeats don't show the model's
        error, so the verdict is inconclusive if the ratio rounds to 1.0.
        """
        low, high, suffix = self.speed_up.low, self.speed_up.high, ""
        if self.modeled:
            ratio, suffix = self.speed_up.ratio, IN_THE_MODEL
            low = high = 1.0 if two_digits(max(ratio, 1 / ratio)) == "1.0" else ratio
        if high < 1:
            return f"slower{suffix}"
        if not self.gate.green:
            return "unproven"
        return f"faster{suffix}" if low > 1 else "inconclusive"

    @property
    def interval(self) -> str:
        """Speedup and interval as a string, with enough decimal places to distinguish the
        interval's ends.

        A modeled speedup has two digits and no interval.
        """
        found = self.speed_up
        if self.modeled:
            return f"{two_digits(found.ratio)} times"
        width = found.high - found.low
        places = min(6, max(2, 1 - math.floor(math.log10(width)))) if width > 0 else 2
        ratio, low, high = (f"{value:.{places}f}" for value in (found.ratio, found.low, found.high))
        return f"{ratio} times ({100 * CONFIDENCE:.0f}% interval {low} to {high})"


def is_modeled(origin: str) -> bool:
    """Return True if some of the numbers with this origin come from a model."""
    return any(part.strip().startswith("modeled") for part in origin.split(";"))


def two_digits(value: float) -> str:
    """Return a positive number with two significant digits: 0.97, 1.0, 14, 120."""
    exponent = math.floor(math.log10(float(f"{value:.1e}")))
    return f"{round(value, 1 - exponent):,.{max(0, 1 - exponent)}f}"


def time_text(nanoseconds: float, modeled: bool) -> str:
    """Return a duration in ns as a string with three significant digits, or two if modeled."""
    from tidyprof.plots.figure import duration_text

    if not modeled:
        return duration_text(nanoseconds)
    number, unit = duration_text(float(f"{nanoseconds:.1e}")).split()
    return f"{two_digits(float(number.replace(',', '')))} {unit}"


def nanoseconds(side: str, seconds: Sequence[float]) -> tuple[int, ...]:
    """Return repeated times in ns. Raises CourseError for too few repeats or an invalid time."""
    if isinstance(seconds, str) or not isinstance(seconds, Sequence):
        raise CourseError(
            f"{side}: pass a list of times instead of a value of type {type(seconds).__name__}"
        )
    if len(seconds) < LEAST_REPEATS:
        raise CourseError(
            f"{side}: pass at least {LEAST_REPEATS} repeats of the run, because the steps of one"
            " run aren't independent"
        )
    for value in seconds:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not math.isfinite(value) or value <= 0:
            raise CourseError(
                f"{side}: {value!r} isn't a valid time. Pass a number of seconds above 0"
            )
    return tuple(max(1, round(value * 1e9)) for value in seconds)


def trainer(options: str = "") -> Callable[[], float]:
    """Return a function that trains once with these options and returns the seconds per image.

    An example of `options` is "--channels-last". If the training run fails, the function raises
    CourseError with the trainer's message.
    """

    def train() -> float:
        command = [sys.executable, "-m", "cifar_train", *shlex.split(options)]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [*command, "--run-dir", folder], capture_output=True, text=True, check=False
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                raise CourseError(f"the trainer failed with the options `{options}`: {last}")
            (metrics,) = Path(folder).glob("metrics_rank0_of_*.jsonl")
            records = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
            rates = (one["images_per_second"] for one in records if one["record"] == "summary")
            return 1 / next(rates)

    return train
