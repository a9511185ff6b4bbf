"""Estimate the profiler overhead, and the parts of a step without the profiler.

torch.profiler slows down the host, but not the devices. Therefore, a traced step is longer than an
unprofiled step if the host limits the step. This module finds or estimates the unprofiled step
time, and subtracts the extra time from the parts of the step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tidyprof.analyses.common import names_matching, occupied, plain_host_events
from tidyprof.analyses.steps import PHASE_PATTERNS
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents
from tidyprof.triage.cpu_time import CPU_STEAL, waiting_times
from tidyprof.triage.facts import Cost
from tidyprof.triage.host_activity import nested

TOOL = "torch.profiler"
"""The only tool whose overhead is known."""

OPERATOR_GAPS, CALL_GAPS, FUNCTION_GAPS = 2.4, 1.6, 1.0
"""The time that torch.profiler needs to record an operator, a runtime call and a Python function,
in units of `gap_of`.

We fitted the values for operators and runtime calls to the GPU programs in
packages/tidyprof/tests/third_party/gpu, which we traced on one machine with an H200. In the 18
host-bound variants, the measured overhead was 0.74 to 1.38 times the expected overhead. We measured
the value for Python functions on two cores of an AMD EPYC.
"""

OPERATOR_GAPS_ALONE = 1.6
"""The time that torch.profiler needs to record an operator in a trace without a GPU, in units of
`gap_of`. On the AMD EPYC, it was 0.9 to 2.2 in seven programs.
"""

USUAL_GAP_NS, MIN_GAPS = 1800.0, 30
"""The default gap for files with fewer than MIN_GAPS gaps, which is the median gap on the H200
machine.
"""

MIN_RATIO, MAX_RATIO = 0.65, 1.4
"""The actual profiler overhead is MIN_RATIO to MAX_RATIO times the expected overhead (see
OPERATOR_GAPS). MIN_RATIO only decides whether the traced steps explain a measured step time.
"""

MIN_EVENT_NS, MAX_EVENT_NS = 500.0, 5000.0
"""Bounds for the overhead per recorded event. Published values are 2 to 5 µs per operator (4 µs in
pytorch/pytorch#82793) and 1 to 2 µs per launch (pytorch/pytorch#181043). In the 18 host-bound
variants, the overhead was 1.6 to 4.8 µs per event. The overhead is lower for Python functions and
on fast CPUs.
"""

MAX_SLOWDOWN = 3.0
"""The maximum ratio of a traced step to an unprofiled step. We measured a ratio of 2.2 with a GPU,
and a ratio of 3 without a GPU for a loop of `.item()` calls.
"""

OTHER_HOST_SHARE = 0.2
"""The share of the other host parts that counts as profiler overhead in the highest estimate."""

VARIATION = 0.10
"""The assumed relative variation between traced and timed steps. In 11 GPU-bound variants on the
H200, traced steps took 0.90 to 1.30 (median 1.00) times as long as timed steps.
"""

MISSING = 0.15
"""Traced steps are atypical if at least this share of the unprofiled step time is missing from
them.
"""

EQUAL = 0.98
"""Traced and unprofiled steps count as equally long if the ratio of their times is at least this
value.
"""

MIN_STEP_NS, MAX_STEP_NS = 1.0, 1e15
"""The shortest and the longest possible step, which are 1 ns and about eleven days."""

HOST_COMPUTE = ("forward", "backward", "optimizer", "compute")

PACED_BY_LAUNCHES = (("launch_bound",), ("stalled",), ("waiting_launch",))
PACED_BY_OPERATORS = (("between", "small"), HOST_COMPUTE)
"""The groups of parts from which to subtract the profiler overhead, in this order. With a GPU,
these are the parts in which the GPU waits for the next launch. Without a GPU, these are the parts
in which operators run.
"""

OTHER_HOST_PARTS = (
    "silent",
    "blocked_host",
    "allocation",
    "start_up",
    "data_wait",
    "compiling",
    CPU_STEAL,
)
"""Other parts whose length depends on the host."""


class Estimate(NamedTuple):
    """The range of the unprofiled step time in ns, and the most likely time.

    - ends: the range that considers only the profiler overhead, and not the variation of step
      times.
    """

    low: float
    likely: float
    high: float
    ends: tuple[float, float]


@dataclass(frozen=True)
class Overhead:
    """The step time with and without the profiler in ns, as means over ranks.

    - measured_ns: the unprofiled step time, if it was measured.
    - source: a description of how the unprofiled step time was measured.
    - estimated: the estimated range of the unprofiled step time, or None if the overhead is
      unknown.
    - data_change_ns: the time by which the phase `data` was longer in the timed steps than in the
      traced steps, or None if it is unknown.
    - rare_share: the share of the timed steps' total time in rare long steps.
    - is_open, cost_ns, data_cost_ns, events: see facts.Cost.
    """

    traced_ns: float = 0.0
    events: float = 0.0
    cost_ns: float = 0.0
    data_cost_ns: float = 0.0
    is_open: bool = False
    estimated: Estimate | None = None
    measured_ns: float | None = None
    source: str = ""
    data_change_ns: float | None = None
    rare_share: float = 0.0


class Step(NamedTuple):
    """The parts of one step in ns, which add up to the step's length.

    - measured: whether the unprofiled step time was measured.
    - untypical: whether the measured step is longer than the traced steps can explain.
    """

    parts: dict[str, float]
    measured: bool
    untypical: bool = False

    @property
    def length_ns(self) -> float:
        """The sum of the parts."""
        return sum(self.parts.values())

    def share(self, *names: str) -> float:
        """Return the share (0 to 1) of these parts in the step."""
        return sum(self.parts.get(name, 0.0) for name in names) / max(self.length_ns, 1e-9)


def cost_of(profile: Profile, stacks: PlainEvents, judged: Intervals, steps: int) -> Cost:
    """Return the profiler overhead of one rank.

    - stacks: the rank's Python functions.
    - judged: the intervals of the judged steps on the host.
    - steps: the number of judged steps.
    """
    operators, calls, ranges = (
        plain_host_events(profile, kind) for kind in ("operator", "runtime", "annotation")
    )
    modeled = profile.origin.kind == "modeled"
    known = profile.meta.get("tool") == TOOL and not modeled
    data = judged & occupied(ranges, names_matching(ranges, PHASE_PATTERNS["data"]))
    prices = (OPERATOR_GAPS if len(calls) else OPERATOR_GAPS_ALONE, CALL_GAPS, FUNCTION_GAPS)
    starts = [events["start_ns"] for events in (operators, calls, stacks)]
    counts, in_data = (
        [float(time.contains(start).sum()) / steps for start in starts] for time in (judged, data)
    )
    gap = gap_of(operators)
    ranks = np.unique(operators["rank"]).tolist()
    rank = ranks[0] if len(ranks) == 1 and ranks[0] >= 0 else None
    timed = profile.meta.get("untraced", {}).get(rank)
    # The script assigned each moment to a single part. If a loader runs inside another part, the
    # trace counts the loader as `data`, but the timed steps don't.
    others = [re.escape(part) for part in (timed["parts_ns"] if timed else ()) if part != "data"]
    alone = data - occupied(ranges, names_matching(ranges, "|".join(others)))
    _, stolen = waiting_times(profile, rank, judged.starts, judged.ends, {"data": alone})
    least, most = alone.length - float(stolen["data"].sum()), float(alone.length)
    is_alone = 2 * alone.length >= data.length
    return Cost(
        events=sum(counts),
        cost_ns=gap * float(np.dot(prices, counts)) if known else None,
        data_cost_ns=gap * float(np.dot(prices, in_data)) if known else 0.0,
        data_ns=(least / steps, most / steps) if is_alone else None,
        timed=timed,
        is_open=not (known or modeled),
    )


def gap_of(operators: PlainEvents) -> float:
    """Return the median delay in ns between the start of an operator and the start of its first
    inner operator on the same thread.

    The delay shows how fast the CPU executes the profiler's code. The delay was 0.2 to 0.6 µs on
    one machine and 0.8 to 3 µs on another. The overhead per operator was proportional to the delay.
    """
    ordered, within = nested(operators)
    gaps = np.diff(ordered["start_ns"])[within]
    return float(np.median(gaps)) if len(gaps) >= MIN_GAPS else USUAL_GAP_NS


def overhead_of(
    parts: dict[str, float],
    costs: Sequence[Cost],
    marked: bool,
    step_ns: float | None,
    ends_ns: tuple[float, float],
) -> Overhead:
    """Return the profiler overhead of a run.

    - parts: the parts of the traced step in ns.
    - costs: the profiler overhead of each rank.
    - marked: whether the trace has marked steps. A trace without marked steps can't be compared
      with a step time.
    - step_ns: the unprofiled step time, if the user passed it.
    - ends_ns: the times of the shortest and the longest traced step.

    The time that the user passed has priority over the timed steps.
    """
    traced = sum(parts.values())
    found = Overhead(
        traced_ns=traced,
        events=_mean([cost.events for cost in costs]),
        cost_ns=_mean([cost.cost_ns or 0.0 for cost in costs]),
        data_cost_ns=_mean([cost.data_cost_ns for cost in costs]),
        is_open=any(cost.is_open for cost in costs),
    )
    most = min(MAX_EVENT_NS * found.events, (1 - 1 / MAX_SLOWDOWN) * traced)
    if most < found.cost_ns:
        found = replace(found, cost_ns=most, data_cost_ns=found.data_cost_ns * most / found.cost_ns)
    if costs and all(cost.cost_ns is not None for cost in costs):
        found = replace(found, estimated=estimate(parts, found, ends_ns))
    if step_ns is not None:
        return replace(found, measured_ns=step_ns, source="given by --step-time-ms")
    timed = [cost.timed for cost in costs if cost.timed and marked]
    if not timed or len(timed) < len(costs):
        return found
    found = replace(
        found,
        measured_ns=_mean([one["step_ns"] for one in timed]),
        source=f"{timed[0]['steps']} timed steps",
        rare_share=_mean([one["long_share"] for one in timed]),
    )
    before = [one["parts_ns"]["data"] for one in timed if "data" in one["parts_ns"]]
    bounds = [cost.data_ns for cost in costs if cost.data_ns is not None]
    if len(before) < len(costs) or len(bounds) < len(costs):
        return found
    # The timed steps may also have lost time to other programs, but the amount is unknown.
    # Therefore, a time between the two bounds counts as unchanged.
    least, most = np.mean(bounds, axis=0)
    return replace(found, data_change_ns=_mean(before) - float(np.clip(_mean(before), least, most)))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def estimate(parts: dict[str, float], overhead: Overhead, ends_ns: tuple[float, float]) -> Estimate:
    """Return the range of the unprofiled step time.

    The overhead per event is at least MIN_EVENT_NS and at most MAX_EVENT_NS. The total overhead is
    at most MAX_RATIO times the expected overhead. `ends_ns` is the range of the traced step times.
    """
    traced, cost, data = overhead.traced_ns, overhead.cost_ns, overhead.data_cost_ns
    shortest, longest = ends_ns
    least, likely, most = 0.0, 0.0, 0.0
    if cost:
        top = min(MAX_RATIO * cost, max(MAX_EVENT_NS * overhead.events, cost))
        bottom = min(MIN_EVENT_NS * overhead.events, cost)
        soft = OTHER_HOST_SHARE * sum(parts.get(part, 0.0) for part in (*OTHER_HOST_PARTS, "other"))
        most = min(top, _removable(parts, top, data * top / cost) + soft)
        least = _removable(parts, bottom, data * bottom / cost)
        likely = _removable(parts, cost, data)
    low, high = min(shortest, traced) - most, max(longest, traced) - least
    return Estimate(
        low=max(low, 0.0) * (1 - VARIATION),
        likely=traced - likely,
        high=high * (1 + VARIATION),
        ends=(traced - most, traced - least),
    )


def _late_groups(parts: dict[str, float]) -> tuple[tuple[str, ...], ...]:
    return PACED_BY_LAUNCHES if "launch_bound" in parts else PACED_BY_OPERATORS


def _removable(parts: dict[str, float], cost: float, data_cost: float) -> float:
    """Return the part of the given overhead that adds to the step time, in ns.

    Overhead in the phase `data` is limited to the time that the step waits for data.
    """
    late = sum(parts.get(part, 0.0) for group in _late_groups(parts) for part in group)
    return min(data_cost, parts.get("data_wait", 0.0)) + min(cost - data_cost, late)


def steps_to_judge(parts: dict[str, float], overhead: Overhead, workers: bool) -> list[Step]:
    """Return one or more possible unprofiled steps.

    If the step time wasn't measured, return the most likely step and the steps at both ends of the
    estimate.

    - parts: the parts of the traced step in ns.
    - workers: whether data loader workers load the data.
    """
    estimated, traced = overhead.estimated, overhead.traced_ns
    if overhead.measured_ns is not None:
        return [without_profiler(parts, overhead, overhead.measured_ns, True, workers)]
    if estimated is None or estimated.ends[0] >= EQUAL * traced:
        return [Step(parts, False)]
    lengths = [estimated.likely, *estimated.ends]
    return [without_profiler(parts, overhead, length, False, workers) for length in lengths]


def without_profiler(
    parts: dict[str, float], overhead: Overhead, length_ns: float, measured: bool, workers: bool
) -> Step:
    """Return an unprofiled step that takes length_ns.

    If the length was measured, any time beyond the traced steps becomes the part `unseen`. If data
    loader workers load the data and the wait for data wasn't timed, this time counts as waiting for
    data instead.
    """
    parts = dict(parts)
    change = overhead.data_change_ns if measured else None
    data_timed = change is not None and "data_wait" in parts
    if data_timed:
        parts["data_wait"] = max(0.0, parts["data_wait"] + change)
        rest = overhead.cost_ns - overhead.data_cost_ns
        overhead = replace(overhead, cost_ns=rest, data_cost_ns=0.0)
    unseen = _unseen(parts, overhead, length_ns) if measured else 0.0
    excess = max(sum(parts.values()) + unseen - length_ns, 0.0)
    _shorten(parts, excess, overhead, measured, data_timed)
    if unseen:
        is_wait = workers and change is None and "data_wait" in parts
        name = "data_wait" if is_wait else "unseen"
        parts[name] = parts.get(name, 0.0) + unseen
    if measured:
        _stretch(parts, length_ns, ("data_wait",) if data_timed and not unseen else ())
    return Step(parts, measured, untypical=bool(unseen))


def _unseen(parts: dict[str, float], overhead: Overhead, length_ns: float) -> float:
    """Subtract the profiler overhead from the traced steps, and return the time in ns by which the
    unprofiled step is longer. Return 0 if the lowest possible overhead explains the difference.
    """
    if overhead.estimated and length_ns <= overhead.estimated.ends[1]:
        return 0.0
    traced, cost, data = sum(parts.values()), overhead.cost_ns, overhead.data_cost_ns
    longest = traced - _removable(parts, MIN_RATIO * cost, MIN_RATIO * data)
    if length_ns - longest < MISSING * length_ns:
        return 0.0
    return length_ns - traced + _removable(parts, cost, data)


def _shorten(
    parts: dict[str, float], excess: float, overhead: Overhead, measured: bool, data_timed: bool
) -> None:
    """Subtract the extra time from the parts.

    First, subtract the overhead in `data` from the wait for data. Then subtract as much as possible
    from the parts that the profiler lengthens. Subtract the rest from the other host parts.

    If the step was measured, any extra time beyond the profiler overhead was lost to other programs
    in the traced steps. If the wait for data was also timed, shorten this wait last.
    """
    in_data = excess * overhead.data_cost_ns / overhead.cost_ns if overhead.cost_ns else 0.0
    meanwhile = max(excess - overhead.cost_ns, 0.0) if measured else 0.0
    excess -= _take(parts, ("data_wait",), min(in_data, excess))
    excess -= _take(parts, (CPU_STEAL,), min(meanwhile, excess))
    for group in _late_groups(parts):
        excess -= _take(parts, group, excess)
    last = ("data_wait",) if data_timed else ()
    excess -= _take(parts, tuple(part for part in OTHER_HOST_PARTS if part not in last), excess)
    _take(parts, last, excess)


def _take(parts: dict[str, float], group: Sequence[str], amount: float) -> float:
    """Shorten these parts proportionally by at most this amount, and return the removed time."""
    there = sum(parts.get(part, 0.0) for part in group)
    taken = min(amount, there)
    if taken > 0:
        parts |= {part: parts[part] * (1 - taken / there) for part in group if part in parts}
    return taken


def _stretch(parts: dict[str, float], length_ns: float, fixed: Sequence[str]) -> None:
    """Scale the parts that aren't fixed so that all parts add up to this length."""
    kept = sum(parts.get(part, 0.0) for part in fixed)
    others = sum(parts.values()) - kept
    if others <= 0 or kept > length_ns:
        fixed, kept, others = (), 0.0, sum(parts.values())
    factor = (length_ns - kept) / others if others else 1.0
    for part in parts:
        parts[part] *= 1.0 if part in fixed else factor
