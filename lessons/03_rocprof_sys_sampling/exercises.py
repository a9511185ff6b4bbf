"""Exercises of lesson 03: what is the CPU doing while the GPU waits?

Exercises 03.1 and 03.3 take a `SteadyPart` of a run under rocprof-sys, and 03.2 takes a trace with
call stacks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.steady_part import SteadyPart, own_run, steady_part
from tidyprof.errors import ProfileReadError
from tidyprof.tables.contract import Profile

if TYPE_CHECKING:
    import pandas as pd

FREQUENCY, IMAGES, STEPS = 500, 16, 8
"""Samples per second in the lesson's settings, and the batch size and steps of 03.1, which is small enough
that a step contains more than its sleep.
"""

BACKWARD, START, HANDLER = "run_backward", "__libc_start_main", "__sigaction"
"""The C++ function that starts the backward pass, the function that starts a program, and the
sampler's own frame.
"""

MAX_GAP, MIN_WORK = 0.5, 0.9
"""Limits in 03.3, as shares of the run before: the longest gap at most, the kernel time at least."""


def asleep(steady: SteadyPart) -> int:
    """Return the number of samples in a function whose name contains `sleep`."""
    events = steady.profile.events
    rows = events[(events["kind"] == "sample") & events["name"].astype(str).str.contains("sleep")]
    return int(rows["sample"].nunique())


def sleep_per_image_ms(steady: SteadyPart) -> float:
    """Return the milliseconds of sleep per image, from the number of samples."""
    return 1000 * asleep(steady) / FREQUENCY / (steady.steps * IMAGES)


def _outermost_ns(table: pd.DataFrame, name: str = "") -> float:
    """Return the total time of a tree, or of its outermost functions with this name."""
    rows = table[(table["depth"] == 0) & table["name"].str.contains(name, regex=False)]
    return float(rows["total_ns"].sum())


def backward_share(real: Profile, start: str = "", without: tuple[str, ...] = ()) -> float:
    """Return the share in percent of the backward pass in all sampled time.

    start   -- compare with the stacks that start in this function.
    without -- leave out these functions.
    """
    backward = tidyprof.call_stacks(real, root=BACKWARD, without=without)
    whole = tidyprof.call_stacks(real, without=without)
    return 100 * _outermost_ns(backward) / _outermost_ns(whole, start)


def all_depths(real: Profile) -> float:
    """Return the share if the totals of all rows below BACKWARD are added up."""
    rows = tidyprof.call_stacks(real, root=BACKWARD)["total_ns"].sum()
    return float(100 * rows / _outermost_ns(tidyprof.call_stacks(real)))


def longest_gap_ns(steady: SteadyPart) -> int:
    """Return the length of the longest gap in ns, or 0 if there is none."""
    lengths = tidyprof.gaps(steady.profile)["duration_ns"]
    return int(lengths.max()) if len(lengths) else 0


def kernel_ns_per_step(steady: SteadyPart) -> float:
    """Return the time of all kernels per step."""
    return float(tidyprof.kernels(steady.profile)["total_ns"].sum() / steady.steps)


def shorter_gap_problem(answer: Any, steady: SteadyPart) -> str | None:
    """Return None for a run with the same work and at most half the gap, otherwise what to do."""
    if isinstance(answer, Path):
        if not answer.exists():
            return (
                f"The folder `{answer.name}` doesn't exist. Check whether the command above wrote"
                " to the `one` folder or ended with an error."
            )
        try:
            answer = own_run(answer)
        except ProfileReadError as error:
            return str(error)
    if isinstance(answer, Profile):
        if not len(tidyprof.steps(answer)):
            return (
                "This run doesn't mark its steps, so it can't be compared. Record it with"
                " `--roctx`, as in *Capture*."
            )
        answer = steady_part(answer)
    if not isinstance(answer, SteadyPart):
        kind = type(answer).__name__
        return f"You gave a value of type {kind}. Give the folder of a run, such as `fixed`."
    work = kernel_ns_per_step(answer) / kernel_ns_per_step(steady)
    if work < MIN_WORK:
        return (
            f"The kernels take only {100 * work:.0f}% of their previous time because the GPU has"
            " less to do. Keep the network and the batch size, and change only the CPU's work."
        )
    before, after = longest_gap_ns(steady), longest_gap_ns(answer)
    if after > MAX_GAP * before:
        return (
            f"The longest gap took {before / 1e6:.1f} ms before the change and takes"
            f" {after / 1e6:.1f} ms now. Find an option that makes it at most half as long."
        )
    return None


def without_long_gaps(steady: SteadyPart) -> SteadyPart:
    """Return the same work without the gaps that are longer than a quarter of the longest one."""
    gaps = tidyprof.gaps(steady.profile)
    long = gaps[gaps["duration_ns"] > longest_gap_ns(steady) / 4].sort_values("start_ns")
    events = steady.profile.device_events.copy()
    for gap in long[::-1].itertuples():
        events.loc[events["start_ns"] > gap.start_ns, "start_ns"] -= gap.duration_ns
    return replace(steady, profile=Profile(events, meta=dict(steady.profile.meta)))


def with_less_work(steady: SteadyPart) -> SteadyPart:
    """Return a run whose kernels take half as long."""
    events = steady.profile.events.copy()
    events.loc[events["kind"] == "kernel", "duration_ns"] //= 2
    return replace(steady, profile=Profile(events, meta=dict(steady.profile.meta)))


EXERCISES = (
    Exercise(
        id="03.1",
        answer=Number(sleep_per_image_ms, unit="ms", relative=0.03),
        mistakes=(
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * steady.steps,
                "You divided by the number of images in one step, but the samples cover all"
                " steady steps. Divide by `unseen.steps` as well.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * steady.steps / STEPS,
                (
                    f"You divided by all {STEPS} steps of the command, but the samples cover only"
                    " the steady steps. Divide by `unseen.steps` times 16."
                ),
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * IMAGES,
                f"You computed the sleep time per step. Each step loads {IMAGES} images, so"
                f" divide by {IMAGES} as well.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * steady.steps * IMAGES,
                "You computed the sleep time in all steady steps. Divide it by the number of"
                f" images in these steps, `unseen.steps` times {IMAGES}.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * FREQUENCY,
                "You didn't take the sampling frequency into account. A sample represents"
                f" 1/{FREQUENCY} s, so divide by {FREQUENCY}.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * FREQUENCY / 1000,
                "You computed the number of samples per image. A sample represents"
                f" 1000/{FREQUENCY} ms, so multiply by that time.",
            ),
            Mistake(
                lambda steady: steady.step_ns / 1e6 / IMAGES,
                "You computed the total time per image, but the program doesn't only sleep."
                " Count only the samples in functions whose name contains `sleep`.",
            ),
            Mistake(
                asleep,
                (
                    f"You counted the samples. Each sample represents 1000/{FREQUENCY} ms, so"
                    " convert their number to milliseconds per image."
                ),
            ),
        ),
        hints=(
            "Count samples, not rows, because a sample has one row for each function in its stack.",
            (
                'Select rows with `rows["name"].str.contains("sleep")`, and count the distinct'
                " values in their `sample` column with `nunique`."
            ),
            (
                "Multiply the number of samples by 1000, divide by 500, and then divide by the"
                " number of images in all steady steps."
            ),
        ),
        insight=lambda steady: (
            f"The square root of {asleep(steady):,} samples is {asleep(steady) ** 0.5:.0f}, so the"
            f" time may be off by {100 * asleep(steady) ** -0.5:.0f}%, and only the first digit is"
            " certain. The injected fault sleeps for 5 ms per image."
        ),
    ),
    Exercise(
        id="03.2",
        answer=Number(backward_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda real: backward_share(real, start=START),
                "You divided by the time of the complete stacks only. Cut stacks are sampled"
                " time too, so divide by the time of the whole tree.",
            ),
            Mistake(
                lambda real: backward_share(real, without=(HANDLER,)),
                "You left out samples that contain only `__sigaction`. They also count as"
                " sampled time, so use the tree with all frames.",
            ),
            Mistake(
                all_depths,
                "You added up all rows, but each row includes the time of the functions below it."
                " Add up the rows with `depth` 0 only.",
            ),
            Mistake(
                lambda real: 100.0,
                "You divided the backward tree by itself because `root` removed everything"
                " else. Divide by the time of the tree without `root`.",
            ),
        ),
        hints=(
            (
                'Use `tidyprof.call_stacks(real, root="run_backward")` to keep only stacks that'
                " contain this function, starting at this function."
            ),
            "To get the time of a tree, add up `total_ns` of the rows with `depth` 0.",
            "Divide the time of the tree with `root` by the time of the tree without it.",
        ),
        insight=lambda real: (
            "Relative to the complete stacks alone, the share would be"
            f" {backward_share(real, start=START):.0f}%. Cut stacks are still in the tree, but"
            " under different roots."
        ),
    ),
    Exercise(
        id="03.3",
        answer=Property(shorter_gap_problem, without_long_gaps),
        mistakes=(
            Mistake(lambda steady: steady, "at most half as long"),
            Mistake(with_less_work, "has less to do"),
        ),
        hints=(
            (
                "Run `!python -m cifar_train --help` in a cell, and look for options that change"
                " how images are prepared."
            ),
            (
                "Look at the stack again. The training process fetches the images itself, so find"
                " an option that lets other processes fetch them."
            ),
            (
                "Add `--num-workers 2` to the command of *Capture*, write to `$FOLDER/fixed`, and"
                " set `answer = fixed`."
            ),
        ),
        insight=(
            "The longest gap is gone, so something else limits the step now. Look at the longest"
            " remaining gap before you continue."
        ),
    ),
)
