"""Exercises of lesson 02, where does a step go? Each takes a Profile: your own run or a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property, Text
from tidyprof import Intervals

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

SUM_TOLERANCE = 0.001
"""How far the parts may be from the step, as a fraction of it."""

COMPUTE_TOLERANCE = 0.03
"""How far `compute` may be off, as a fraction: fills may be left out of it."""

CONVOLUTIONS = ("aten::miopen_convolution", "aten::convolution")
"""Operators that launch the kernels of a convolution's forward pass, on ROCm and in the model of a GPU."""


def convolutions(profile: Profile) -> pd.DataFrame:
    """Rows of `operators` with `conv` in their name; as torch does, runtime calls are taken out of the self times."""
    table = tidyprof.operators(profile, ("operator", "runtime"))
    return table[table["name"].str.contains("conv", case=False)]


def convolution_totals(profile: Profile) -> float:
    """Total times of the same operators: nested calls count several times."""
    return float(100 * convolutions(profile)["total_ns"].sum() / tidyprof.operators(profile)["self_ns"].sum())


def convolution_share_with_ranges(profile: Profile) -> float:
    """Self time of convolutions as a share of all rows' self time, ranges included."""
    everything = tidyprof.operators(profile, ("operator", "annotation"))["self_ns"].sum()
    return float(100 * convolutions(profile)["self_ns"].sum() / everything)


def shapes_by(profile: Profile, value: str) -> list[str]:
    """Input shapes of the forward convolutions, the largest `sum` or `mean` of device time first."""
    events = profile.events
    operators = events.loc[events["name"].isin(CONVOLUTIONS), ["external_id", "input_shapes"]]
    work = profile.device_events.dropna(subset=["external_id"])[["external_id", "duration_ns"]]
    both = work.merge(operators.astype({"input_shapes": str}), on="external_id").groupby("input_shapes")
    return both["duration_ns"].agg(value).sort_values(ascending=False).index.tolist()


def communication(profile: Profile, column: str = "hidden_communication_ns", whole: str = "communication_ns") -> float:
    """A column of `overlap` in percent of another. Computation there has fills as well, which run for a short time."""
    table = tidyprof.overlap(profile)
    return float(100 * table[column].sum() / table[whole].sum())


def from_graphs(profile: Profile) -> pd.Series:
    """For each device event whether `hipGraphLaunch` started it."""
    events = profile.events
    calls = events.loc[events["name"] == "hipGraphLaunch", "correlation_id"]
    return profile.device_events["correlation_id"].isin(calls)


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


def kernels_per_step(profile: Profile) -> float:
    """All kernels of the file divided by the number of steps: also those of earlier steps."""
    return float((profile.events["kind"] == "kernel").sum() / len(tidyprof.steps(profile)))


def second_step_parts(profile: Profile) -> dict[str, int]:
    """One way to divide the device's second step: sets of time that do not overlap, in ns."""
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
    parts = second_step_parts(profile)
    step = Intervals.window(*second_step(profile, "device"))
    communication = step & tidyprof.DeviceTime.of(profile.device_events).communication
    return {**parts, "exposed communication": communication.length}


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
        answer=Number(lambda data: convolutions(data)["percent"].sum(), unit="percent", relative=0.03),
        mistakes=(
            Mistake(
                convolution_totals,
                "You added total times. An operator's total contains the operators that it calls: use self times.",
            ),
            Mistake(
                lambda data: convolutions(data)["percent"].max(),
                "That is the largest convolution operator alone: forward and backward have different names.",
            ),
            Mistake(
                convolution_share_with_ranges,
                "The ranges are in the whole: leave out the rows whose `is_user_annotation` is true.",
            ),
        ),
        hints=(
            "Two sums over the rows: one over those with `conv` in their `key`, one over all operators.",
            "Only self times may be added up: `self_cpu_time_total`, in microseconds.",
            '`sum(row.self_cpu_time_total for row in operators if "conv" in row.key.lower())` is the first sum.',
        ),
        insight=lambda data: f"Added up as totals, the same operators would claim {convolution_totals(data):.0f} %.",
    ),
    Exercise(
        id="02.2",
        answer=Text(lambda data: shapes_by(data, "sum")[0]),
        mistakes=(
            Mistake(
                lambda data: shapes_by(data, "mean")[0],
                "That shape takes longest for each kernel. All its kernels together take less than those of another.",
            ),
            Mistake(
                lambda data: shapes_by(data, "sum")[1],
                "That one comes second: add up `duration_ns` by `input_shapes`.",
            ),
        ),
        hints=(
            "Choose the rows of `launched` by `name`, then group them.",
            "The column to group by is `input_shapes`, the one to add up `duration_ns`.",
            '`chosen.groupby("input_shapes", observed=True)["duration_ns"].sum().idxmax()`',
        ),
        insight=lambda data: (
            f"It is one of {len(shapes_by(data, 'sum'))} shapes. Images, channels, height and width come first, "
            "then the weights."
        ),
    ),
    Exercise(
        id="02.3",
        answer=Number(communication, unit="percent", relative=0.02),
        mistakes=(
            Mistake(
                lambda data: communication(data, "exposed_communication_ns"),
                "That is the exposed share: the communication with nothing beside it.",
            ),
            Mistake(
                lambda data: communication(data, whole="computation_ns"),
                "You divided by the time of the other kernels. The share of the communication is asked.",
            ),
        ),
        hints=(
            "You need three lengths: of the collectives, of the other kernels, and of both together.",
            "`union_ns(a) + union_ns(b) - union_ns(both)` is the time in which both run.",
            'Rows of one kind: `kernels[kernels["kind"] == "collective"]`. Divide by their `union_ns`.',
        ),
        insight=lambda data: (
            f"The rest, {100 - communication(data):.0f} % of the communication, makes the steps longer."
        ),
    ),
    Exercise(
        id="02.4",
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
            f"In that time {launched_in_second_step(data, column='start_ns'):,} kernels started on the GPU: "
            "another number, since the host runs ahead."
        ),
    ),
    Exercise(
        id="02.5",
        answer=Property(budget_problem, second_step_parts),
        mistakes=(
            Mistake(_summed_parts, "some time is counted twice"),
            Mistake(lambda data: second_step_parts(data) | {"idle": 0}, "some time is in no part"),
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
    Exercise(
        id="02.6",
        answer=Number(lambda data: 100 * from_graphs(data).mean(), unit="percent", relative=0.0005),
        mistakes=(
            Mistake(
                lambda data: 100 * from_graphs(data)[data.device_events["kind"] == "kernel"].mean(),
                "That is the share of the kernels. Copies and fills are device events too.",
            ),
            Mistake(
                lambda data: 100 * float((data.events["name"] == "hipGraphLaunch").sum()) / len(data.device_events),
                "You counted the calls. One call starts many events: those with its correlation id.",
            ),
        ),
        hints=(
            "The call is a row of `unseen.events`; what it started has the same `correlation_id`.",
            '`unseen.device_events["correlation_id"].isin(...)` marks the events, `.mean()` is their share.',
            'The ids: `unseen.events.loc[unseen.events["name"] == "hipGraphLaunch", "correlation_id"]`.',
        ),
        insight="None of them has an operator or a line. To see those, run the same model without its graph.",
    ),
)
