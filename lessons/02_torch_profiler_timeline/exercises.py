"""Exercises of lesson 02, where does a step go? Each takes a Profile: your own run or a
recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import tidyprof
from proflab.exercises import Exercise, Mistake, Number, Property
from tidyprof import Intervals

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

SUM_TOLERANCE = 1e-6
"""How far the parts may be from the step, as a fraction of it: less than any part that can be
counted twice.
"""

PART_TOLERANCE = 0.005
"""How far `compute` may be off, as a fraction: fills may be left out of it, copies don't fit."""

TWICE_TOLERANCE = 0.1
"""How near the excess must be to what was probably counted twice, as a fraction of that."""


def lengths(profile: Profile) -> dict[str, int]:
    """In ns: unions of the collectives, of the other kernels and of both, the span, and the same
    three added up.
    """
    events, everything = profile.device_events, profile.device_events
    kinds = {"collective": ["collective"], "kernel": ["kernel"], "both": ["collective", "kernel"]}
    chosen = {name: events[events["kind"].isin(kind)] for name, kind in kinds.items()}
    ends = everything["start_ns"] + everything["duration_ns"]
    found = {name: _union(rows).length for name, rows in chosen.items()}
    found |= {f"sum of {name}": int(rows["duration_ns"].sum()) for name, rows in chosen.items()}
    return found | {"span": int(ends.max() - everything["start_ns"].min())}


def alone(profile: Profile, whole: str = "collective", summed: str = "") -> float:
    """Time in which a collective runs and no kernel, in percent of a `whole`; `summed` to add
    durations instead.
    """
    found = lengths(profile)
    return 100 * (found[f"{summed}both"] - found[f"{summed}kernel"]) / found[whole]


def exposed(profile: Profile) -> float:
    """The same of `tidyprof.overlap`, in which fills hide communication, too."""
    table = tidyprof.overlap(profile)
    return float(100 * table["exposed_communication_ns"].sum() / table["communication_ns"].sum())


def _union(rows: pd.DataFrame) -> Intervals:
    return Intervals.union(rows["start_ns"], rows["start_ns"] + rows["duration_ns"])


def launches_left(budget: pd.DataFrame) -> float:
    """In percent of the step without the profiler: how long the device is idle for launches, of a
    `step_budget`.
    """
    alone, traced, idle = _lengths(budget)
    return 100 * (idle - (traced - alone)) / alone


def _lengths(budget: pd.DataFrame) -> tuple[float, float, float]:
    """Means in ns: the step without the profiler, the traced one, and its idleness for launches."""
    return (
        budget.attrs["unprofiled_step_ns"],
        budget["duration_ns"].mean(),
        budget["launch_bound_ns"].mean(),
    )


def launches_traced(budget: pd.DataFrame, whole: int) -> float:
    """The same idleness as it is in the trace, in percent of the step without (0) or with the
    profiler (1).
    """
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
    return _union(ranges)


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
    """Part of `second_step_parts` that is likely to hold what another part has already -> what that
    is, its ns.
    """
    step = Intervals.window(*second_step(profile, "device"))
    time, data = tidyprof.DeviceTime.of(profile.device_events), loading(profile)
    copies, beside = step & time.exposed_copy, step & data & time.busy
    return {
        "idle": (
            "the copies: idle is what `use.busy` leaves, not `use.computation`",
            (copies - data).length,
        ),
        "data_wait": (
            "what the device does during `data`: take `use.busy` away from it",
            beside.length,
        ),
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


def copies_as_waiting(profile: Profile) -> dict[str, int]:
    """The wrong budget without a part for copies: each is in the wait that it falls into."""
    parts, twice = second_step_parts(profile), counted_twice(profile)
    for name in ("idle", "data_wait"):
        parts[name] += twice[name][1]
    return {**parts, "copy": 0}


def rest_in_one(profile: Profile, name: str = "rest") -> dict[str, int]:
    """The wrong budget that has one part for all that is neither computing nor waiting for data."""
    parts = second_step_parts(profile)
    own = {part: parts.pop(part) for part in ("compute", "data_wait")}
    return {**own, name: sum(parts.values())}


def sets_for_lengths(profile: Profile) -> dict[str, Intervals]:
    """The wrong budget of sets of time, whose lengths nobody took."""
    return {
        name: Intervals.window(0, length) for name, length in second_step_parts(profile).items()
    }


def _sum_problem(excess: float, length: int, profile: Profile) -> str | None:
    """What is wrong with the sum of a budget that is `excess` ns longer than the step of `length`
    ns.
    """
    from tidyprof.plots.figure import duration_text

    share = (
        f"The parts add up to {duration_text(abs(excess))} {'more' if excess > 0 else 'less'} than"
        " the step:"
    )
    if excess < -SUM_TOLERANCE * length:
        return f"{share} some time is in no part, or not in ns."
    if excess <= SUM_TOLERANCE * length:
        return None
    for what, twice in counted_twice(profile).values():
        if abs(excess - twice) <= TWICE_TOLERANCE * twice:
            return f"{share} some time is counted twice, probably {what}."
    return f"{share} some time is counted twice, or lies outside of `whole_step`."


TOLERANCES = {"compute": PART_TOLERANCE, "data_wait": SUM_TOLERANCE, "idle": SUM_TOLERANCE}
WHAT_IT_IS = {
    "compute": "it is the time in which a kernel ran that is no collective.",
    "data_wait": (
        "there the device does nothing, and a copy is work. Other idle time is no part of it."
    ),
    "idle": "while a copy runs the device is not idle. Give copies a part of their own.",
}
"""Parts that a budget must name -> how far they may be off, and what to say of a wrong one."""


def budget_problem(answer: Any, profile: Profile) -> str | None:
    """What is wrong with a budget of the device's second step, None if its parts add up to it."""
    if not isinstance(answer, Mapping) and not hasattr(answer, "to_dict"):
        return f"A dictionary of parts and nanoseconds is asked, this is a {type(answer).__name__}."
    given = {str(name): length for name, length in dict(answer).items()}
    if sets := [name for name, length in given.items() if isinstance(length, Intervals)]:
        return f"`{sets[0]}` is a set of time. Asked is how long it is: its `.length`, in ns."
    if others := [
        name for name, length in given.items() if not isinstance(length, (int, float, np.number))
    ]:
        return f"`{others[0]}` is a {type(given[others[0]]).__name__}: a number is asked, in ns."
    parts = {name: float(length) for name, length in given.items()}
    if missing := [name for name in TOLERANCES if name not in parts]:
        return missing_part(missing[0])
    if min(parts.values()) < 0:
        return "A part is negative: what was subtracted from what?"
    begin, end = second_step(profile, "device")
    if problem := _sum_problem(sum(parts.values()) - (end - begin), end - begin, profile):
        return problem
    right = second_step_parts(profile)
    wrong = [
        name
        for name, share in TOLERANCES.items()
        if abs(parts[name] - right[name]) > share * right[name]
    ]
    return wrong_part(wrong[0]) if wrong else None


def missing_part(name: str) -> str:
    """Said of a budget that does not name this part."""
    return f"No part is called `{name}`: name at least {', '.join(TOLERANCES)}."


def wrong_part(name: str) -> str:
    """Said of a budget that adds up, with this part too long or too short."""
    return f"The sum is right, `{name}` is not: {WHAT_IT_IS[name]}"


EXERCISES = (
    Exercise(
        id="02.1",
        answer=Number(alone, unit="percent", relative=0.02),
        mistakes=(
            Mistake(
                lambda data: alone(data, summed="sum of "),
                "You added durations: then no moment can be in two kernels. Take the union of all,"
                " less that of one.",
            ),
            Mistake(
                lambda data: 100 - alone(data),
                "That is the share that is hidden: there a kernel runs beside the communication.",
            ),
            Mistake(
                lambda data: alone(data, "kernel"),
                "You divided by the time of the other kernels. The share of the communication is"
                " asked.",
            ),
            Mistake(
                lambda data: alone(data, "both"),
                "You divided by the time in which any kernel runs. The share of the communication"
                " is asked.",
            ),
            Mistake(
                lambda data: alone(data, "span"),
                "You divided by the whole span. The share of the communication is asked.",
            ),
        ),
        hints=(
            (
                "You need three unions: of the collectives, of the other kernels, and of both"
                " together."
            ),
            (
                "What the collectives add to the union of the others is the time in which they are"
                " alone."
            ),
            "`busy_ns(kernels) - busy_ns(others)`, divided by the `busy_ns` of the collectives.",
        ),
        insight=lambda data: (
            f"`overlap` says {exposed(data):.1f} %, since fills hide some, too. This part makes the"
            " steps longer."
        ),
    ),
    Exercise(
        id="02.2",
        answer=Property(budget_problem, second_step_parts),
        mistakes=(
            Mistake(
                lambda data: budget_with_twice(data, "idle"),
                "some time is counted twice, probably the copies: idle is what `use.busy` leaves,"
                " not `use.computation`.",
            ),
            Mistake(
                lambda data: budget_with_twice(data, "data_wait"),
                "some time is counted twice, probably what the device does during `data`: take"
                " `use.busy` away from it.",
            ),
            Mistake(busy_as_compute, wrong_part("compute")),
            Mistake(lambda data: second_step_parts(data) | {"idle": 0}, "some time is in no part"),
            Mistake(
                lambda data: {name: part / 1e3 for name, part in second_step_parts(data).items()},
                "or not in ns",
            ),
            Mistake(
                lambda data: {"step": sum(second_step_parts(data).values())},
                missing_part("compute"),
            ),
            Mistake(copies_as_waiting, wrong_part("data_wait")),
            Mistake(rest_in_one, missing_part("idle")),
            Mistake(sets_for_lengths, "its `.length`, in ns"),
            Mistake(lambda data: dict.fromkeys(TOLERANCES, "long"), "a number is asked"),
            Mistake(lambda data: rest_in_one(data, "idle"), wrong_part("idle")),
        ),
        hints=(
            (
                "Work with sets of time: `&` is both, `|` is either, `-` is the first without the"
                " second."
            ),
            (
                "`use.computation`, `use.exposed_copy` and `use.busy` are sets of the device,"
                " `loading` is one of the host. Cut each to the step with `whole_step &`."
            ),
            (
                "`whole_step & (loading - use.busy)` is the wait for data, `whole_step - use.busy -"
                " loading` what is left."
            ),
        ),
        insight=(
            "Parts that add up can be trusted to hide nothing. Shares that don't add up need a"
            " second look."
        ),
    ),
    Exercise(
        id="02.3",
        answer=Number(launches_left, unit="percent", relative=0.03),
        mistakes=(
            Mistake(
                lambda data: launches_traced(data, 1),
                "That is the share of the *traced* step. Take what the profiler adds away from"
                " both.",
            ),
            Mistake(
                lambda data: launches_traced(data, 0),
                "What the profiler adds is still in the idleness: take that away first.",
            ),
            Mistake(
                lambda data: added(data, 0),
                "That is what the profiler adds. How much is left without it?",
            ),
            Mistake(
                lambda data: added(data, 1),
                "That is the profiler's share of the traced step. What is left?",
            ),
            Mistake(
                lambda data: 100 * (1 - data["compute_ns"].mean() / _lengths(data)[0]),
                "That is all time in which it does not compute: copies and `other` are in it.",
            ),
            Mistake(
                lambda data: launches_left(data) * _lengths(data)[0] / 1e8,
                "These are milliseconds. Divide by `unwatched_ns`.",
            ),
            Mistake(
                lambda data: launches_left(data) * _lengths(data)[0] / _lengths(data)[1],
                "The idleness is right. Divide it by the step without the profiler.",
            ),
        ),
        hints=(
            (
                "Three lengths: the traced step, the step without the profiler, and the idleness"
                " for launches."
            ),
            "The profiler adds the difference of the first two. It is in the third.",
            (
                '`mean = traced[["duration_ns", "launch_bound_ns"]].mean()`; the profiler adds'
                ' `mean["duration_ns"] - unwatched_ns`.'
            ),
        ),
        insight=lambda data: (
            f"The trace alone says {launches_traced(data, 1):.0f} %, and this run would be called"
            " launch bound. Without the profiler it computes for"
            f" {100 * data['compute_ns'].mean() / _lengths(data)[0]:.0f} %."
        ),
    ),
)
