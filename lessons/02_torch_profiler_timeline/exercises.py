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

SUM_TOLERANCE = 1e-5
"""How far the parts may be from the step, as a fraction of it: less than any part that can be counted twice."""

PART_TOLERANCE = 0.03
"""How far `compute` and `data_wait` may be off, as a fraction: fills may be left out of the first."""

TWICE_TOLERANCE = 0.1
"""How near the excess must be to what was probably counted twice, as a fraction of that."""


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


def shapes_of_the_largest(profile: Profile, value: str) -> list[str]:
    """Input shapes of the operator that launched the kernel with the most time, the largest `value` of its durations
    (`sum`, `mean`, `size`) first."""
    largest = tidyprof.kernels(profile)["short_name"].iloc[0]
    events = profile.events
    operators = events.loc[events["kind"] == "operator", ["external_id", "input_shapes"]]
    work = profile.device_events.dropna(subset=["external_id"])[["external_id", "short_name", "duration_ns"]]
    both = work[work["short_name"] == largest].merge(operators.astype({"input_shapes": str}), on="external_id")
    by_shape = both.groupby("input_shapes")["duration_ns"].agg(value)
    return by_shape.sort_values(ascending=False, kind="stable").index.tolist()


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


def started_in_second_step(profile: Profile) -> int:
    """The same count by the table of launches, of what started on the device then."""
    begin, end = second_step(profile, "host")
    launches = tidyprof.launches(profile)
    return int((launches["start_ns"].between(begin, end - 1) & (launches["kind"] == "kernel")).sum())


def kernels_per_step(profile: Profile) -> float:
    """All kernels of the file divided by the number of steps: also those of earlier steps."""
    return float((profile.events["kind"] == "kernel").sum() / len(tidyprof.steps(profile)))


def loading(profile: Profile) -> Intervals:
    """The time in which the host is in its range `data`."""
    events = profile.events
    ranges = events[(events["kind"] == "annotation") & (events["name"] == "data")]
    return Intervals.union(ranges["start_ns"], ranges["start_ns"] + ranges["duration_ns"])


def second_step_parts(profile: Profile) -> dict[str, int]:
    """One way to divide the device's second step: sets of time that do not overlap, in ns."""
    step = Intervals.window(*second_step(profile, "device"))
    time, data = tidyprof.DeviceTime.of(profile.device_events), loading(profile)
    return {
        "compute": (step & time.computation).length,
        "communication": (step & time.exposed_communication).length,
        "copy": (step & time.exposed_copy).length,
        "data_wait": (step & (data - time.busy)).length,
        "idle": (step - time.busy - data).length,
    }


def counted_twice(profile: Profile) -> dict[str, tuple[str, int]]:
    """Part of `second_step_parts` that is likely to hold what another part has already -> what that is, its ns."""
    step = Intervals.window(*second_step(profile, "device"))
    time, data = tidyprof.DeviceTime.of(profile.device_events), loading(profile)
    copies, beside = step & time.exposed_copy, step & data & time.busy
    return {
        "idle": ("the copies: idle is what `use.busy` leaves, not `use.computation`", (copies - data).length),
        "data_wait": ("what the device does during `data`: take `use.busy` away from it", beside.length),
    }


def budget_with_twice(profile: Profile, part: str) -> dict[str, int]:
    """The wrong budget in which `part` holds what another part has already."""
    parts = second_step_parts(profile)
    return {**parts, part: parts[part] + counted_twice(profile)[part][1]}


def busy_as_compute(profile: Profile) -> dict[str, int]:
    """The wrong budget that calls everything that the device does computing."""
    parts = second_step_parts(profile)
    copied = parts.pop("copy") + parts.pop("communication")
    return {**parts, "compute": parts["compute"] + copied}


def _sum_problem(excess: float, length: int, profile: Profile) -> str | None:
    """What is wrong with the sum of a budget that is `excess` ns longer than the step of `length` ns."""
    share = f"The parts add up to {100 * (1 + excess / length):.2f} % of the step:"
    if excess < -SUM_TOLERANCE * length:
        return f"{share} some time is in no part, or not in ns."
    if excess <= SUM_TOLERANCE * length:
        return None
    for what, twice in counted_twice(profile).values():
        if abs(excess - twice) <= TWICE_TOLERANCE * twice:
            return f"{share} some time is counted twice, probably {what}."
    return f"{share} some time is counted twice."


def budget_problem(answer: Any, profile: Profile) -> str | None:
    """What is wrong with a budget of the device's second step, None if its parts add up to it."""
    if not isinstance(answer, Mapping) and not hasattr(answer, "to_dict"):
        return f"A dictionary of parts and nanoseconds is asked, this is a {type(answer).__name__}."
    parts = {str(name): float(length) for name, length in dict(answer).items()}
    if len(parts) < 3 or not {"compute", "data_wait"} <= set(parts):
        return "Name at least three parts, and call one of them `compute` and one `data_wait`."
    if min(parts.values()) < 0:
        return "A part is negative: what was subtracted from what?"
    begin, end = second_step(profile, "device")
    if problem := _sum_problem(sum(parts.values()) - (end - begin), end - begin, profile):
        return problem
    right = second_step_parts(profile)
    if abs(parts["compute"] - right["compute"]) > PART_TOLERANCE * right["compute"]:
        return "The sum is right, `compute` is not: it is the time in which a kernel ran that is no collective."
    if abs(parts["data_wait"] - right["data_wait"]) > PART_TOLERANCE * right["data_wait"]:
        return "The sum is right, `data_wait` is not: other idle time is in it, or some of it is elsewhere."
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
        answer=Text(lambda data: shapes_of_the_largest(data, "sum")[0]),
        mistakes=(
            Mistake(
                lambda data: shapes_of_the_largest(data, "mean")[0],
                "A single call takes longest at that shape. It has few calls: add up `duration_ns` by shape.",
            ),
            Mistake(
                lambda data: shapes_of_the_largest(data, "size")[0],
                "That shape has the most calls, but short ones: add up `duration_ns` by shape.",
            ),
            Mistake(
                lambda data: shapes_of_the_largest(data, "sum")[1],
                "That one comes second: the largest sum of `duration_ns` is asked.",
            ),
        ),
        hints=(
            "Group the rows of `its_own`.",
            "The column to group by is `input_shapes`, the one to add up `duration_ns`.",
            '`its_own.groupby("input_shapes", observed=True)["duration_ns"].sum().idxmax()`',
        ),
        insight=lambda data: (
            f"It is one of {len(shapes_of_the_largest(data, 'sum'))} shapes. Images, channels, height and width come "
            "first."
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
            Mistake(
                lambda data: communication(data, whole="total_ns"),
                "You divided by the whole span. The share of the communication is asked.",
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
                started_in_second_step,
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
            "`tidyprof.launches(rank)` has a row per launched event, `tidyprof.steps(rank)` the host's steps.",
            "Compare `launch_ns` with the step's `start_ns` and its end; `kind` tells kernels from copies.",
            '`launches["launch_ns"].between(begin, end - 1) & (launches["kind"] == "kernel")` marks the rows to count.',
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
            Mistake(lambda data: budget_with_twice(data, "idle"), "counted twice, probably the copies"),
            Mistake(lambda data: budget_with_twice(data, "data_wait"), "twice, probably what the device does during"),
            Mistake(busy_as_compute, "`compute` is not"),
            Mistake(lambda data: second_step_parts(data) | {"idle": 0}, "some time is in no part"),
            Mistake(lambda data: {name: part / 1e3 for name, part in second_step_parts(data).items()}, "or not in ns"),
            Mistake(lambda data: {"step": sum(second_step_parts(data).values())}, "at least three parts"),
        ),
        hints=(
            "Work with sets of time: `&` is both, `|` is either, `-` is the first without the second.",
            "`use.computation`, `use.exposed_copy` and `use.busy` are sets of the device, `loading` is one of the "
            "host. Cut each to the step with `whole &`.",
            "`whole & (loading - use.busy)` is the wait for data. What is left is `whole - use.busy - loading`.",
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
