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

IDLE_TOLERANCE = 0.01
"""How far `idle` may be off, as a fraction: less than the copies, which are no idle time."""

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


def launches_left(budget: pd.DataFrame) -> float:
    """In percent of the step without the profiler: how long the device is idle for launches, of a `step_budget`."""
    alone, traced, idle = _lengths(budget)
    return 100 * (idle - (traced - alone)) / alone


def _lengths(budget: pd.DataFrame) -> tuple[float, float, float]:
    """Means in ns: the step without the profiler, the traced one, and its idleness for launches."""
    return budget.attrs["untraced_ns"], budget["duration_ns"].mean(), budget["launch_bound_ns"].mean()


def launches_traced(budget: pd.DataFrame, whole: int) -> float:
    """The same idleness as it is in the trace, in percent of the step without (0) or with the profiler (1)."""
    return 100 * _lengths(budget)[2] / _lengths(budget)[whole]


def added(budget: pd.DataFrame, whole: int) -> float:
    """What the profiler adds, in percent of the step without (0) or with it (1)."""
    lengths = _lengths(budget)
    return 100 * (lengths[1] - lengths[0]) / lengths[whole]


def second_step(profile: Profile, timeline: str) -> tuple[int, int]:
    """Start and end of the second recorded step in ns. Raises ValueError if there is none."""
    found = tidyprof.steps(profile, timeline)
    if len(found) < 2:
        raise ValueError("the recording has fewer than two steps")
    step = found.iloc[1]
    return int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])


def loading(profile: Profile) -> Intervals:
    """The time in which the host is in its range `data`."""
    host = profile.events[profile.events["device"].isna()]
    ranges = host[(host["kind"] == "annotation") & (host["name"] == "data")]
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


def rest_in_one(profile: Profile, name: str = "rest") -> dict[str, int]:
    """The wrong budget that has one part for all that is neither computing nor waiting for data."""
    parts = second_step_parts(profile)
    own = {part: parts.pop(part) for part in ("compute", "data_wait")}
    return {**own, name: sum(parts.values())}


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


TOLERANCES = {"compute": PART_TOLERANCE, "data_wait": PART_TOLERANCE, "idle": IDLE_TOLERANCE}
WHAT_IT_IS = {
    "compute": "it is the time in which a kernel ran that is no collective.",
    "data_wait": "other idle time is in it, or some of it is elsewhere.",
    "idle": "while a copy runs the device is not idle. Give copies a part of their own.",
}
"""Parts that a budget must name -> how far they may be off, and what to say of a wrong one."""


def budget_problem(answer: Any, profile: Profile) -> str | None:
    """What is wrong with a budget of the device's second step, None if its parts add up to it."""
    if not isinstance(answer, Mapping) and not hasattr(answer, "to_dict"):
        return f"A dictionary of parts and nanoseconds is asked, this is a {type(answer).__name__}."
    parts = {str(name): float(length) for name, length in dict(answer).items()}
    if missing := [name for name in TOLERANCES if name not in parts]:
        return f"No part is called `{missing[0]}`: name at least {', '.join(TOLERANCES)}."
    if min(parts.values()) < 0:
        return "A part is negative: what was subtracted from what?"
    begin, end = second_step(profile, "device")
    if problem := _sum_problem(sum(parts.values()) - (end - begin), end - begin, profile):
        return problem
    right = second_step_parts(profile)
    wrong = [name for name, share in TOLERANCES.items() if abs(parts[name] - right[name]) > share * right[name]]
    return f"The sum is right, `{wrong[0]}` is not: {WHAT_IT_IS[wrong[0]]}" if wrong else None


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
        answer=Property(budget_problem, second_step_parts),
        mistakes=(
            Mistake(lambda data: budget_with_twice(data, "idle"), "counted twice, probably the copies"),
            Mistake(lambda data: budget_with_twice(data, "data_wait"), "twice, probably what the device does during"),
            Mistake(busy_as_compute, "`compute` is not"),
            Mistake(lambda data: second_step_parts(data) | {"idle": 0}, "some time is in no part"),
            Mistake(lambda data: {name: part / 1e3 for name, part in second_step_parts(data).items()}, "or not in ns"),
            Mistake(lambda data: {"step": sum(second_step_parts(data).values())}, "No part is called `compute`"),
            Mistake(rest_in_one, "No part is called `idle`"),
            Mistake(lambda data: rest_in_one(data, "idle"), "while a copy runs the device is not idle"),
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
        id="02.5",
        answer=Number(launches_left, unit="percent", relative=0.03),
        mistakes=(
            Mistake(
                lambda data: launches_traced(data, 1),
                "That is the share of the *traced* step. Take what the profiler adds away from both.",
            ),
            Mistake(
                lambda data: launches_traced(data, 0),
                "What the profiler adds is still in the idleness: take that away first.",
            ),
            Mistake(lambda data: added(data, 0), "That is what the profiler adds. How much is left without it?"),
            Mistake(lambda data: added(data, 1), "That is the profiler's share of the traced step. What is left?"),
            Mistake(
                lambda data: 100 * (1 - data["compute_ns"].mean() / _lengths(data)[0]),
                "That is all time in which it does not compute: copies and `other` are in it.",
            ),
            Mistake(
                lambda data: launches_left(data) * _lengths(data)[0] / 1e8,
                "These are milliseconds. Divide by `alone_ns`.",
            ),
            Mistake(
                lambda data: launches_left(data) * _lengths(data)[0] / _lengths(data)[1],
                "The idleness is right. Divide it by the step without the profiler.",
            ),
        ),
        hints=(
            "Three lengths: the traced step, the step without the profiler, and the idleness for launches.",
            "The profiler adds the difference of the first two. It is in the third.",
            '`mean = traced[["duration_ns", "launch_bound_ns"]].mean()`; the profiler adds `mean["duration_ns"] - '
            "alone_ns`.",
        ),
        insight=lambda data: (
            f"The trace alone says {launches_traced(data, 1):.0f} %, and this run would be called launch-bound. "
            f"Without the profiler it computes for {100 * data['compute_ns'].mean() / _lengths(data)[0]:.0f} %."
        ),
    ),
)
