"""Repeats of an experiment: in which order they are measured, and what is no set of times."""

from __future__ import annotations

import json
import math
import numbers
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from proflab.errors import CourseError
from proflab.ledger.statistics import LEAST_REPEATS

Measure = Callable[[], float]
"""Runs once and returns seconds per step or image."""


def gather(before: Measure | Sequence[float], after: Measure | Sequence[float], repeats: int) -> list[list[int]]:
    """Both sides in ns.

    Two functions are called in turn, `repeats` times each, in the order before, after, after, before, ...: a
    machine that slows down steadily then slows both alike. Two lists are taken as they are. Raises CourseError.
    """
    if callable(before) != callable(after):
        raise CourseError("one side is a function, the other a list: give two functions, which are interleaved, or two")
    if callable(before):
        if repeats < LEAST_REPEATS:
            raise CourseError(f"{repeats} repeats are too few to see the spread; take at least {LEAST_REPEATS}")
        return _in_turn((before, after), repeats)
    for values, name in ((before, "before"), (after, "after")):
        if isinstance(values, str) or not isinstance(values, Sequence) or len(values) < LEAST_REPEATS:
            raise CourseError(
                f"{name}: give a list of at least {LEAST_REPEATS} repeats, or there is no spread to see; repeat the "
                "run, since the steps of one run are not independent"
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
    """The origin of what is measured by functions."""
    return f"measured: {platform.node()}, {datetime.now(UTC):%Y-%m-%d}"


def trainer(options: str = "") -> Measure:
    """A function that trains once with these options, such as "--channels-last", and gives the seconds per image.

    It raises CourseError with the trainer's message for a run that fails.
    """

    def train() -> float:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "cifar_train", *shlex.split(options), "--run-dir", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                raise CourseError(f"the trainer failed with `{options}`: {last}")
            (metrics,) = Path(folder).glob("metrics_rank0_of_*.jsonl")
            records = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
            return 1 / next(record["images_per_second"] for record in records if record["record"] == "summary")

    return train
