"""Exercises of lesson 03: what is the CPU doing while the GPU waits?

They take a `SteadyPart` of a run under rocprof-sys; 03.2 takes a recording of call stacks.
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

SAMPLES_A_SECOND = 500
IMAGES, DEFAULT_IMAGES, STEPS = 16, 256, 8
"""The lesson's setting; the batch of 03.1, small enough that a step has more than its sleep, and
that of the case; the steps of 03.1, warm-up included.
"""

BACKWARD, COMPLETE, TOOLS_OWN = "run_backward", "__libc_start_main", "__sigaction"
"""In the name of the C++ function that begins the backward pass; where complete stacks of a main
thread begin; the frame of the sampler itself.
"""

HALF, SAME_WORK = 0.5, 0.9
"""In 03.3 the largest gap must shrink to this part of what it was, and the kernels' time may not
fall below that.
"""


def asleep(steady: SteadyPart) -> int:
    """Samples that stand in a function whose name contains `sleep`."""
    events = steady.profile.events
    rows = events[(events["kind"] == "sample") & events["name"].astype(str).str.contains("sleep")]
    return int(rows["sample"].nunique())


def sleep_per_image_ms(steady: SteadyPart) -> float:
    """Milliseconds of sleep for each image, from the number of samples."""
    return 1000 * asleep(steady) / SAMPLES_A_SECOND / (steady.steps * IMAGES)


def backward_share(real: Profile) -> float:
    """Sampled time in stacks that contain BACKWARD, in percent of all sampled time."""
    return (
        100
        * _outermost_ns(tidyprof.call_stacks(real, root=BACKWARD))
        / _outermost_ns(tidyprof.call_stacks(real))
    )


def backward_share_of_complete(real: Profile) -> float:
    """The same as a share of the stacks that begin where a program begins."""
    everything = tidyprof.call_stacks(real)
    complete = everything.loc[
        (everything["depth"] == 0) & (everything["name"] == COMPLETE), "total_ns"
    ].sum()
    return float(100 * _outermost_ns(tidyprof.call_stacks(real, root=BACKWARD)) / complete)


def backward_share_without_tool(real: Profile) -> float:
    """The same as a share of the time that is left without the tool's own frames."""
    left = tidyprof.call_stacks(real, without=[TOOLS_OWN])
    return (
        100
        * _outermost_ns(tidyprof.call_stacks(real, root=BACKWARD, without=[TOOLS_OWN]))
        / _outermost_ns(left)
    )


def backward_rows(real: Profile) -> float:
    """Totals of all rows with `backward` in the name, added up: they contain each other."""
    table = tidyprof.call_stacks(real)
    named = table["name"].str.contains("backward", case=False)
    return float(100 * table.loc[named, "total_ns"].sum() / _outermost_ns(table))


def all_rows(real: Profile) -> float:
    """Totals of all rows below BACKWARD, callers and called alike, as a share of all sampled
    time.
    """
    rows = tidyprof.call_stacks(real, root=BACKWARD)
    return float(100 * rows["total_ns"].sum() / _outermost_ns(tidyprof.call_stacks(real)))


def all_rows_of_both(real: Profile) -> float:
    """Totals of all rows below BACKWARD as a share of the totals of all rows."""
    rows, everything = tidyprof.call_stacks(real, root=BACKWARD), tidyprof.call_stacks(real)
    return float(100 * rows["total_ns"].sum() / everything["total_ns"].sum())


def _outermost_ns(table: pd.DataFrame) -> float:
    return float(table.loc[table["depth"] == 0, "total_ns"].sum())


def longest_gap_ns(steady: SteadyPart) -> int:
    """Length of the longest gap in ns; 0 where there is none."""
    lengths = tidyprof.gaps(steady.profile)["duration_ns"]
    return int(lengths.max()) if len(lengths) else 0


def kernel_ns_per_step(steady: SteadyPart) -> float:
    """Time of all kernels by step."""
    return float(tidyprof.kernels(steady.profile)["total_ns"].sum() / steady.steps)


def shorter_gap_problem(answer: Any, steady: SteadyPart) -> str | None:
    """What is wrong with a run that should do the same work with half the gap, None if it does."""
    if isinstance(answer, Path):
        if not answer.exists():
            return (
                f"`{answer.name}` is not there: did the cell above write to `one`, or end with an"
                " error?"
            )
        try:
            answer = own_run(answer)
        except ProfileReadError as error:
            return str(error)
    if isinstance(answer, Profile):
        if not len(tidyprof.steps(answer)):
            return (
                "This run marks no steps, so that it can't be compared: record it with `--roctx`,"
                " as in *Capture*."
            )
        answer = steady_part(answer)
    if not isinstance(answer, SteadyPart):
        return f"The folder of a run is asked, such as `fixed`; this is a {type(answer).__name__}."
    work = kernel_ns_per_step(answer) / kernel_ns_per_step(steady)
    if work < SAME_WORK:
        return (
            f"The GPU's kernels take only {100 * work:.0f} % of their time before: you gave it less"
            " to do. Keep model and batch size, and change what the host does."
        )
    before, after = longest_gap_ns(steady), longest_gap_ns(answer)
    if after > HALF * before:
        return (
            f"The largest gap took {before / 1e6:.1f} ms before and takes {after / 1e6:.1f} ms now:"
            " half is asked."
        )
    return None


def _changed(steady: SteadyPart, events: pd.DataFrame) -> SteadyPart:
    return replace(steady, profile=Profile(events, meta=dict(steady.profile.meta)))


def without_long_gaps(steady: SteadyPart) -> SteadyPart:
    """The same work with every gap above a quarter of the largest one taken out of the device's
    timeline.
    """
    long = (
        tidyprof.gaps(steady.profile)
        .query("duration_ns > @longest_gap_ns(@steady) / 4")
        .sort_values("start_ns")
    )
    events = steady.profile.device_events.copy()
    for gap in long[::-1].itertuples():
        events.loc[events["start_ns"] > gap.start_ns, "start_ns"] -= gap.duration_ns
    return _changed(steady, events)


def with_less_work(steady: SteadyPart) -> SteadyPart:
    """A run whose kernels take half as long."""
    events = steady.profile.events.copy()
    events.loc[events["kind"] == "kernel", "duration_ns"] //= 2
    return _changed(steady, events)


EXERCISES = (
    Exercise(
        id="03.1",
        answer=Number(sleep_per_image_ms, unit="ms", relative=0.03),
        mistakes=(
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * steady.steps,
                "The samples are those of all steady steps: divide by their number too.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * IMAGES,
                f"This is the sleep of a step. A step of this run loads {IMAGES} images.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * steady.steps * IMAGES,
                "This is all the sleep of the steady steps: divide by their images, which are"
                f" `unseen.steps` times {IMAGES}.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * steady.steps / STEPS,
                f"The command makes {STEPS} steps, but `unseen` has the steady ones alone:"
                " `unseen.steps`.",
            ),
            Mistake(
                lambda steady: sleep_per_image_ms(steady) * IMAGES / DEFAULT_IMAGES,
                f"You divided by {DEFAULT_IMAGES} images a step. What batch does the command of"
                " this run ask for?",
            ),
            Mistake(
                lambda steady: steady.step_ns / 1e6 / IMAGES,
                "This is all the time of an image. The program does more than sleep: count the"
                " samples in it.",
            ),
            Mistake(
                lambda steady: steady.step_ns / 1e6 / DEFAULT_IMAGES,
                f"This is a step by {DEFAULT_IMAGES} images. The program does more than sleep, and"
                " its batch differs.",
            ),
            Mistake(
                asleep,
                "This is the number of samples. Each stands for a second divided by"
                f" {SAMPLES_A_SECOND}.",
            ),
        ),
        hints=(
            "A sample has many rows, one for each function in its stack: count samples, not rows.",
            (
                '`rows["name"].str.contains("sleep")` chooses rows; `nunique` of their column'
                " `sample` counts the samples."
            ),
            (
                "1000 times the number of samples, over 500, over the number of images of all"
                " steady steps."
            ),
        ),
        insight=lambda steady: (
            f"By the square root {asleep(steady):,} samples may be off by"
            f" {asleep(steady) ** 0.5:.0f}, which is {100 * asleep(steady) ** -0.5:.0f} %: enough"
            " for one digit. The fault sleeps 5 ms for each image."
        ),
    ),
    Exercise(
        id="03.2",
        answer=Number(backward_share, unit="percent"),
        mistakes=(
            Mistake(
                backward_share_of_complete,
                "You divided by the complete stacks only. The stacks that were cut are part of the"
                " program too.",
            ),
            Mistake(
                backward_share_without_tool,
                "Samples that hold nothing but `__sigaction` are sampled time too: divide by the"
                " tree with all frames.",
            ),
            Mistake(
                backward_rows,
                "These rows contain each other: a sample counts once for each of its frames with"
                " such a name.",
            ),
            Mistake(
                all_rows,
                "You added up all rows of the tree: each holds the time of what it calls too. Take"
                " depth 0 alone.",
            ),
            Mistake(
                all_rows_of_both,
                "You added up all depths on both sides, so a deep stack counts more often than a"
                " flat one. Take depth 0 alone.",
            ),
            Mistake(
                lambda real: 100.0,
                "`percent` counts what is in the table, and `root` has left out the rest. Divide by"
                " the whole tree.",
            ),
        ),
        hints=(
            (
                '`tidyprof.call_stacks(real, root="run_backward")` keeps stacks with that function,'
                " from there inwards."
            ),
            "Rows of depth 0 are the outermost: their `total_ns` add up to the time of a tree.",
            "Divide the sum of depth 0 of the tree with `root` by that of the tree without.",
        ),
        insight=lambda real: (
            f"Of the complete stacks alone it would be {backward_share_of_complete(real):.0f} %."
            " What is cut is not gone, it only hangs elsewhere in the tree."
        ),
    ),
    Exercise(
        id="03.3",
        answer=Property(shorter_gap_problem, without_long_gaps),
        mistakes=(
            Mistake(lambda steady: steady, "half is asked"),
            Mistake(with_less_work, "you gave it less to do"),
            Mistake(lambda steady: "fixed", "The folder of a run is asked"),
            Mistake(
                lambda steady: Path("fixed"),
                "`fixed` is not there: did the cell above write to `one`, or end with an error?",
            ),
        ),
        hints=(
            (
                "`python -m cifar_train --help` lists the options. Which of them change how images"
                " get ready?"
            ),
            (
                "The stack ends where one image after the other is fetched, by the process that"
                " should feed the GPU."
            ),
            (
                "Other processes could do that beside the training (`--num-workers`), or a batch at"
                " once (`--batched-transforms`). Write into `$FOLDER/fixed`, and answer with"
                " `fixed`."
            ),
        ),
        insight=(
            "One gap less. Look at the next largest one before you go on: the step has a new"
            " bottleneck."
        ),
    ),
)
