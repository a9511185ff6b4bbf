"""Exercises of lesson 00, can I trust my setup and my clock? They take the case as it ran on a real
GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.timer_check import NO_WAIT, OLD_WORK, WAIT_OUTSIDE, check_timer

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.timer_check import Clock, Device, Timer, Work

CONDITIONS = {
    "model": ("resnet",),
    "precision": ("mixed", "float16", "fp16", "amp", "autocast"),
    "batch size": ("256",),
    "device": ("h200",),
    "loaders": ("loader", "worker"),
}
"""What the conditions of a rate must name -> words of which one will do, for the run of 00.4."""

REPORT_TOLERANCE = 0.002
"""How far a report may be from the run: rounded, and yet nearer than any mistake is."""

NO_SPREAD = "A median alone hides the spread: give the quartiles, the smaller one first."
WITH_WARMUP = "The warm-up is in this median: take the steps that `steady` leaves."
WITH_WATCHED = (
    "The steps that the profiler watched are in this median: leave out those that are `profiled`."
)
MEAN_FOR_MEDIAN = "This is the mean. It belongs to the rate; a typical step is the median."
NANOSECONDS = "This is in nanoseconds: divide by a million."
RATE_OF_MEDIAN = (
    "This is the images of one step over the median step: it leaves out how long the slow steps"
    " took. Divide all images by all their time."
)
MEAN_OF_RATES = (
    "This is the mean of the steps' rates. Rates can't be averaged: divide all images by all their"
    " time."
)
RATE_OF_WARMUP = (
    "The warm-up is in this rate, which nobody pays again in a long run: leave it out, as from the"
    " median."
)
RATE_OF_WATCHED = (
    "The steps that the profiler watched are in this rate: leave them out, as from the median."
)
NO_RATE = "`images_per_second` is all images of these steps, divided by all their time in seconds."


def steady(run: pd.DataFrame, warmup: bool = False, watched: bool = False) -> pd.DataFrame:
    """The steps of a run that count; two mistakes to choose: `warmup` and `watched` keep those
    steps, too.
    """
    kept = run if warmup else run[run["part"] == "steady"]
    return kept if watched else kept[~kept["profiled"]]


def rate(steps: pd.DataFrame) -> float:
    """Images a second: all images over all their time."""
    return float(steps["images"].sum() / steps["duration_ns"].sum() * 1e9)


def rate_of_median(steps: pd.DataFrame) -> float:
    """Images of a step over the median step."""
    return float(steps["images"].median() / steps["duration_ns"].median() * 1e9)


def mean_of_rates(steps: pd.DataFrame) -> float:
    """The mean of the steps' own rates."""
    return float((steps["images"] / steps["duration_ns"]).mean() * 1e9)


def times_as_many(
    told: Mapping[str, pd.DataFrame],
    images_per_second: Callable[[pd.DataFrame], float] = rate,
    **kept: bool,
) -> float:
    """The rate with loaders over that without, by some way to a rate, from the steps that are
    `kept`.
    """
    return images_per_second(steady(told["loaders"], **kept)) / images_per_second(
        steady(told["plain"], **kept)
    )


def times_as_fast(told: Mapping[str, float]) -> float:
    """The most that a cure of one part can give: all of the steps' time over what is left without
    the part.
    """
    return told["steps_ns"] / (told["steps_ns"] - told["part_ns"])


def waiting_timer(*waits: str) -> Timer:
    """A timer that waits for the device `before` the first reading, `inside` the interval, `after`
    the second one.
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
    """One right answer of 00.4, with some entries changed."""
    times = steady(run)["duration_ns"] / 1e6
    return {
        "median_ms": times.median(),
        "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
        "images_per_second": rate(steady(run)),
        "conditions": "ResNet-50, mixed precision, batch 256, one H200, 2 loader processes",
        **changes,
    }


def wrong_medians(run: pd.DataFrame) -> dict[str, float]:
    """What to say -> the number in place of the median, by likely mistakes, in ms."""
    return {
        WITH_WARMUP: steady(run, warmup=True)["duration_ns"].median() / 1e6,
        WITH_WATCHED: steady(run, watched=True)["duration_ns"].median() / 1e6,
        MEAN_FOR_MEDIAN: steady(run)["duration_ns"].mean() / 1e6,
        NANOSECONDS: steady(run)["duration_ns"].median(),
    }


def wrong_rates(run: pd.DataFrame) -> dict[str, float]:
    """What to say -> images per second by likely mistakes."""
    return {
        RATE_OF_MEDIAN: rate_of_median(steady(run)),
        MEAN_OF_RATES: mean_of_rates(steady(run)),
        RATE_OF_WARMUP: rate(steady(run, warmup=True)),
        RATE_OF_WATCHED: rate(steady(run, watched=True)),
    }


def report_problem(answer: Any, run: pd.DataFrame) -> str | None:
    """What a report of this run lacks; None if its numbers and conditions are those of the run."""
    right = honest_report(run)
    if not isinstance(answer, Mapping):
        return f"A dictionary is asked, this is a {type(answer).__name__}."
    if missing := [key for key in right if key not in answer]:
        return f"The key `{missing[0]}` is missing."
    if not _close(answer["median_ms"], right["median_ms"]):
        not_it = (
            "`median_ms` is not the median of the steady steps that nothing watched, in"
            " milliseconds."
        )
        return _why(answer["median_ms"], wrong_medians(run)) or not_it
    quartiles = answer["quartiles_ms"]
    if not isinstance(quartiles, tuple | list) or len(quartiles) != 2:
        return NO_SPREAD
    if not all(map(_close, quartiles, right["quartiles_ms"])):
        return (
            "`quartiles_ms` should be the 0.25 and 0.75 quantiles of the same steps, in this order."
        )
    if not _close(answer["images_per_second"], right["images_per_second"]):
        return _why(answer["images_per_second"], wrong_rates(run)) or NO_RATE
    said = str(answer["conditions"]).casefold()
    unsaid = [name for name, words in CONDITIONS.items() if not any(word in said for word in words)]
    return f"The conditions don't name the {unsaid[0]}." if unsaid else None


def _why(value: Any, mistakes: Mapping[str, float]) -> str | None:
    return next((why for why, wrong in mistakes.items() if _close(value, wrong)), None)


def _close(value: Any, right: float) -> bool:
    return abs(float(value) - right) <= REPORT_TOLERANCE * right


EXERCISES = (
    Exercise(
        id="00.1",
        answer=Number(times_as_fast, unit="times", relative=0.01),
        mistakes=(
            Mistake(
                lambda told: 1 + told["part_ns"] / told["steps_ns"],
                "You added the part's share to 1. The steps become shorter by it: what is left of"
                " them?",
            ),
            Mistake(
                lambda told: told["part_ns"] / told["steps_ns"],
                "This is the part's share. How much faster is what is left without it?",
            ),
            Mistake(
                lambda told: 100 * told["part_ns"] / told["steps_ns"],
                "This is the part's share in percent. How long do the steps take without it?",
            ),
            Mistake(
                lambda told: told["steps_ns"] / told["part_ns"],
                "This is how often the part fits into the steps. Divide by what is left"
                " without it.",
            ),
        ),
        hints=(
            "Without the part the steps take `seen_ns - totals[largest]`.",
            "As fast as: the time before divided by the time after.",
        ),
        insight=lambda told: (
            f"No cure of this part can give more than {times_as_fast(told):.2f} times the speed."
            " That is why you look for the largest part first, and why it pays to know it before"
            " you change anything."
        ),
        # A part of half of the steps fits into them as often as they would be faster.
        measured=True,
    ),
    Exercise(
        id="00.2",
        answer=Number(times_as_many, unit="times", relative=0.01),
        mistakes=(
            Mistake(
                lambda told: times_as_many(told, rate_of_median),
                "You compared medians: they leave out how long the slow steps took, in which the"
                " GPU waits. Divide all images by all their time.",
            ),
            Mistake(
                lambda told: times_as_many(told, mean_of_rates),
                "You took the mean of the steps' rates. Rates can't be averaged: divide all images"
                " by all their time.",
            ),
            Mistake(
                lambda told: times_as_many(told, warmup=True),
                "The warm-up is in it. Take the steps that `steady` leaves.",
            ),
            Mistake(
                lambda told: times_as_many(told, watched=True),
                "The steps that the profiler watched are in it. Leave out those that are"
                " `profiled`.",
            ),
            Mistake(
                lambda told: times_as_many(told, warmup=True, watched=True),
                "All steps are in it. Leave out the warm-up, and those that the profiler watched.",
            ),
            Mistake(
                lambda told: 1 / times_as_many(told),
                "The other way round: divide the rate with loaders by that without.",
            ),
        ),
        hints=(
            (
                "Which average tells how long the job takes: that of a typical step, or that of all"
                " steps?"
            ),
            (
                'The rate of a run is `steps["images"].sum() / steps["duration_ns"].sum()`, with'
                " `steps = steady(plain)`."
            ),
        ),
        insight=lambda told: (
            f"{times_as_many(told):.1f} times as many. By the medians you would have promised "
            f"{times_as_many(told, rate_of_median):.1f} times."
        ),
    ),
    Exercise(
        id="00.3",
        answer=Property(
            lambda timer, _: check_timer(timer), lambda _: waiting_timer("before", "inside")
        ),
        mistakes=(
            Mistake(lambda _: waiting_timer(), NO_WAIT),
            Mistake(
                lambda _: waiting_timer("after"), WAIT_OUTSIDE
            ),  # as AMD's script does without GradScaler
            Mistake(lambda _: waiting_timer("inside"), OLD_WORK),
        ),
        hints=(
            (
                "`device.synchronize()` waits until the device has done everything. Where must the"
                " wait be to be counted?"
            ),
            (
                "Between the launch and the second reading; and once before the first: older work"
                " must not be counted."
            ),
        ),
        insight=(
            "Checked on a device with a counted clock: your times hold one step's work and nothing"
            " else."
        ),
        needs_data=False,
    ),
    Exercise(
        id="00.4",
        answer=Property(report_problem, honest_report),
        mistakes=(
            Mistake(
                lambda run: honest_report(
                    run, quartiles_ms=steady(run)["duration_ns"].median() / 1e6
                ),
                NO_SPREAD,
            ),
            *(
                Mistake(
                    lambda run, why=why: honest_report(run, median_ms=wrong_medians(run)[why]), why
                )
                for why in (WITH_WARMUP, WITH_WATCHED, MEAN_FOR_MEDIAN, NANOSECONDS)
            ),
            *(
                Mistake(
                    lambda run, why=why: honest_report(
                        run, images_per_second=wrong_rates(run)[why]
                    ),
                    why,
                )
                for why in (RATE_OF_MEDIAN, MEAN_OF_RATES, RATE_OF_WARMUP, RATE_OF_WATCHED)
            ),
            Mistake(
                lambda run: honest_report(run, conditions="H200"),
                "The conditions don't name the model.",
            ),
        ),
        hints=(
            (
                '`times = steady(loaders)["duration_ns"] / 1e6`, then `times.median()` and'
                " `times.quantile(0.25)`."
            ),
            "How many images did these steps train on in all, and how long did they take together?",
            'The rate is `steady(loaders)["images"].sum() / times.sum() * 1000`.',
        ),
        insight=lambda run: (
            f"The median step alone promises {rate_of_median(steady(run)):,.0f} images/s, and the"
            f" run gave {rate(steady(run)):,.0f}. Both are true: say which one you report."
        ),
    ),
)
