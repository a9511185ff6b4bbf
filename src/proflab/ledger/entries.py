"""The entries of runs/ledger.jsonl, one JSON object a line, and the speed-up that each states.

Also their repeats: the order in which they are measured, and which values are refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import numbers
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from proflab import journal
from proflab.correctness_gate import CorrectnessGate
from proflab.errors import CourseError
from tidyprof.gate.verdict import CONFIDENCE, LEAST_REPEATS, ratio_of_medians

__all__ = ["CONFIDENCE", "LEAST_REPEATS", "SpeedUp", "speed_up"]


@dataclass(frozen=True)
class SpeedUp:
    """How much faster a change was.

    before_ns, after_ns -- medians in ns
    ratio               -- before / after: above 1 is faster
    low, high           -- ends of its interval
    """

    before_ns: int
    after_ns: int
    ratio: float
    low: float
    high: float


def speed_up(before_ns: Sequence[int], after_ns: Sequence[int]) -> SpeedUp:
    """Ratio of the medians of two sets of repeats (ns) with its 95 % interval; raises the errors of
    `ratio_of_medians`.
    """
    found = ratio_of_medians(before_ns, after_ns)
    before, after = (round(float(np.median(values))) for values in (before_ns, after_ns))
    return SpeedUp(before, after, found.ratio, found.low, found.high)


FILE = "ledger.jsonl"

IN_THE_MODEL = " in the model"

MODEL_ONLY = "Modelled, not counted as a gain"
"""Label of the ratio of modelled times, which is never listed as a gain."""

VERDICTS = (
    "faster",
    "slower",
    f"faster{IN_THE_MODEL}",
    f"slower{IN_THE_MODEL}",
    "undecided",
    "unproven",
)
"""Slower: the whole interval of the ratio lies below 1, whatever the correctness gate says, since
the gate guards gains only. Unproven: not slower, and the gate is not green. Undecided: the gate is
green, and the interval contains 1.

Modelled times have two digits and no interval: repeats of a model show how its random numbers vary,
not how wrong it is. Undecided then means that the larger time over the smaller one is 1.0 in two
digits.
"""

Times = Annotated[
    tuple[Annotated[int, msgspec.Meta(gt=0, le=2**62)], ...],
    msgspec.Meta(min_length=LEAST_REPEATS, max_length=10_000),
]


@dataclass(frozen=True)
class Experiment:
    """One entry of the ledger.

    change              -- short name of what was changed.
    per                 -- step or image.
    before_ns, after_ns -- the repeats, in ns per step or image.
    attempt             -- how often this change has been tried so far, this time included.
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
    def modelled(self) -> bool:
        """Whether a model computed the times, or some of them."""
        return is_modelled(self.origin)

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        low, high, suffix = self.speed_up.low, self.speed_up.high, ""
        if self.modelled:
            ratio, suffix = self.speed_up.ratio, IN_THE_MODEL
            low = high = 1.0 if two_digits(max(ratio, 1 / ratio)) == "1.0" else ratio
        if high < 1:
            return f"slower{suffix}"
        if not self.gate.green:
            return "unproven"
        return f"faster{suffix}" if low > 1 else "undecided"

    @property
    def interval(self) -> str:
        """The speed-up and its interval as text, with as many decimals as are needed to tell the
        ends apart; of modelled times the speed-up in two digits.
        """
        found = self.speed_up
        if self.modelled:
            return f"{two_digits(found.ratio)} times"
        width = found.high - found.low
        places = min(6, max(2, 1 - math.floor(math.log10(width)))) if width > 0 else 2
        ratio, low, high = (f"{value:.{places}f}" for value in (found.ratio, found.low, found.high))
        return f"{ratio} times ({100 * CONFIDENCE:.0f} % interval {low} to {high})"


def is_modelled(origin: str) -> bool:
    """Whether numbers with this origin, or some of them, come from a model."""
    return any(part.strip().startswith("modelled") for part in origin.split(";"))


def two_digits(value: float) -> str:
    """A positive number with two significant digits, no power of ten: 0.97, 1.0, 14, 120."""
    exponent = math.floor(math.log10(float(f"{value:.1e}")))
    return f"{round(value, 1 - exponent):,.{max(0, 1 - exponent)}f}"


def time_text(nanoseconds: float, modelled: bool) -> str:
    """A duration in ns as text: three significant digits, two if it is modelled."""
    from tidyprof.plots.figure import duration_text

    if not modelled:
        return duration_text(nanoseconds)
    number, unit = duration_text(float(f"{nanoseconds:.1e}")).split()
    return f"{two_digits(float(number.replace(',', '')))} {unit}"


def store(experiment: Experiment) -> None:
    """Append to the ledger. The ratio and the verdict follow from the other values; they are
    written for people who read the file.
    """
    found = {
        "ratio": experiment.speed_up.ratio,
        "interval": experiment.interval,
        "verdict": experiment.verdict,
    }
    journal.append(FILE, asdict(experiment) | found)


def stored() -> list[Experiment]:
    """All experiments in order. A line that is no whole experiment is left out, as in every
    journal.
    """
    found: list[Experiment] = []
    for entry in journal.read(journal.runs_folder() / FILE):
        try:
            one = msgspec.convert(entry, Experiment)
        except msgspec.ValidationError:
            continue
        found.append(replace(one, attempt=1 + sum(known.change == one.change for known in found)))
    return found


Measure = Callable[[], float]
"""A function that runs once and returns seconds per step or image."""


def gather(
    before: Measure | Sequence[float], after: Measure | Sequence[float], repeats: int
) -> list[list[int]]:
    """The repeats of both sides, in ns.

    Two functions are called in turn, `repeats` times each, in the order before, after, after,
    before, ...: a machine that slows down steadily then slows both alike. Two lists are taken as
    they are. Raises CourseError for one function and one list, for too few repeats, and for a value
    that is no time.
    """
    if callable(before) != callable(after):
        raise CourseError(
            "one side is a function, the other a list: give two functions, which are interleaved,"
            " or two"
        )
    if callable(before):
        if repeats < LEAST_REPEATS:
            raise CourseError(
                f"{repeats} repeats are too few to see the spread; take at least {LEAST_REPEATS}"
            )
        return _in_turn((before, after), repeats)
    for values, name in ((before, "before"), (after, "after")):
        if (
            isinstance(values, str)
            or not isinstance(values, Sequence)
            or len(values) < LEAST_REPEATS
        ):
            raise CourseError(
                f"{name}: give a list of at least {LEAST_REPEATS} repeats, or there is no spread to"
                " see; repeat the run, since the steps of one run are not independent"
            )
    return [[_nanoseconds(value) for value in values] for values in (before, after)]


def _in_turn(measures: Sequence[Measure], repeats: int) -> list[list[int]]:
    times: list[list[int]] = [[], []]
    for repeat in range(repeats):
        for side in (0, 1) if repeat % 2 == 0 else (1, 0):
            times[side].append(_nanoseconds(measures[side]()))
    return times


def _nanoseconds(seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise CourseError(f"a repeat is {type(seconds).__name__}; give seconds")
    if not math.isfinite(seconds) or seconds <= 0:
        raise CourseError(f"{seconds!r} is no time; give seconds, above 0")
    return max(1, round(seconds * 1e9))


def here_and_now() -> str:
    """The origin of times that functions measure."""
    return f"measured: {platform.node()}, {datetime.now(UTC):%Y-%m-%d}"


def trainer(options: str = "", inside: bool = False) -> Measure:
    """A function that trains once with these options, such as "--channels-last", and returns the
    seconds per image.

    inside -- train in this process, without the trainer's output: so each repeat saves the start of
              Python and torch.

    The function raises CourseError with the trainer's message if a run fails.
    """
    run = _inside if inside else _outside

    def train() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return 1 / run([*shlex.split(options), "--run-dir", folder], Path(folder))

    return train


def _inside(options: list[str], folder: Path) -> float:
    from cifar_train.config import parse
    from cifar_train.train import run
    from tidyprof.errors import UserError

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return run(parse(options)).summaries[0].images_per_second
    except UserError as error:
        raise CourseError(f"the trainer failed: {error}") from error


def _outside(options: list[str], folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "cifar_train", *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CourseError(f"the trainer failed with `{shlex.join(options[:-2])}`: {last}")
    (metrics,) = folder.glob("metrics_rank0_of_*.jsonl")
    records = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    return next(record["images_per_second"] for record in records if record["record"] == "summary")
