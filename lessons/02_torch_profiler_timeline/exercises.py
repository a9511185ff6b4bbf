"""Exercises of lesson 02, where does a step go? Each takes a Profile: your own run or the recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tidyprof
from cifar_train.hooks import PHASES
from proflab.exercises import Choice, Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

KERNELS = ("kernel", "collective")
"""What the profiler itself calls a kernel: collectives run as kernels too."""

SUM_TOLERANCE = 0.001
"""How far the parts may be from the step, as a fraction of it."""

COMPUTE_TOLERANCE = 0.03
"""How far `compute` may be off, as a fraction: fills may be left out of it."""


def last_step_phases(profile: Profile) -> pd.DataFrame:
    """The phases of the last recorded step, the longest first."""
    found = tidyprof.phases(profile)
    return found[found["step"] == found["step"].max()].sort_values("duration_ns", ascending=False)


def _is_convolution(operators: pd.DataFrame) -> pd.Series:
    return operators["name"].str.contains("conv", case=False)


def convolution_share(profile: Profile) -> float:
    """Self time of all convolution operators, in percent of all self time."""
    table = tidyprof.operators(profile)
    return float(table.loc[_is_convolution(table), "percent"].sum())


def convolution_totals(profile: Profile) -> float:
    """Total times of the same operators: nested calls count several times."""
    table = tidyprof.operators(profile)
    return float(100 * table.loc[_is_convolution(table), "total_ns"].sum() / table["self_ns"].sum())


def largest_convolution(profile: Profile) -> float:
    """Share of the one convolution operator with the most self time."""
    table = tidyprof.operators(profile)
    return float(table.loc[_is_convolution(table), "percent"].max())


def busy_fraction(profile: Profile, kinds: tuple[str, ...] = KERNELS, column: str = "union_ns") -> float:
    """Time in which at least one event of these kinds ran, as a fraction of the span of all device events."""
    table = tidyprof.busy(profile, kinds)
    return float(table[column].sum() / table["span_ns"].sum())


def exposed_share(profile: Profile, column: str = "exposed_communication_ns", whole: str = "total_ns") -> float:
    """Communication with no computation beside it, in percent of the time from first to last device event."""
    table = tidyprof.overlap(profile)
    return float(100 * table[column].sum() / table[whole].sum())


def second_step(profile: Profile, timeline: str) -> tuple[int, int]:
    """Start and end of the second recorded step in ns. Raises ValueError if there is none."""
    found = tidyprof.steps(profile, timeline)
    if len(found) < 2:
        raise ValueError("the recording has fewer than two steps")
    step = found.iloc[1]
    return int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])


def launched_in_second_step(profile: Profile, kinds: tuple[str, ...] = ("kernel",), column: str = "launch_ns") -> int:
    """How many events of these kinds the host launched during its second step; or `column` gives another time."""
    begin, end = second_step(profile, "host")
    events = profile.device_events
    chosen = events[events["kind"].isin(kinds)]
    return int(((chosen[column] >= begin) & (chosen[column] < end)).sum())


def launched_and_started_in_second_step(profile: Profile) -> int:
    """How many kernels the host launched during its second step that also started in it."""
    begin, end = second_step(profile, "host")
    kernels = profile.events[profile.events["kind"] == "kernel"]
    return int(((kernels["launch_ns"] >= begin) & (kernels["start_ns"] < end)).sum())


def kernels_per_step(profile: Profile) -> float:
    """All kernels of the file divided by the number of steps: also those of earlier steps."""
    return float((profile.events["kind"] == "kernel").sum() / len(tidyprof.steps(profile)))


def second_step_parts(profile: Profile) -> dict[str, int]:
    """One way to divide the device's second step: sets of time that do not overlap, in ns."""
    from tidyprof import Intervals

    step = Intervals.window(*second_step(profile, "device"))
    time = tidyprof.DeviceTime.of(profile.device_events)
    return {
        "compute": (step & time.computation).length,
        "exposed communication": (step & time.exposed_communication).length,
        "exposed copy": (step & time.exposed_copy).length,
        "idle": (step - time.busy).length,
    }


def _summed_parts(profile: Profile) -> dict[str, int]:
    """The wrong budget that adds durations: streams overlap."""
    from tidyprof import Intervals

    parts = second_step_parts(profile)
    step = Intervals.window(*second_step(profile, "device"))
    communication = step & tidyprof.DeviceTime.of(profile.device_events).communication
    return {**parts, "exposed communication": communication.length}


def _without_idle(profile: Profile) -> dict[str, int]:
    parts = second_step_parts(profile)
    del parts["idle"]
    return parts


def budget_problem(answer: Any, profile: Profile) -> str | None:
    """What is wrong with a budget of the device's second step, None if its parts add up to it."""
    if not isinstance(answer, Mapping) and not hasattr(answer, "to_dict"):
        return f"A dictionary of parts and nanoseconds is asked, this is a {type(answer).__name__}."
    parts = {str(name): float(length) for name, length in dict(answer).items()}
    begin, end = second_step(profile, "device")
    if len(parts) < 3 or "compute" not in parts:
        return "Name at least three parts, and call one of them `compute`."
    if min(parts.values()) < 0:
        return "A part is negative: what was subtracted from what?"
    share = sum(parts.values()) / (end - begin)
    if share > 1 + SUM_TOLERANCE:
        return f"The parts add up to {100 * share:.1f} % of the step: some time is counted twice."
    if share < 1 - SUM_TOLERANCE:
        return f"The parts add up to {100 * share:.1f} % of the step: some time is in no part, or not in ns."
    compute = second_step_parts(profile)["compute"]
    if abs(parts["compute"] - compute) > COMPUTE_TOLERANCE * compute:
        return "The sum is right, `compute` is not: it is the time in which a kernel ran that is no collective."
    return None


EXERCISES = (
    Exercise(
        id="02.1",
        answer=Choice(lambda data: str(last_step_phases(data)["phase"].iloc[0]), PHASES),
        mistakes=(
            Mistake(
                lambda data: last_step_phases(data)["phase"].iloc[-1],
                "That is the shortest phase: `calls` counts ranges, `duration_ns` is the time.",
            ),
            Mistake(
                lambda data: last_step_phases(data)["phase"].iloc[1],
                "That one comes second: compare `duration_ns` within the last step only.",
            ),
        ),
        hints=(
            "Look at the rows of the last step in the table of phases.",
            "The column to compare is `duration_ns`, or `percent` of the step.",
            'Choose the rows with `found[found["step"] == found["step"].max()]`, then sort by `duration_ns`.',
        ),
        insight=lambda data: (
            f"It takes {last_step_phases(data)['percent'].iloc[0]:.0f} % of that step. "
            "Compare the other steps before you call it a rule."
        ),
    ),
    Exercise(
        id="02.2",
        answer=Number(convolution_share, unit="percent"),
        mistakes=(
            Mistake(
                convolution_totals,
                "You added total times. An operator's total contains the operators that it calls: use self times.",
            ),
            Mistake(
                largest_convolution,
                "That is the largest convolution operator alone: forward and backward have different names.",
            ),
        ),
        hints=(
            "`tidyprof.operators(mine)` has a row per operator name.",
            "Only self times may be added up; `percent` is the share of self time.",
            'Choose the rows with `table["name"].str.contains("conv", case=False)`, then add up `percent`.',
        ),
        insight=lambda data: f"Added up as totals, the same operators would claim {convolution_totals(data):.0f} %.",
    ),
    Exercise(
        id="02.3",
        answer=Number(busy_fraction, unit="fraction"),
        mistakes=(
            Mistake(
                lambda data: busy_fraction(data, column="sum_ns"),
                "More than the whole: you added durations, and the streams overlap. Take the union of the intervals.",
            ),
            Mistake(
                lambda data: busy_fraction(data, tidyprof.DEVICE_KINDS),
                "This also counts copies and fills: only kernels are asked, `busy(gpu, [...])` takes the kinds.",
            ),
            Mistake(
                lambda data: busy_fraction(data, ("kernel",)),
                "The collectives are missing: they are kernels too, and they occupy the GPU.",
            ),
        ),
        hints=(
            "`tidyprof.busy` takes the kinds of events as its second argument.",
            "`union_ns` counts overlapping time once, `span_ns` is the time from first to last device event.",
            '`table = tidyprof.busy(gpu, ["kernel", "collective"])`, then `union_ns` divided by `span_ns`.',
        ),
        insight=lambda data: (
            f"The durations add up to {busy_fraction(data, column='sum_ns'):.2f} of the span, which is no utilisation."
        ),
    ),
    Exercise(
        id="02.4",
        answer=Number(exposed_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda data: exposed_share(data, "communication_ns"),
                "This is all communication. The part that runs beside computation is hidden: leave it out.",
            ),
            Mistake(
                lambda data: exposed_share(data, whole="busy_ns"),
                "This is the share of the busy time; the whole recorded time is asked, idle time included.",
            ),
            Mistake(
                lambda data: exposed_share(data, "computation_ns"),
                "This is the computation. Exposed communication has a column of its own.",
            ),
        ),
        hints=(
            "`tidyprof.overlap(gpu)` divides the recorded time.",
            "The column is `exposed_communication_ns`, the whole is `total_ns`.",
            '`100 * table["exposed_communication_ns"] / table["total_ns"]`, or the column that ends in `_percent`.',
        ),
        insight=lambda data: (
            f"Computation takes {exposed_share(data, 'computation_ns'):.0f} %. So look at the communication first."
        ),
    ),
    Exercise(
        id="02.5",
        answer=Number(launched_in_second_step, relative=0),
        mistakes=(
            Mistake(
                lambda data: launched_in_second_step(data, column="start_ns"),
                "These started on the GPU during that step of the host. Some were launched earlier: use `launch_ns`.",
            ),
            Mistake(
                kernels_per_step,
                "You divided all kernels by all steps: the file also holds kernels launched before its first step.",
            ),
            Mistake(
                lambda data: launched_in_second_step(data, tidyprof.DEVICE_KINDS),
                "This counts every device event; only those of kind `kernel` are asked.",
            ),
        ),
        hints=(
            "`tidyprof.launches(gpu)` has a row per launched event, `tidyprof.steps(gpu)` the host's steps.",
            "Compare `launch_ns` with the step's `start_ns` and its end; `kind` tells kernels from copies.",
            '`made["launch_ns"].between(begin, end - 1) & (made["kind"] == "kernel")` marks the rows to count.',
        ),
        insight=lambda data: (
            f"In that time {launched_in_second_step(data, column='start_ns'):,} kernels started on the GPU, "
            f"of which {launched_and_started_in_second_step(data):,} were launched in the same step."
        ),
    ),
    Exercise(
        id="02.6",
        answer=Property(budget_problem, second_step_parts),
        mistakes=(
            Mistake(_summed_parts, "some time is counted twice"),
            Mistake(_without_idle, "some time is in no part"),
            Mistake(lambda data: {name: part / 1e3 for name, part in second_step_parts(data).items()}, "or not in ns"),
            Mistake(lambda data: {"step": sum(second_step_parts(data).values())}, "at least three parts"),
        ),
        hints=(
            "Work with sets of time: `&` is both, `|` is either, `-` is the first without the second.",
            "`tidyprof.DeviceTime.of(gpu.device_events)` has the sets `computation`, `exposed_communication`, "
            "`exposed_copy` and `busy`; `.length` is a set's time in ns.",
            "`Intervals.window(start, end)` is the step. What is left of it after all parts is `step - time.busy`.",
        ),
        insight="Parts that add up can be trusted to hide nothing. Shares that don't add up need a second look.",
    ),
)
