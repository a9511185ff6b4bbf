"""Exercises of lesson 00, can I trust my setup and my clock? They take step times or AMD's lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.timer_check import NO_WAIT, OLD_WORK, WAIT_OUTSIDE, check_timer

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.timer_check import Clock, Device, Timer, Work

BATCH = 256
"""Images in each step of AMD's run."""

CONDITIONS = {
    "model": ("resnet",),
    "precision": ("mixed", "float16", "fp16", "amp", "autocast"),
    "batch size": (str(BATCH),),
    "device": ("mi300x",),
}
"""What the conditions of a rate must name -> words of which one will do, for AMD's run."""

HIDDEN, REPORT_TOLERANCE = 0.05, 0.002
"""How far above the median the mean of a long run may be in 00.3, and how far a report may be from the run: rounded,
and yet nearer than the median of all steps is to that without step 0."""

NO_SPREAD = "A median alone hides the spread: give the quartiles, the smaller one first."
WITH_WARMUP = "This is the median of all steps: leave step 0 out, it is the warm-up."
RATE_OF_MEDIAN = (
    "This is the images of one step over the median step: it leaves out how long the slow steps took. Divide all "
    "images by all their time."
)
MEAN_OF_RATES = "This is the mean of the printed rates. Rates can't be averaged: divide all images by all their time."
RATE_OF_ALL = "Step 0 is in this rate, which nobody pays again in a long run: leave it out, as from the median."
NO_RATE = "`images_per_second` is all images of the steps without step 0, divided by all their time in seconds."


def hiding_steps(
    lines: pd.DataFrame, all_of_first: bool = False, mean_of_rest: bool = False, first_in_rest: bool = False
) -> float:
    """Steps after which step 0 has lifted the mean by HIDDEN only; the mistakes change what is compared."""
    first, rest = lines["duration_ns"].iloc[0], lines["duration_ns"].iloc[0 if first_in_rest else 1 :]
    typical = rest.mean() if mean_of_rest else rest.median()
    return float((first - (0 if all_of_first else typical)) / (HIDDEN * typical))


def times_as_fast(told: Mapping[str, float]) -> float:
    """The most that a cure of one part can give: all of the steps' time over what is left without the part."""
    return told["steps_ns"] / (told["steps_ns"] - told["part_ns"])


def times_as_long(told: Mapping[str, Any], typical_ns: Callable[[pd.Series], float] | None = None) -> float:
    """The case's step over a typical one of the published lines, by default the median without step 0."""
    times = told["lines"]["duration_ns"]
    return float(told["case_ns"] / (times.iloc[1:].median() if typical_ns is None else typical_ns(times)))


def waiting_timer(*waits: str) -> Timer:
    """A timer that waits for the device `before` the first reading, `inside` the interval, `after` the second one."""

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


def honest_report(lines: pd.DataFrame, **changes: Any) -> dict[str, Any]:
    """One right answer of 00.6, with some entries changed."""
    times = lines["duration_ns"].iloc[1:] / 1e6
    return {
        "median_ms": times.median(),
        "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
        "images_per_second": rates(lines)["right"],
        "conditions": "ResNet-50, mixed precision, batch 256, one MI300X",
        **changes,
    }


def rates(lines: pd.DataFrame) -> dict[str, float]:
    """Images per second over the steps without step 0, the `right` way and by likely mistakes."""
    steady = lines.iloc[1:]
    return {
        "right": float(BATCH * len(steady) / steady["duration_ns"].sum() * 1e9),
        RATE_OF_MEDIAN: float(BATCH / steady["duration_ns"].median() * 1e9),
        MEAN_OF_RATES: float(steady["images_per_second"].mean()),
        RATE_OF_ALL: float(BATCH * len(lines) / lines["duration_ns"].sum() * 1e9),
    }


def report_problem(answer: Any, lines: pd.DataFrame) -> str | None:
    """What a report of these lines lacks; None if its numbers and conditions are those of the run."""
    right, of_all = honest_report(lines), lines["duration_ns"].median() / 1e6
    if not isinstance(answer, Mapping):
        return f"A dictionary is asked, this is a {type(answer).__name__}."
    if missing := [key for key in right if key not in answer]:
        return f"The key `{missing[0]}` is missing."
    if not _close(answer["median_ms"], right["median_ms"]):
        not_it = "`median_ms` is not the median of the steps without step 0, in milliseconds."
        return WITH_WARMUP if _close(answer["median_ms"], of_all) else not_it
    quartiles = answer["quartiles_ms"]
    if not isinstance(quartiles, tuple | list) or len(quartiles) != 2:
        return NO_SPREAD
    if not all(map(_close, quartiles, right["quartiles_ms"])):
        return "`quartiles_ms` should be the 0.25 and 0.75 quantiles of the steps without step 0, in this order."
    if not _close(answer["images_per_second"], right["images_per_second"]):
        return next((why for why, rate in rates(lines).items() if _close(answer["images_per_second"], rate)), NO_RATE)
    said = str(answer["conditions"]).casefold()
    unsaid = [name for name, words in CONDITIONS.items() if not any(word in said for word in words)]
    return f"The conditions don't name the {unsaid[0]}." if unsaid else None


def _close(value: Any, right: float) -> bool:
    return abs(float(value) - right) <= REPORT_TOLERANCE * right


EXERCISES = (
    Exercise(
        id="00.1",
        answer=Number(lambda step_ns: step_ns / 1e6, unit="ms"),
        mistakes=(
            Mistake(lambda step_ns: step_ns / 1e3, "This is in microseconds: divide by a thousand once more."),
            Mistake(lambda step_ns: step_ns / 1e9, "This is in seconds: you divided by a thousand once too often."),
        ),
        hints=("Nano is a billionth, milli a thousandth.", "Divide by a million."),
        insight="Tables here keep whole nanoseconds; only what you read is in ms or µs.",
    ),
    Exercise(
        id="00.2",
        answer=Number(times_as_fast, unit="times", relative=0.01),
        mistakes=(
            Mistake(
                lambda told: 1 + told["part_ns"] / told["steps_ns"],
                "You added the part's share to 1. The steps become shorter by it: what is left of them?",
            ),
            Mistake(
                lambda told: told["part_ns"] / told["steps_ns"],
                "This is the part's share. How much faster is what is left without it?",
            ),
            Mistake(
                lambda told: 100 * told["part_ns"] / told["steps_ns"],
                "This is the part's share in percent. How long do the steps take without it?",
            ),
        ),
        hints=(
            "Without the part the steps take `seen_ns - totals[largest]`.",
            "As fast as: the time before divided by the time after.",
        ),
        insight=lambda told: (
            f"No cure of this part can give more than {times_as_fast(told):.2f} times the speed. That is why you look "
            "for the largest part first, and why it pays to know it before you change anything."
        ),
    ),
    Exercise(
        id="00.3",
        answer=Number(hiding_steps, unit="steps", relative=0.002),
        mistakes=(
            Mistake(
                lambda lines: hiding_steps(lines, all_of_first=True),
                "You spread all time of step 0. Only what it took beyond the median is lost.",
            ),
            Mistake(
                lambda lines: hiding_steps(lines, mean_of_rest=True),
                "You took the mean of the other steps. Step 4 pulls at it: take their median.",
            ),
            Mistake(
                lambda lines: hiding_steps(lines, first_in_rest=True),
                "Step 0 is in your median, though it is the step that you compare with the others.",
            ),
        ),
        hints=(
            "How many nanoseconds did step 0 lose, compared with a median step?",
            "The mean is 5 % too high when the loss, divided by the number of steps, is 5 % of the median.",
        ),
        insight=lambda lines: (
            f"About {hiding_steps(lines):,.0f} steps, and the mean is still 5 % off. Leaving one step out is cheaper."
        ),
    ),
    Exercise(
        id="00.4",
        answer=Number(times_as_long, unit="times", relative=0.01),
        mistakes=(
            Mistake(
                lambda told: times_as_long(told, lambda times: times.mean()),
                "You took the mean of all times: step 0 alone makes AMD's run look almost as slow as the case.",
            ),
            Mistake(
                lambda told: times_as_long(told, lambda times: 1 / (1 / times.iloc[1:]).mean()),
                "This comes from the mean of the rates. Rates can't be averaged, times can.",
            ),
            Mistake(
                lambda told: times_as_long(told, lambda times: times.iloc[1:].mean()),
                "Even without step 0 a mean is pulled by the slow step 4. Take the median of the times.",
            ),
            Mistake(lambda told: 1 / times_as_long(told), "The other way round: divide the case's step by AMD's."),
        ),
        hints=(
            '`published["duration_ns"].iloc[1:]` are the times without step 0.',
            "Divide `case_ns` by their median.",
        ),
        insight=lambda told: (
            f"{times_as_long(told):.1f} times as long. With the mean of all times you would have said "
            f"{times_as_long(told, lambda times: times.mean()):.1f}, and perhaps closed the case. A wrong average "
            "can hide a slow program, too."
        ),
    ),
    Exercise(
        id="00.5",
        answer=Property(lambda timer, _: check_timer(timer), lambda _: waiting_timer("before", "inside")),
        mistakes=(
            Mistake(lambda _: waiting_timer(), NO_WAIT),
            Mistake(lambda _: waiting_timer("after"), WAIT_OUTSIDE),  # as AMD's script does without GradScaler
            Mistake(lambda _: waiting_timer("inside"), OLD_WORK),
        ),
        hints=(
            "`device.synchronize()` waits until the device has done everything. Where must the wait be to be counted?",
            "Between the launch and the second reading; and once before the first: older work must not be counted.",
        ),
        insight="Checked on a device with a counted clock: your times hold one step's work and nothing else.",
        needs_data=False,
    ),
    Exercise(
        id="00.6",
        answer=Property(report_problem, honest_report),
        mistakes=(
            Mistake(lambda lines: honest_report(lines, quartiles_ms=lines["duration_ns"].median() / 1e6), NO_SPREAD),
            Mistake(lambda lines: honest_report(lines, median_ms=lines["duration_ns"].median() / 1e6), WITH_WARMUP),
            *(
                Mistake(lambda lines, why=why: honest_report(lines, images_per_second=rates(lines)[why]), why)
                for why in (RATE_OF_MEDIAN, MEAN_OF_RATES, RATE_OF_ALL)
            ),
            Mistake(lambda lines: honest_report(lines, conditions="MI300X"), "The conditions don't name the model."),
        ),
        hints=(
            "`times = published['duration_ns'].iloc[1:] / 1e6`, then `times.median()` and `times.quantile(0.25)`.",
            "How many images did these steps train on in all, and how long did they take together?",
            f"The rate is `{BATCH} * len(times) / times.sum() * 1000`.",
        ),
        insight=lambda lines: (
            f"The median step alone promises {rates(lines)[RATE_OF_MEDIAN]:,.0f} images/s, and the run gave "
            f"{rates(lines)['right']:,.0f}. Both are true: say which one you report."
        ),
    ),
)
