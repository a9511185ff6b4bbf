"""Exercises of lesson 03: what is the CPU doing while the GPU waits?

The first four and the last take a `SteadyPart` of a run under rocprof-sys, the fifth the recording of call stacks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tidyprof
from cifar_train.hooks import PHASES
from proflab.exercises import Choice, Exercise, Mistake, Number, Property, Text
from proflab.parts.stack_samples import main_thread, samples_in, samples_taken, traced_and_sampled
from proflab.parts.steady_part import SteadyPart, steady_part
from tidyprof.tables.contract import Profile

if TYPE_CHECKING:
    import pandas as pd

SHORT_NS = 1_000_000
"""Gaps below this are short ones: one millisecond."""

SAMPLER = ("__sigaction",)
"""The function through which the sampler itself enters every stack (libc's return from a signal)."""

LAUNCH = "hipLaunchKernel"
"""The HIP call that launches most kernels."""

BACKWARD = "run_backward"
"""In the name of the C++ function with which PyTorch begins the backward pass."""

COMPLETE = "__libc_start_main"
"""Where the stacks of a main thread begin, if they are complete."""

HALF = 0.5
"""The largest gap of exercise 03.6 must shrink to this part of what it was, or less."""

SAME_WORK = 0.9
"""The kernels of a step may not take less than this part of what they took, or the work was changed."""


def found_gaps(steady: SteadyPart) -> pd.DataFrame:
    """The GPU's gaps in the steady steps, longest first."""
    return tidyprof.gaps(steady.profile)


def range_of_largest_gap(steady: SteadyPart) -> str:
    """The range that the program was in during the largest gap."""
    return str(found_gaps(steady)["host_range"].iloc[0])


def range_with_most_gaps(steady: SteadyPart) -> str:
    """The range with the largest number of gaps."""
    return str(found_gaps(steady)["host_range"].value_counts().idxmax())


def short_share(steady: SteadyPart) -> float:
    """Idle time in gaps below SHORT_NS, in percent of all idle time."""
    idle = found_gaps(steady)["duration_ns"]
    return float(100 * idle[idle < SHORT_NS].sum() / idle.sum())


def short_count_share(steady: SteadyPart) -> float:
    """The same share by number of gaps instead of time."""
    return float(100 * (found_gaps(steady)["duration_ns"] < SHORT_NS).mean())


def short_share_of_steps(steady: SteadyPart) -> float:
    """Idle time in short gaps, in percent of the steady steps."""
    idle = found_gaps(steady)["duration_ns"]
    return float(100 * idle[idle < SHORT_NS].sum() / steady.duration_ns)


def stacks_in_largest_gap(steady: SteadyPart) -> pd.DataFrame:
    """Call tree of the main thread's samples during the largest gap, without the sampler's own frame."""
    return tidyprof.call_stacks(_taken_in_largest_gap(steady), without=SAMPLER)


def _taken_in_largest_gap(steady: SteadyPart) -> Profile:
    thread = main_thread(steady.profile)
    return samples_taken(steady.profile, during=found_gaps(steady).head(1), thread=thread)


def function_in_largest_gap(steady: SteadyPart) -> tuple[str, str]:
    """Full and short name of the function in which most of these samples were taken."""
    stacks = stacks_in_largest_gap(steady)
    own = stacks.groupby("name")["self_count"].sum()
    name = str(own.idxmax())
    return name, str(stacks.loc[stacks["name"] == name, "short_name"].iloc[0])


def outermost_in_largest_gap(steady: SteadyPart) -> str:
    """The function with which most of these stacks begin."""
    stacks = stacks_in_largest_gap(steady)
    return str(stacks.loc[stacks["depth"] == 0].sort_values("count")["name"].iloc[-1])


def launches_per_step(steady: SteadyPart) -> float:
    """Calls of LAUNCH by step."""
    return _of_launch(steady, "calls") / steady.steps


def _of_launch(steady: SteadyPart, column: str) -> float:
    table = traced_and_sampled(steady.profile)
    return float(table.loc[table["name"] == LAUNCH, column].sum())


def calls_per_step(steady: SteadyPart) -> float:
    """All runtime calls by step."""
    return float(traced_and_sampled(steady.profile)["calls"].sum() / steady.steps)


def backward_share(real: Profile) -> float:
    """Sampled time in stacks that contain BACKWARD, in percent of all sampled time."""
    return 100 * _outermost_ns(tidyprof.call_stacks(real, root=BACKWARD)) / _outermost_ns(tidyprof.call_stacks(real))


def backward_share_of_complete(real: Profile) -> float:
    """The same as a share of the stacks that begin where a program begins."""
    everything = tidyprof.call_stacks(real)
    complete = everything.loc[(everything["depth"] == 0) & (everything["name"] == COMPLETE), "total_ns"].sum()
    return float(100 * _outermost_ns(tidyprof.call_stacks(real, root=BACKWARD)) / complete)


def backward_totals(real: Profile) -> float:
    """Totals of all rows with `backward` in the name: rows that contain each other."""
    table = tidyprof.call_stacks(real)
    named = table["name"].str.contains("backward", case=False)
    return float(100 * table.loc[named, "total_ns"].sum() / _outermost_ns(table))


def backward_self(real: Profile) -> float:
    """Time in these functions themselves."""
    table = tidyprof.call_stacks(real, without=SAMPLER)
    named = table["name"].str.contains("backward", case=False)
    return float(100 * table.loc[named, "self_ns"].sum() / _outermost_ns(table))


def _outermost_ns(table: pd.DataFrame) -> float:
    return float(table.loc[table["depth"] == 0, "total_ns"].sum())


def longest_gap_ns(steady: SteadyPart) -> int:
    """Length of the longest gap in ns; 0 where there is none."""
    lengths = found_gaps(steady)["duration_ns"]
    return int(lengths.max()) if len(lengths) else 0


def kernel_ns_per_step(steady: SteadyPart) -> float:
    """Time of all kernels by step."""
    return float(tidyprof.kernels(steady.profile)["total_ns"].sum() / steady.steps)


def shorter_gap_problem(answer: Any, steady: SteadyPart) -> str | None:
    """What is wrong with a run that should do the same work with half the gap, None if it does."""
    if isinstance(answer, Profile):
        answer = steady_part(answer)
    if not isinstance(answer, SteadyPart):
        return f'A run is asked, such as `own_run("runs/03/fixed")`; this is a {type(answer).__name__}.'
    work = kernel_ns_per_step(answer) / kernel_ns_per_step(steady)
    if work < SAME_WORK:
        return (
            f"The GPU's kernels take only {100 * work:.0f} % of their time before: you gave it less to do. "
            "Keep model and batch size, and change what the host does."
        )
    before, after = longest_gap_ns(steady), longest_gap_ns(answer)
    if after > HALF * before:
        return f"The largest gap took {before / 1e6:.1f} ms before and takes {after / 1e6:.1f} ms now: half is asked."
    return None


def without_long_gaps(steady: SteadyPart) -> SteadyPart:
    """The same work with every gap above a quarter of the largest one taken out of the device's timeline."""
    long = found_gaps(steady).query("duration_ns > @longest_gap_ns(@steady) / 4").sort_values("start_ns")
    events = steady.profile.device_events.copy()
    for gap in long[::-1].itertuples():
        events.loc[events["start_ns"] > gap.start_ns, "start_ns"] -= gap.duration_ns
    return replace(steady, profile=Profile(events, meta=dict(steady.profile.meta)))


def with_less_work(steady: SteadyPart) -> SteadyPart:
    """A run whose kernels take half as long."""
    events = steady.profile.events.copy()
    events.loc[events["kind"] == "kernel", "duration_ns"] //= 2
    return replace(steady, profile=Profile(events, meta=dict(steady.profile.meta)))


EXERCISES = (
    Exercise(
        id="03.1",
        answer=Choice(range_of_largest_gap, options=PHASES),
        mistakes=(
            Mistake(
                range_with_most_gaps,
                lambda steady: (
                    f"In `{range_with_most_gaps(steady)}` there are the most gaps, but they are short. Which range "
                    "belongs to the longest?"
                ),
            ),
            Mistake(
                lambda steady: "forward",
                "There the GPU waits often, and never for long. Take the first row of `found`.",
            ),
        ),
        hints=(
            "The table of gaps is sorted: the longest is the first row.",
            "`host_range` is the range that overlaps the gap longest.",
            '`found["host_range"].iloc[0]`',
        ),
        insight="The range tells where in your script. What the host did there, only its call stack tells.",
    ),
    Exercise(
        id="03.2",
        answer=Number(short_share, unit="percent"),
        mistakes=(
            Mistake(
                short_count_share,
                "This is their share of the number of gaps. Add up durations, not rows.",
            ),
            Mistake(
                short_share_of_steps,
                "This is their share of the steps. The idle time is the whole here: the sum of all gaps.",
            ),
        ),
        hints=(
            "Durations are in `duration_ns`; a millisecond has a million nanoseconds.",
            "Select the short rows, add up their durations, and divide by the sum of all.",
            '`short = found["duration_ns"] < 1e6`, then `found.loc[short, "duration_ns"].sum()` over the whole sum.',
        ),
        insight=lambda steady: (
            f"By number it is {short_count_share(steady):.1f} %. Few long gaps and many short ones have different "
            "causes, so look at them apart."
        ),
    ),
    Exercise(
        id="03.3",
        answer=Text(function_in_largest_gap),
        mistakes=(
            Mistake(
                outermost_in_largest_gap,
                "This is the outermost function: nearly every stack begins with it. What is at the other end?",
            ),
            Mistake(
                lambda steady: str(found_gaps(steady)["host_call"].iloc[0]),
                "This call covers a few microseconds of the gap and did not cause it. See the stacks.",
            ),
        ),
        hints=(
            "In the table, `self_count` says in how many samples a function was the innermost one.",
            "`stacks` has one row per path, and a function can be at the end of several: add up by name.",
            '`stacks.groupby("name")["self_count"].sum().idxmax()`',
        ),
        insight=lambda steady: (
            f"{samples_in(_taken_in_largest_gap(steady))} samples were taken in this gap. Read the path above the "
            "function as well: it says who asked for this work."
        ),
    ),
    Exercise(
        id="03.4",
        answer=Number(launches_per_step),
        mistakes=(
            Mistake(
                lambda steady: _of_launch(steady, "samples"),
                "In so many samples it was seen. Samples are not calls: take the traced ones.",
            ),
            Mistake(
                lambda steady: _of_launch(steady, "samples") / steady.steps,
                "These are samples per step, and samples are not calls: take the traced ones.",
            ),
            Mistake(
                lambda steady: _of_launch(steady, "calls"),
                lambda steady: f"This is for all {steady.steps} steady steps; one step is asked.",
            ),
            Mistake(calls_per_step, f"These are the calls of all names; only those of `{LAUNCH}` are asked."),
        ),
        hints=(
            "`both` has one row per name.",
            "`calls` counts what was traced in all steady steps, `steady.steps` how many these are.",
            f'`both.loc[both["name"] == "{LAUNCH}", "calls"].sum() / steady.steps`',
        ),
        insight=lambda steady: f"It stands in {_of_launch(steady, 'samples'):.0f} samples of all steady steps.",
    ),
    Exercise(
        id="03.5",
        answer=Number(backward_share, unit="percent"),
        mistakes=(
            Mistake(
                backward_share_of_complete,
                "You divided by the complete stacks only. The stacks that were cut are part of the program too.",
            ),
            Mistake(
                backward_totals,
                "These rows contain each other: a sample counts once for each of its frames with such a name.",
            ),
            Mistake(
                backward_self,
                "This is the time in these functions themselves. What they call belongs to the backward pass too.",
            ),
            Mistake(
                lambda real: 100.0,
                "`percent` counts what is in the table, and `root` has left out the rest. Divide by the whole tree.",
            ),
        ),
        hints=(
            '`tidyprof.call_stacks(real, root="run_backward")` keeps stacks with that function, from there inwards.',
            "Rows of depth 0 are the outermost: their `total_ns` add up to the time of a tree.",
            "Divide the sum of depth 0 of the tree with `root` by that of the tree without.",
        ),
        insight=lambda real: (
            f"Of the complete stacks alone it would be {backward_share_of_complete(real):.0f} %. What is cut is not "
            "gone, it only hangs elsewhere in the tree."
        ),
    ),
    Exercise(
        id="03.6",
        answer=Property(shorter_gap_problem, without_long_gaps),
        mistakes=(
            Mistake(lambda steady: steady, "half is asked"),
            Mistake(with_less_work, "you gave it less to do"),
            Mistake(lambda steady: "runs/03/fixed", "A run is asked"),
        ),
        hints=(
            "`python -m cifar_train --help` lists the options. Which of them change how images get ready?",
            "The stack ends where single images are transformed. One option transforms a whole batch at once.",
            "Capture as before with `--batched-transforms` and another folder, then `own_run` of that folder.",
        ),
        insight="One gap less. Look at the next largest one before you go on: the step has a new bottleneck.",
    ),
)
