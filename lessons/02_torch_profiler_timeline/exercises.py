"""Exercises of lesson 02: where does a step go? Their data is a trace or a step budget."""

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
"""Largest difference between the parts and the step, as a fraction of the step."""

TOLERANCES = {"compute": 0.005, "data_wait": SUM_TOLERANCE, "idle": SUM_TOLERANCE}
"""Required parts -> the largest relative error. `compute` may leave out fills."""

TWICE_TOLERANCE = 0.1
"""Largest relative difference between the excess and a time that was probably counted twice."""


def lengths(profile: Profile) -> dict[str, int]:
    """Return the unions of collectives, of kernels and of both in ns, their sums, and the span."""
    events = profile.device_events
    kinds = {"collective": ["collective"], "kernel": ["kernel"], "both": ["collective", "kernel"]}
    chosen = {name: events[events["kind"].isin(kind)] for name, kind in kinds.items()}
    ends = events["start_ns"] + events["duration_ns"]
    found = {name: _union(rows).length for name, rows in chosen.items()}
    found |= {f"sum of {name}": int(rows["duration_ns"].sum()) for name, rows in chosen.items()}
    return found | {"span": int(ends.max() - events["start_ns"].min())}


def share(profile: Profile, whole: str, minus: str, of: str = "collective") -> float:
    """Return the difference of two `lengths` in percent of a third."""
    found = lengths(profile)
    return 100 * (found[whole] - found[minus]) / found[of]


def alone(profile: Profile, of: str = "collective") -> float:
    """Return the time in which a collective runs without a kernel, in percent of a length."""
    return share(profile, "both", "kernel", of)


def exposed(profile: Profile) -> float:
    """Return the share that `tidyprof.overlap` reports, where fills hide communication too."""
    table = tidyprof.overlap(profile)
    return float(100 * table["exposed_communication_ns"].sum() / table["communication_ns"].sum())


def _union(rows: pd.DataFrame) -> Intervals:
    return Intervals.union(rows["start_ns"], rows["start_ns"] + rows["duration_ns"])


def _means(budget: pd.DataFrame) -> tuple[float, float, float]:
    """Return in ns: the step without the profiler, the traced step, its launch-bound idle time."""
    means = budget[["duration_ns", "launch_bound_ns"]].mean()
    return (budget.attrs["unprofiled_step_ns"], *means)


def launches_left(budget: pd.DataFrame, whole: int = 0) -> float:
    """Return the launch-bound idle time without the profiler, in percent of the step without (0) or
    with it (1).
    """
    means = _means(budget)
    return 100 * (means[2] - means[1] + means[0]) / means[whole]


def launches_traced(budget: pd.DataFrame, whole: int) -> float:
    """Return the traced launch-bound idle time in percent of either step."""
    return 100 * _means(budget)[2] / _means(budget)[whole]


def added(budget: pd.DataFrame, whole: int) -> float:
    """Return what the profiler adds in percent of either step."""
    means = _means(budget)
    return 100 * (means[1] - means[0]) / means[whole]


class StepTime:
    """The device's second step as sets of time."""

    def __init__(self, profile: Profile) -> None:
        found = tidyprof.steps(profile, "device")
        if len(found) < 2:
            raise ValueError("the trace has fewer than two steps")
        start, duration = (int(found.iloc[1][name]) for name in ("start_ns", "duration_ns"))
        events = profile.events
        data = events[(events["kind"] == "annotation") & (events["name"] == "data")]
        self.whole = Intervals.window(start, start + duration)
        self.device = tidyprof.DeviceTime.of(profile.device_events)
        self.data = _union(data[data["device"].isna()])

    @property
    def parts(self) -> dict[str, int]:
        """One correct budget, in ns."""
        sets = {
            "compute": self.device.computation,
            "communication": self.device.exposed_communication,
            "copy": self.device.exposed_copy,
            "data_wait": self.data - self.device.busy,
        }
        parts = {name: (self.whole & one).length for name, one in sets.items()}
        return {**parts, "idle": (self.whole - self.device.busy - self.data).length}

    @property
    def twice(self) -> dict[str, int]:
        """Time that a wrong `idle` or `data_wait` contains, although other parts have it, in ns."""
        copies = self.whole & self.device.exposed_copy
        return {
            "idle": (copies - self.data).length,
            "data_wait": (self.whole & self.data & self.device.busy).length,
        }


def second_step_parts(profile: Profile) -> dict[str, int]:
    """Return one correct budget of the device's second step in ns."""
    return StepTime(profile).parts


def budget_with_twice(profile: Profile, *names: str) -> dict[str, int]:
    """Return the wrong budget in which these parts contain time of other parts."""
    step = StepTime(profile)
    return step.parts | {name: step.parts[name] + step.twice[name] for name in names}


def busy_as_compute(profile: Profile) -> dict[str, int]:
    """Return the wrong budget that counts all work of the device as computation."""
    parts = second_step_parts(profile)
    copied = parts.pop("copy") + parts.pop("communication")
    return parts | {"compute": parts["compute"] + copied}


def rest_in_one(profile: Profile, name: str) -> dict[str, int]:
    """Return the wrong budget with one part for everything except computation and data wait."""
    parts = second_step_parts(profile)
    kept = {part: parts.pop(part) for part in ("compute", "data_wait")}
    return {**kept, name: sum(parts.values())}


NOT_NS = "Your parts don't cover the whole step, or they aren't in ns."
COUNTED_TWICE = {
    "idle": "You counted copies twice. From `idle`, subtract `use.busy`, not only `use.computation`.",
    "data_wait": "You counted device work during `data` twice. Subtract `use.busy` from `data_wait`.",
}
NOT_NUMBERS = "isn't a number. Give the length of each part in ns, such as the `.length` of a set."
WRONG_PART = {
    "compute": "`compute` is wrong. Count the time in which a kernel that isn't a collective runs.",
    "data_wait": "`data_wait` is wrong. Count only the time in `data` when the device does no work"
    " (copies are also work).",
    "idle": "`idle` is wrong. Count only the time outside `data` when the device does no work (copies"
    " are also work).",
}


def missing_part(name: str) -> str:
    """Return the reply to a budget without this part."""
    return f"Your budget has no part `{name}`. Add this part."


def budget_problem(answer: Any, profile: Profile) -> str | None:
    """Return what is wrong with a budget of the device's second step, or None."""
    from tidyprof.plots.figure import duration_text

    if not isinstance(answer, Mapping) and not hasattr(answer, "to_dict"):
        return f"Your answer is of type `{type(answer).__name__}`. Answer with a dictionary."
    given = {str(name): length for name, length in dict(answer).items()}
    for name, length in given.items():
        if not isinstance(length, (int, float, np.number)):
            return f"`{name}` {NOT_NUMBERS}"
    if missing := [name for name in TOLERANCES if name not in given]:
        return missing_part(missing[0])
    if min(given.values()) < 0:
        return "One of your parts is negative. Check the order of the subtraction."
    step = StepTime(profile)
    length, right = step.whole.length, step.parts
    excess = sum(map(float, given.values())) - length
    if abs(excess) > SUM_TOLERANCE * length:
        twice = [
            reply
            for name, reply in COUNTED_TWICE.items()
            if abs(excess - step.twice[name]) <= TWICE_TOLERANCE * step.twice[name]
        ]
        reply = (
            NOT_NS if excess < 0 else "You counted some time twice, or it is outside `whole_step`."
        )
        more = "more" if excess > 0 else "less"
        off = f"Your parts add up to {duration_text(abs(excess))} {more} than the step."
        return f"{off} {twice[0] if twice else reply}"
    wrong = [
        name
        for name, off in TOLERANCES.items()
        if abs(given[name] - right[name]) > off * right[name]
    ]
    return WRONG_PART[wrong[0]] if wrong else None


EXERCISES = (
    Exercise(
        id="02.1",
        # Two mistakes differ by 0.4%.
        answer=Number(alone, unit="percent", relative=0.003),
        mistakes=(
            Mistake(
                lambda data: share(data, "sum of both", "sum of kernel"),
                "You added durations, which counts overlapping kernels several times. Use `busy_ns`,"
                " which computes unions.",
            ),
            Mistake(
                lambda data: alone(data, "kernel"),
                "You divided by the time of the kernels. Divide by the union of the collectives.",
            ),
            Mistake(
                lambda data: alone(data, "both"),
                "You divided by the union of kernels and collectives. Divide by the union of the"
                " collectives alone.",
            ),
            Mistake(
                lambda data: alone(data, "span"),
                "You divided by the span. Divide by the union of the collectives.",
            ),
            Mistake(
                lambda data: share(data, "collective", "kernel"),
                "You subtracted all kernel time from the communication time, but not every kernel"
                " runs during a collective. Subtract the kernel time from the union of both kinds.",
            ),
            Mistake(
                lambda data: share(data, "both", "collective"),
                "You computed the time in which only kernels run. From the union of both kinds,"
                " subtract the union of the kernels, not of the collectives.",
            ),
            Mistake(
                exposed,
                "You used `tidyprof.overlap`, where fills also hide communication. Use `busy_ns`"
                " with kernels only.",
            ),
        ),
        hints=(
            "Compute three unions: one of the collectives, one of the kernels, and one of both.",
            "Subtract the union of the kernels from the union of both kinds. The remaining time is"
            " exposed communication.",
            "With `others`, the kernels that aren't collectives, divide `busy_ns(kernels) -"
            " busy_ns(others)` by the `busy_ns` of the collectives.",
        ),
        insight=lambda data: (
            f"`tidyprof.overlap` reports {exposed(data):.1f}%, because in its result, fills also hide"
            " some communication. Exposed communication makes the step longer."
        ),
    ),
    Exercise(
        id="02.2",
        answer=Property(budget_problem, second_step_parts),
        mistakes=(
            *(
                Mistake(lambda data, name=name: budget_with_twice(data, name), reply)
                for name, reply in COUNTED_TWICE.items()
            ),
            Mistake(
                lambda data: budget_with_twice(data, "idle", "data_wait") | {"copy": 0},
                WRONG_PART["data_wait"],
            ),
            Mistake(busy_as_compute, WRONG_PART["compute"]),
            Mistake(lambda data: second_step_parts(data) | {"idle": 0}, NOT_NS),
            Mistake(lambda data: rest_in_one(data, "rest"), missing_part("idle")),
            Mistake(lambda data: rest_in_one(data, "idle"), WRONG_PART["idle"]),
            Mistake(lambda data: dict.fromkeys(TOLERANCES, StepTime(data).whole), NOT_NUMBERS),
        ),
        hints=(
            "Combine sets of time intervals: `&` is the intersection, `|` the union, and `-` the"
            " difference.",
            "Use `whole_step &` to restrict the device's sets (`use.computation`, `use.exposed_copy`"
            " and `use.busy`) and the host's set `loading` to the step.",
            "Use `whole_step & (loading - use.busy)` for the data wait, and `whole_step - use.busy"
            " - loading` for the idle time.",
        ),
        insight=(
            "Your parts add up to the step, so they account for all of its time. If the parts of a"
            " budget don't add up, look for time that is missing or counted twice."
        ),
    ),
    Exercise(
        id="02.3",
        answer=Number(launches_left, unit="percent", relative=0.03),
        mistakes=(
            Mistake(
                lambda data: launches_traced(data, 1),
                "You computed the share of the traced step. Subtract the time that the profiler adds"
                " from both the idle time and the step.",
            ),
            Mistake(
                lambda data: launches_traced(data, 0),
                "Your idle time still contains the time that the profiler adds. Subtract it first.",
            ),
            Mistake(
                lambda data: added(data, 0),
                "You computed the time that the profiler adds. Subtract this time from the"
                " launch-bound idle time.",
            ),
            Mistake(
                lambda data: added(data, 1),
                "You computed the profiler's share of the traced step. Subtract the added time from"
                " the launch-bound idle time.",
            ),
            Mistake(
                lambda data: 100 * (1 - data["compute_ns"].mean() / _means(data)[0]),
                "You counted all the time without computation, including copies. Use"
                " `launch_bound_ns`.",
            ),
            Mistake(
                lambda data: launches_left(data) * _means(data)[0] / 1e8,
                "You computed the idle time in milliseconds. Divide it by `unprofiled_ns` to get a"
                " share.",
            ),
            Mistake(
                lambda data: launches_left(data, 1),
                "Your idle time is correct, but you divided by the traced step. Divide by"
                " `unprofiled_ns`.",
            ),
        ),
        hints=(
            "Find three times: the traced step, the step without the profiler, and the launch-bound"
            " idle time.",
            "To get the time that the profiler adds, subtract the step without the profiler from the"
            " traced step. The idle time contains this added time.",
            'Start with `mean = traced[["duration_ns", "launch_bound_ns"]].mean()`. The profiler'
            ' adds `mean["duration_ns"] - unprofiled_ns`.',
        ),
        insight=lambda data: (
            f"The trace alone shows {launches_traced(data, 1):.0f}%, which would make this run look"
            " launch bound. Without the profiler, the GPU computes for"
            f" {100 * data['compute_ns'].mean() / _means(data)[0]:.0f}% of the step."
        ),
    ),
)
