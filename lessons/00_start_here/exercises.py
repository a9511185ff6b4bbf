"""Exercises of lesson 00, can I trust my setup and my clock? They take step times, a TrainingRun or AMD's lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.timer_check import NO_WAIT, OLD_WORK, WAIT_OUTSIDE, check_timer

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.timer_check import Clock, Device, Timer, Work
    from proflab.training import TrainingRun

CONDITIONS = ("model", "precision", "batch_size", "device")
"""What the conditions of a rate must name."""

HIDDEN, REPORT_TOLERANCE = 0.05, 0.01
"""How far above the median the mean of a long run may be in 00.3, and how far a report may be from the run."""

NO_SPREAD = "A median alone hides the spread: give the quartiles, the smaller one first."
WITH_WARMUP = "This is the median of all steps: leave the warm-up out, as `run.steady` does."
RATE_OF_MEDIAN = (
    "This is the images of one step over the median step: it leaves out how long the slow steps took. Divide all "
    "images of the steady steps by all their time."
)
RATE_OF_ALL = "This is not the rate of the steady steps: divide all their images by all their time, in seconds."


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


def honest_report(run: TrainingRun, **changes: Any) -> dict[str, Any]:
    """One right answer of 00.6, with some entries changed."""
    times = run.steady["duration_ns"] / 1e6
    return {
        "median_ms": times.median(),
        "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
        "images_per_second": run.steady["images"].sum() / times.sum() * 1e3,
        "conditions": run.conditions,
        **changes,
    }


def rate_of_median(run: TrainingRun) -> float:
    """Images per second as if every step took the median time."""
    return float((run.steady["images"] / run.steady["duration_ns"].median()).iloc[0] * 1e9)


def report_problem(answer: Any, run: TrainingRun) -> str | None:
    """What a report of this run lacks; None if its numbers and conditions are those of the run."""
    right, of_all = honest_report(run), run.steps["duration_ns"].median() / 1e6
    if not isinstance(answer, Mapping):
        return f"A dictionary is asked, this is a {type(answer).__name__}."
    if missing := [key for key in right if key not in answer]:
        return f"The key `{missing[0]}` is missing."
    if not _close(answer["median_ms"], right["median_ms"]):
        not_it = "`median_ms` is not the median of the steady steps, in milliseconds."
        return WITH_WARMUP if _close(answer["median_ms"], of_all) else not_it
    quartiles = answer["quartiles_ms"]
    if not isinstance(quartiles, tuple | list) or len(quartiles) != 2:
        return NO_SPREAD
    if not all(map(_close, quartiles, right["quartiles_ms"])):
        return "`quartiles_ms` should be the 0.25 and 0.75 quantiles of the steady steps, in this order."
    if not _close(answer["images_per_second"], right["images_per_second"]):
        return RATE_OF_MEDIAN if _close(answer["images_per_second"], rate_of_median(run)) else RATE_OF_ALL
    said, values = str(answer["conditions"]).casefold(), {**run.config, "device": run.device}
    unsaid = [name for name in CONDITIONS if str(values[name]).casefold() not in said]
    return f"The conditions don't name the {unsaid[0].replace('_', ' ')}." if unsaid else None


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
            Mistake(lambda run: honest_report(run, quartiles_ms=run.steady["duration_ns"].median() / 1e6), NO_SPREAD),
            Mistake(lambda run: honest_report(run, median_ms=run.steps["duration_ns"].median() / 1e6), WITH_WARMUP),
            Mistake(lambda run: honest_report(run, images_per_second=rate_of_median(run)), RATE_OF_MEDIAN),
            Mistake(lambda run: honest_report(run, conditions=run.device), "The conditions don't name the model."),
        ),
        hints=(
            "`times = run.steady['duration_ns'] / 1e6`, then `times.median()` and `times.quantile(0.25)`.",
            "The rate is `run.steady['images'].sum() / times.sum() * 1000`; the conditions are `run.conditions`.",
        ),
        insight=lambda run: f"{len(run.steady)} steady steps of one run: good enough to plan the next measurement.",
    ),
)
