"""Exercises of lesson 00: can I trust my setup and my clock? Their data is the example run on an
NVIDIA H200.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.timer_check import NO_WAIT, OLD_WORK, WAIT_OUTSIDE, WRONG_UNIT, check_timer

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.timer_check import Clock, Device, Timer, Work

CONDITIONS = {
    "network": "resnet",
    "precision": "mixed|float16|fp16|amp|autocast",
    "batch size": r"\b256\b",
    "device": "h200",
    "number of loaders": r"\b(2|two)\W+(data\W*)?(loader|worker|process)|(loader|worker)s?\W+(2|two)\b",
}
"""Maps each condition of 00.4 to a pattern that the answer must contain."""

TOLERANCE = 0.002
"""Largest relative error of a report, smaller than the error of any mistake."""

NO_SPREAD = (
    "Your report has no spread. Give `quartiles_ms` as a pair with the lower quartile first."
)
QUARTILES = (
    "Your `quartiles_ms` aren't the quartiles of the steady step times. Use the 0.25 and 0.75"
    " quantiles in milliseconds, in this order."
)
WITH_WARMUP = "You included the warm-up steps. Use only the steps that `steady(loaders)` returns."
MEAN_FOR_MEDIAN = "You reported the mean step time as `median_ms`. Use `times.median()`."
RATE_OF_MEDIAN = (
    "You divided the number of images in a step by the median step time, which hides the slow"
    " steps. Divide the number of all images by the total time."
)
MEAN_OF_RATES = (
    "You averaged the rates of the steps, which gives too much weight to short steps. Divide the"
    " number of all images by the total time."
)


def steady(run: pd.DataFrame, warmup: bool = False) -> pd.DataFrame:
    """Return the steady steps. With `warmup`, also keep the warm-up, a mistake."""
    return run if warmup else run[run["part"] == "steady"]


def rate(steps: pd.DataFrame) -> float:
    """Return images per second: all images over their total time."""
    return float(steps["images"].sum() / steps["duration_ns"].sum() * 1e9)


def rate_of_median(steps: pd.DataFrame) -> float:
    """Return the images of a step over the median step, a mistake."""
    return float(steps["images"].median() / steps["duration_ns"].median() * 1e9)


def mean_of_rates(steps: pd.DataFrame) -> float:
    """Return the mean of the rates of the steps, a mistake."""
    return float((steps["images"] / steps["duration_ns"]).mean() * 1e9)


def times_as_many(
    runs: Mapping[str, pd.DataFrame],
    images_per_second: Callable[[pd.DataFrame], float] = rate,
    warmup: bool = False,
) -> float:
    """Return the rate with loaders over the rate without."""
    with_loaders, without = (
        images_per_second(steady(runs[name], warmup)) for name in ("loaders", "plain")
    )
    return with_loaders / without


def times_as_fast(told: Mapping[str, float]) -> float:
    """Return the largest speedup from a fix of one part."""
    return told["step_ns"] / (told["step_ns"] - told["part_ns"])


def waiting_timer(*waits: str) -> Timer:
    """Return a timer that waits for the device `before` the first reading of the clock, `inside`
    the interval, or `after` the second reading.
    """

    def timer(device: Device, work: Work, clock: Clock) -> float:
        if "before" in waits:
            device.synchronize()
        begin = clock()
        device.launch(work)
        if "inside" in waits:
            device.synchronize()
        seconds = clock() - begin
        if "after" in waits:
            device.synchronize()
        return seconds

    return timer


def honest_report(run: pd.DataFrame, **changes: Any) -> dict[str, Any]:
    """Return a correct answer to 00.4, with some entries changed."""
    times = steady(run)["duration_ns"] / 1e6
    return {
        "median_ms": times.median(),
        "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
        "images_per_second": rate(steady(run)),
        "conditions": "ResNet-50, mixed precision, batch 256, one H200, 2 loader processes",
        **changes,
    }


REPORT_MISTAKES: tuple[tuple[str, Callable[[pd.DataFrame], float], str], ...] = (
    ("median_ms", lambda run: run["duration_ns"].median() / 1e6, WITH_WARMUP),
    ("median_ms", lambda run: steady(run)["duration_ns"].mean() / 1e6, MEAN_FOR_MEDIAN),
    ("images_per_second", rate, WITH_WARMUP),
    ("images_per_second", lambda run: rate_of_median(steady(run)), RATE_OF_MEDIAN),
    ("images_per_second", lambda run: mean_of_rates(steady(run)), MEAN_OF_RATES),
)
"""Likely mistakes of 00.4: the key, the wrong number, and the reply."""


def report_problem(answer: Any, run: pd.DataFrame) -> str | None:
    """Return what is wrong with a report of this run, or None."""
    right = honest_report(run)
    if not isinstance(answer, Mapping):
        return f"Your answer is of type `{type(answer).__name__}`. Answer with a dictionary."
    if missing := [key for key in right if key not in answer]:
        return f"Add the key `{missing[0]}` to your dictionary."
    for key, unit in (("median_ms", "ms"), ("images_per_second", "images/s")):
        number = Number(lambda _, key=key: right[key], unit, TOLERANCE)
        problem = number.judge(answer[key], right[key], run)
        for wrong, value, reply in REPORT_MISTAKES:
            if problem and wrong == key and number.same(answer[key], value(run)):
                return reply
        if problem:
            return f"`{key}`: {problem}"
    quartiles = answer["quartiles_ms"]
    if not isinstance(quartiles, tuple | list) or len(quartiles) != 2:
        return NO_SPREAD
    for value, expected in zip(quartiles, right["quartiles_ms"], strict=True):
        if abs(float(value) - expected) > TOLERANCE * expected:
            return QUARTILES
    said = str(answer["conditions"]).casefold()
    missing = [name for name, pattern in CONDITIONS.items() if not re.search(pattern, said)]
    return f"Your conditions don't state the {missing[0]} of this run." if missing else None


EXERCISES = (
    Exercise(
        id="00.1",
        answer=Number(times_as_fast, unit="times"),
        mistakes=(
            Mistake(
                lambda told: 1 + told["part_ns"] / told["step_ns"],
                "You added the share of the part to 1. Divide the total time by the time that"
                " remains without the part.",
            ),
            Mistake(
                lambda told: told["part_ns"] / told["step_ns"],
                "You computed the share of the part. Divide the total time by the time that remains"
                " without the part.",
            ),
            Mistake(
                lambda told: told["step_ns"] / told["part_ns"],
                "You divided the total time by the time of the part. Divide it by the time that"
                " remains without the part.",
            ),
        ),
        hints=(
            "Subtract the time of the part: `step_ns - data_ns` remains.",
            "Divide the total time by the time that remains.",
        ),
        insight=lambda told: (
            f"No fix for this part can make the step more than {times_as_fast(told):.2f} times as"
            " fast. Compute this upper bound before you change anything, and start with the largest"
            " part."
        ),
    ),
    Exercise(
        id="00.2",
        answer=Number(times_as_many, unit="times"),
        mistakes=(
            Mistake(
                lambda runs: times_as_many(runs, rate_of_median),
                "You compared the median step times, which hide the long waits. For each run, divide"
                " the number of images by the total time.",
            ),
            Mistake(lambda runs: times_as_many(runs, mean_of_rates), MEAN_OF_RATES),
            Mistake(
                lambda runs: times_as_many(runs, warmup=True),
                "You included the warm-up, which hardly matters in a long run. Use only the steps"
                " that `steady` returns.",
            ),
        ),
        hints=(
            "Use the average that accounts for all of the time that the steps take.",
            "Compute the rate of each run with `steps = steady(plain)`:"
            ' `steps["images"].sum() / steps["duration_ns"].sum()`.',
        ),
        insight=lambda runs: (
            f"With two loaders, the H200 processes {times_as_many(runs):.1f} times as many images per"
            " second. The median steps would have suggested"
            f" {times_as_many(runs, rate_of_median):.1f} times as many."
        ),
    ),
    Exercise(
        id="00.3",
        answer=Property(
            lambda timer, _: check_timer(timer), lambda _: waiting_timer("before", "inside")
        ),
        mistakes=(
            Mistake(lambda _: waiting_timer(), NO_WAIT),
            # AMD's script does the same without GradScaler.
            Mistake(lambda _: waiting_timer("after"), WAIT_OUTSIDE),
            Mistake(lambda _: waiting_timer("inside"), OLD_WORK),
            Mistake(
                lambda _: lambda *given: 1e3 * waiting_timer("before", "inside")(*given), WRONG_UNIT
            ),
        ),
        hints=(
            "Call `device.synchronize()` in a place where the timed interval includes the wait.",
            "Synchronize once before you read the clock for the first time, and again between the"
            " launch and the second reading.",
        ),
        insight=(
            "We ran your timer on a device with a simulated clock. Your timer measured the work of"
            " one step and nothing else."
        ),
        needs_data=False,
    ),
    Exercise(
        id="00.4",
        answer=Property(report_problem, honest_report),
        mistakes=(
            Mistake(lambda run: honest_report(run, quartiles_ms=1.0), NO_SPREAD),
            *(
                Mistake(
                    lambda run, key=key, value=value: honest_report(run, **{key: value(run)}),
                    reply,
                )
                for key, value, reply in REPORT_MISTAKES
            ),
            Mistake(
                lambda run: honest_report(run, conditions="H200"),
                "Your conditions don't state the network of this run.",
            ),
        ),
        hints=(
            'Start with `times = steady(loaders)["duration_ns"] / 1e6`, then call `times.median()`'
            " and `times.quantile(0.25)`.",
            "Divide the number of images in all these steps by the total time of the steps in seconds.",
            'Compute the rate as `steady(loaders)["images"].sum() / times.sum() * 1000`.',
        ),
        insight=lambda run: (
            f"The median step alone suggests {rate_of_median(steady(run)):,.0f} images/s, but the run"
            f" processed {rate(steady(run)):,.0f} images/s. Always state which of the two you report."
        ),
    ),
)
