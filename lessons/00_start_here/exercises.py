"""Exercises of lesson 00, can I trust my setup and my clock? They take a step time, a TrainingRun or AMD's lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.averages import averages
from proflab.parts.published_rates import COUNTED_IMAGES, FITTING_RANKS, TRAINING_IMAGES, last_batch_images
from proflab.parts.timer_check import NO_WAIT, OLD_WORK, WAIT_OUTSIDE, check_timer

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.asynchronous import Clock, Device, Work
    from proflab.training import TrainingRun

CONDITIONS = ("model", "precision", "batch_size", "device")
"""What the conditions of a rate must name."""

REPORT_TOLERANCE = 0.01
"""How far the numbers of a report may be from the run's, as a fraction."""

NO_SPREAD = "A median alone hides the spread: give the quartiles, the smaller one first."
WITH_WARMUP = "This is the median of all steps: leave the warm-up out, as `run.steady` does."
NOT_THE_MEDIAN = "`median_ms` is not the median of the steady steps, in milliseconds."
RATE_OF_ALL = "This rate belongs to other steps than your median: divide the images of one batch by the median time."


def warmup_ratio(run: TrainingRun) -> float:
    """How many times longer the first step took than the median steady step."""
    return float(run.steps["duration_ns"].iloc[0] / run.steady["duration_ns"].median())


def overall_rate(lines: pd.DataFrame) -> float:
    """Images of all lines divided by the time of all lines, per second."""
    return float(lines["images"].sum() / lines["duration_ns"].sum() * 1e9)


def last_batch_rate(lines: pd.DataFrame) -> float:
    """The last line's rate with the images that its batch held."""
    return last_batch_images(lines, FITTING_RANKS) / _last_seconds(lines)


def _last_seconds(lines: pd.DataFrame) -> float:
    return float(lines["duration_ns"].iloc[-1]) / 1e9


def lying_timer(device: Device, work: Work, clock: Clock) -> float:
    """Reads the clock when the work is launched, not when it is done."""
    begin = clock()
    device.launch(work)
    return clock() - begin


def late_wait_timer(device: Device, work: Work, clock: Clock) -> float:
    """Waits for the device after the second reading, as AMD's script does without GradScaler."""
    seconds = lying_timer(device, work, clock)
    device.synchronize()
    return seconds


def one_sided_timer(device: Device, work: Work, clock: Clock) -> float:
    """Waits at the end, but not before the first reading."""
    begin = clock()
    device.launch(work)
    device.synchronize()
    return clock() - begin


def honest_timer(device: Device, work: Work, clock: Clock) -> float:
    """Waits for the device before either reading."""
    device.synchronize()
    return one_sided_timer(device, work, clock)


def honest_report(run: TrainingRun) -> dict[str, Any]:
    """One right answer of 00.6."""
    times = run.steady["duration_ns"] / 1e6
    return {
        "median_ms": times.median(),
        "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
        "images_per_second": run.config["batch_size"] / times.median() * 1e3,
        "conditions": run.conditions,
    }


def report_problem(answer: Any, run: TrainingRun) -> str | None:
    """What a report of this run lacks; None if its numbers and conditions are those of the run."""
    if not isinstance(answer, Mapping):
        return f"A dictionary is asked, this is a {type(answer).__name__}."
    missing = [key for key in honest_report(run) if key not in answer]
    if missing:
        return f"The key `{missing[0]}` is missing."
    return _time_problem(answer, run) or _conditions_problem(answer["conditions"], run)


def _time_problem(answer: Mapping[str, Any], run: TrainingRun) -> str | None:
    right = honest_report(run)
    if not _close(answer["median_ms"], right["median_ms"]):
        of_all = run.steps["duration_ns"].median() / 1e6
        return WITH_WARMUP if _close(answer["median_ms"], of_all) else NOT_THE_MEDIAN
    try:
        lower, upper = map(float, answer["quartiles_ms"])
    except (TypeError, ValueError):
        return NO_SPREAD
    if not (_close(lower, right["quartiles_ms"][0]) and _close(upper, right["quartiles_ms"][1])):
        return "`quartiles_ms` should be the 0.25 and 0.75 quantiles of the steady steps, in this order."
    return None if _close(answer["images_per_second"], right["images_per_second"]) else RATE_OF_ALL


def _conditions_problem(text: Any, run: TrainingRun) -> str | None:
    values = {**run.config, "device": run.device}
    missing = [name for name in CONDITIONS if str(values[name]).casefold() not in str(text).casefold()]
    return f"The conditions don't name the {missing[0].replace('_', ' ')}." if missing else None


def _close(value: Any, right: float) -> bool:
    return abs(float(value) - right) <= REPORT_TOLERANCE * right


def _with(run: TrainingRun, **changes: Any) -> dict[str, Any]:
    return {**honest_report(run), **changes}


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
        answer=Number(warmup_ratio, unit="ratio", relative=0.02),
        mistakes=(
            Mistake(
                lambda run: run.steps["duration_ns"].iloc[0] / run.steps["duration_ns"].mean(),
                "You divided by the mean of all steps. Step 0 is in that mean and hides itself.",
            ),
            Mistake(
                lambda run: run.steps["duration_ns"].iloc[0] / run.steps["duration_ns"].median(),
                "You took the median of all steps; the warm-up is still in it. `run.steady` leaves it out.",
            ),
        ),
        hints=(
            "`run.steps` has all steps, `run.steady` those after the warm-up.",
            "Both have the column `duration_ns`; `.iloc[0]` is the first value, `.median()` the median.",
            "Divide the first by the median.",
        ),
        insight="Your prediction `00.a` was about this number.",
    ),
    Exercise(
        id="00.3",
        answer=Number(overall_rate, unit="images/s"),
        mistakes=(
            Mistake(
                lambda lines: lines["images_per_second"].mean(),
                "This is the mean of the rates. A slow step takes more time, but weighs the same in it.",
            ),
            Mistake(
                lambda lines: lines["images_per_second"].median(),
                "This is the median of the rates: right for a typical step, but it is not the rate of all together.",
            ),
        ),
        hints=(
            "A rate is images divided by time. Which images, and which time?",
            "Add up `images`, add up `duration_ns`.",
            "Divide one sum by the other; a second has 1e9 nanoseconds.",
        ),
        insight=lambda lines: (
            f"Times can be averaged, rates can't. In images/s: mean of the rates "
            f"{lines['images_per_second'].mean():,.0f}, all lines together {overall_rate(lines):,.0f}, "
            f"a typical steady step {averages(lines)['images_per_second'].iloc[-1]:,.0f}."
        ),
    ),
    Exercise(
        id="00.4",
        answer=Property(lambda timer, _: check_timer(timer), lambda _: honest_timer),
        mistakes=(
            Mistake(lambda _: lying_timer, NO_WAIT),
            Mistake(lambda _: late_wait_timer, WAIT_OUTSIDE),
            Mistake(lambda _: one_sided_timer, OLD_WORK),
        ),
        hints=(
            "`device.synchronize()` waits until the device has done everything. Where must the wait be to be counted?",
            "Between the launch and the second reading of the clock.",
            "And once more before the first reading: work from before must not be counted.",
        ),
        insight="Checked on a device with a counted clock: your times hold one step's work and nothing else.",
        needs_data=False,
    ),
    Exercise(
        id="00.5",
        answer=Number(last_batch_rate, unit="images/s"),
        mistakes=(
            Mistake(
                lambda lines: lines["images_per_second"].iloc[-1],
                "This is the printed rate: it counts a full batch.",
            ),
            Mistake(
                lambda lines: TRAINING_IMAGES % COUNTED_IMAGES / _last_seconds(lines),
                "You let one GPU take all images. Eight share them, and each has its own last batch.",
            ),
            Mistake(
                lambda lines: (
                    lines["images_per_second"].iloc[-1] * COUNTED_IMAGES / last_batch_images(lines, FITTING_RANKS)
                ),
                "This is upside down: fewer images in the same time are a smaller rate.",
            ),
        ),
        hints=(
            "How many images does each GPU get, and how many are left after its full batches?",
            "`40_000 // 8` images each; all lines but the last took 256.",
            "Divide what is left by the last `duration_ns`.",
        ),
        insight=lambda lines: (
            f"The batch held {last_batch_images(lines, FITTING_RANKS)} images, so the true rate is even lower than the "
            "printed one. AMD does not say why. Perhaps the libraries tried out kernels again for the new size."
        ),
    ),
    Exercise(
        id="00.6",
        answer=Property(report_problem, honest_report),
        mistakes=(
            Mistake(lambda run: _with(run, quartiles_ms=run.steady["duration_ns"].median() / 1e6), NO_SPREAD),
            Mistake(lambda run: _with(run, median_ms=run.steps["duration_ns"].median() / 1e6), WITH_WARMUP),
            Mistake(
                lambda run: _with(
                    run, images_per_second=run.steps["images"].sum() / run.steps["duration_ns"].sum() * 1e9
                ),
                RATE_OF_ALL,
            ),
            Mistake(lambda run: _with(run, conditions=run.device), "The conditions don't name the model."),
        ),
        hints=(
            "Everything is in `run.steady`, `run.config` and `run.conditions`.",
            "`times = run.steady['duration_ns'] / 1e6`, then `times.median()` and `times.quantile(0.25)`.",
            "The rate is `run.config['batch_size'] / times.median() * 1000`; the conditions are `run.conditions`.",
        ),
        insight=lambda run: f"{len(run.steady)} steady steps of one run: good enough to plan the next measurement.",
    ),
)
