"""Repeats of an experiment: in which order they are measured, and what is no set of times."""

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
from datetime import UTC, datetime
from pathlib import Path

from proflab.errors import CourseError
from proflab.ledger.entries import LEAST_REPEATS

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


def trainer(options: str = "", inside: bool = False) -> Measure:
    """A function that trains once with these options, such as "--channels-last", and gives the seconds per image.

    inside -- train in this process, without what the trainer prints: each repeat saves the start of Python and torch.
    It raises CourseError with the trainer's message for a run that fails.
    """
    run = _inside if inside else _outside

    def train() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return 1 / run([*shlex.split(options), "--run-dir", folder], Path(folder))

    return train


def _inside(options: list[str], folder: Path) -> float:
    from cifar_train.config import parse
    from cifar_train.errors import UserError
    from cifar_train.train import run

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return run(parse(options)).summaries[0].images_per_second
    except UserError as error:
        raise CourseError(f"the trainer failed: {error}") from error


def _outside(options: list[str], folder: Path) -> float:
    done = subprocess.run([sys.executable, "-m", "cifar_train", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CourseError(f"the trainer failed with `{shlex.join(options[:-2])}`: {last}")
    (metrics,) = folder.glob("metrics_rank0_of_*.jsonl")
    records = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    return next(record["images_per_second"] for record in records if record["record"] == "summary")
