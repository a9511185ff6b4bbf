"""What the profiler itself costs, and the budget of a step without it.

torch.profiler lengthens what the host does and nothing that a device does. So a traced step that
the host limits is longer than the same step without a profiler, and idle for longer. Here the
untraced step is found, or estimated as a range, and the excess is taken off the parts of the step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tidyprof.analyses.budget import NO_PARTS
from tidyprof.analyses.common import names_matching, occupied, plain_host_events
from tidyprof.analyses.steps import PHASE_PATTERNS
from tidyprof.diagnosis.host_facts import nested
from tidyprof.diagnosis.processor import CPU_STEAL, processor_time
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

if TYPE_CHECKING:
    from tidyprof.diagnosis.indicators import Signs

TOOL = "torch.profiler"
"""The tool whose cost is known."""

OPERATOR_GAPS, CALL_GAPS, FUNCTION_GAPS = 2.4, 1.6, 1.0
"""What recording an operator, a runtime call and a Python function costs, in times `gap_of`.

The first two were fitted to programs of two authors on one machine with an H200
(packages/tidyprof/tests/strangers/gpu), where the gap was 1.8 µs in the median: what the profiler
added to the 18 forms that the host limits is 0.74 to 1.38 times that, 1.06 in the median, but for
one form that waits for loaders. The third was measured on two cores of an AMD EPYC.
"""

OPERATOR_GAPS_ALONE = 1.6
"""The same for an operator where no device is recorded, measured on the same processor:
0.9 to 2.2 for seven programs.
"""

USUAL_GAP_NS, FEWEST_GAPS = 1800.0, 30
"""The gap to take where a file has fewer gaps than that: the one of the machine above."""

LEAST, MOST, WIDEST = 0.65, 1.4, 1.26
"""What the profiler adds is between LEAST and MOST times what is expected; a range is at most
WIDEST^2 = 1.6 wide.
"""

MOST_TIMES = 3.0
"""A traced step is at most so many times as long as the untraced one: 2.2 with a device, 3 for a
loop of `.item()` on a processor.
"""

SOFT = 0.2
"""Share of the host's other parts that may be the profiler's, too, at the lower end of the
range.
"""

MISSING = 0.15
"""Recorded steps that lack this share of the untraced step are not typical."""

NEARLY = 0.98
"""An untraced step with this share of the traced one counts as equally long."""

FIRST_TIMED, FEWEST_TIMED = 5, 3
"""The first steps of a file of times, which are not typical: they are left out where FEWEST_TIMED
others remain.
"""

LEAST_NS, MOST_NS = 1.0, 1e15
"""No step takes less than the unit of its times, and none eleven days."""

LATE, ALSO_LATE = "launch_bound", ("stalled",)
"""The part that loses the excess first, and the parts after it, in which the host is on its way to
the next launch, too.
"""

AWAITED = "awaited"
"""Time that devices wait in collectives for the last rank, as far as it is late because it launches
slowly.
"""

WAITING = (
    "stalled",
    "silent",
    "blocked_host",
    "allocation",
    "start_up",
    "data_wait",
    "compiling",
    CPU_STEAL,
)
"""The other parts whose length the host sets."""


@dataclass(frozen=True)
class Cost:
    """What recording cost one rank, for each judged step.

    operators, calls, functions -- how many were recorded. cost_ns -- what that is expected to add;
                None where it isn't known. is_open -- whether that leaves the untraced step open: a
                recording made by a model is taken as it is. data_cost_ns -- the part of cost_ns in
                the phase `data`.
    data_ns  -- the host's time in that phase, without loaders inside of other parts that the script
                timed: the least, without what other programs took, and the most, with that; None
                where most of the phase lies inside of other parts.
    untraced -- what the script timed before, see readers.torch.meta.untraced; times_ns -- the step
                by a file of times.
    """

    operators: float
    calls: float
    functions: float
    cost_ns: float | None
    is_open: bool
    data_cost_ns: float
    data_ns: tuple[float, float] | None
    untraced: dict[str, Any] | None
    times_ns: float | None


class Estimate(NamedTuple):
    """A range, and the value within it that is the likeliest."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Observer:
    """The step with and without the profiler, in ns; means over ranks.

    traced_ns    -- the judged step of the recording. events -- operators, calls and functions in
                    it.
    unprofiled_step_ns  -- without the profiler, None where unknown; source -- who says so.
    estimated_ns -- the range that it should lie in by the number of events, and the middle of it;
                    None for a tool whose cost is not known.
    cost_ns, data_cost_ns, is_open -- see Cost. shift_ns -- how much longer the host was in its
    phase `data` before the recording than in the recorded steps; None if unknown. at_most --
    whether unprofiled_step_ns was measured with waits for the device, and so is an upper limit.
    is_traced_one -- whether the length that the user gave is that of the recorded steps: it counts
                     for nothing.
    long_share -- share of the time, from 0 to 1, of single long steps among those that the script
                  timed.
    """

    traced_ns: float = 0.0
    events: float = 0.0
    unprofiled_step_ns: float | None = None
    source: str = ""
    estimated_ns: Estimate | None = None
    cost_ns: float = 0.0
    data_cost_ns: float = 0.0
    shift_ns: float | None = None
    at_most: bool = False
    is_traced_one: bool = False
    is_open: bool = False
    long_share: float = 0.0


def cost_of(profile: Profile, stacks: PlainEvents, judged: Intervals, steps: int) -> Cost:
    """The cost of a rank's profile. stacks -- its Python functions; judged -- the time of the
    judged steps on the host; steps -- how many these are.
    """
    operators, calls, ranges = (
        plain_host_events(profile, kind) for kind in ("operator", "runtime", "annotation")
    )
    data = judged & occupied(ranges, names_matching(ranges, PHASE_PATTERNS["data"]))
    gap = gap_of(operators)
    modelled = profile.origin.kind == "modelled"
    known = profile.meta.get("tool") == TOOL and not modelled
    recorded = (operators, calls, stacks)
    prices = (OPERATOR_GAPS if len(calls) else OPERATOR_GAPS_ALONE, CALL_GAPS, FUNCTION_GAPS)
    counts = [float(judged.contains(events["start_ns"]).sum()) / steps for events in recorded]
    in_data = [float(data.contains(events["start_ns"]).sum()) / steps for events in recorded]
    ranks = np.unique(operators["rank"]).tolist()
    rank = ranks[0] if len(ranks) == 1 and ranks[0] >= 0 else None
    untraced = profile.meta.get("untraced", {}).get(rank)
    # The script timed each moment as one part only. Where a loader runs inside of another part, the
    # trace has it as `data`, and the times before the recording don't.
    others = [re.escape(part) for part in (untraced or {}).get("parts_ns", ()) if part != "data"]
    alone = data - occupied(ranges, names_matching(ranges, "|".join(others)))
    lasting = alone.length
    queued = processor_time(
        profile, {"rank": rank}, judged.starts, judged.ends, {"data_wait": alone}
    )["data_wait"].sum()
    return Cost(
        *counts,
        cost_ns=gap * float(np.dot(prices, counts)) if known else None,
        is_open=not (known or modelled),
        data_cost_ns=gap * float(np.dot(prices, in_data)) if known else 0.0,
        data_ns=((lasting - queued) / steps, lasting / steps)
        if 2 * lasting >= data.length
        else None,
        untraced=untraced,
        times_ns=None if modelled else times_beside(profile.meta.get("files", ()), rank),
    )


def gap_of(operators: PlainEvents) -> float:
    """Median time in ns from the start of an operator to that of the first one within it, on its
    thread.

    It says how quick this processor is at what the profiler makes it do: it lay between 0.2 and 0.6
    µs on one machine, between 0.8 and 3 µs on another, and the cost of an operator went with it.
    """
    ordered, within = nested(operators)
    gaps = np.diff(ordered["start_ns"])[within]
    return float(np.median(gaps)) if len(gaps) >= FEWEST_GAPS else USUAL_GAP_NS


def times_beside(files: Sequence[str], rank: int | None) -> float | None:
    """Mean step in ns of `times_rank*.jsonl` beside a trace, which STEP_TIMER=times wrote; None
    where there is no sound one.

    A last line that a killed job left unfinished is left out.
    """
    path = Path(files[0]).parent / f"times_rank{rank or 0}.jsonl" if files else None
    if path is None or not path.is_file():
        return None
    try:
        # What stands behind the last end of a line is empty, or a line without its end.
        *whole, _ = path.read_text(encoding="utf-8").split("\n")
        lines = [json.loads(line) for line in whole]
        steps = [float(sum(line[part] for part in line if part not in NO_PARTS)) for line in lines]
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    typical = steps[FIRST_TIMED:] if len(steps) >= FIRST_TIMED + FEWEST_TIMED else steps[1:]
    mean = 1e9 * float(np.mean(typical)) if typical and min(typical) > 0 else 0.0
    return mean if LEAST_NS <= mean < MOST_NS else None


def observed(signs: Signs, costs: Sequence[Cost], step_ns: float | None = None) -> Observer:
    """The observer of a run; costs -- of its ranks. step_ns -- the untraced step, where the user
    knows it.
    """
    found = Observer(
        traced_ns=signs.step_ns,
        events=_mean([cost.operators + cost.calls + cost.functions for cost in costs]),
        cost_ns=_mean([cost.cost_ns or 0.0 for cost in costs]),
        data_cost_ns=_mean([cost.data_cost_ns for cost in costs]),
        is_open=any(cost.is_open for cost in costs),
    )
    if (most := (1 - 1 / MOST_TIMES) * signs.step_ns) < found.cost_ns:
        found = replace(found, cost_ns=most, data_cost_ns=found.data_cost_ns * most / found.cost_ns)

    if costs and all(cost.cost_ns is not None for cost in costs):
        found = replace(found, estimated_ns=estimate(signs, found))
    # Without marked steps the recording is one piece, which the time of a step can't be held
    # against.
    timed = [cost.untraced for cost in costs if cost.untraced and signs.marked]
    times = [cost.times_ns for cost in costs if cost.times_ns and signs.marked]
    stated = [one["parts_ns"]["data"] for one in timed if "data" in one["parts_ns"]]
    if stated and len(stated) == len(costs) and all(cost.data_ns is not None for cost in costs):
        least, most = (_mean(ends) for ends in zip(*(cost.data_ns for cost in costs), strict=True))
        found = _held_against(found, _mean(stated), least, most)
    # The surest source of the untraced step counts: the user, the times before the recording, a
    # file of times; without any of them the estimate remains.
    if step_ns is not None and not _is_traced_one(found, step_ns):
        return replace(found, unprofiled_step_ns=step_ns, source="--step-time-ms")
    found = replace(found, is_traced_one=step_ns is not None)
    if timed and len(timed) == len(costs):
        steps = timed[0]["steps"]
        source = f"{steps} steps that were timed before the recording"
        long = _mean([one.get("long_share", 0.0) for one in timed])
        return replace(
            found,
            unprofiled_step_ns=_mean([one["step_ns"] for one in timed]),
            source=source,
            long_share=long,
        )
    if times and len(times) == len(costs):
        waited = not signs.on_host
        source = "times_rank*.jsonl beside the trace" + (
            ", at most, since it waits for the device" if waited else ""
        )
        return replace(found, unprofiled_step_ns=_mean(times), source=source, at_most=waited)
    return found


def _is_traced_one(observer: Observer, step_ns: float) -> bool:
    """Whether a step is as long as the recorded ones, though without the profiler it should be
    shorter.
    """
    as_long = abs(step_ns - observer.traced_ns) <= (1 - NEARLY) * observer.traced_ns
    return (
        as_long
        and observer.estimated_ns is not None
        and observer.estimated_ns.high < NEARLY * observer.traced_ns
    )


def _held_against(
    observer: Observer, before_ns: float, least_ns: float, most_ns: float
) -> Observer:
    """The observer where the phase `data` was timed before the recording, too. What it lasts longer
    in the recording is the profiler's cost there, as far as that can be, or was taken by other
    programs; the rest is the shift.

    least_ns, most_ns -- the phase in the recording, without and with what other programs took.
    Nobody knows what they took before, so anything between these two is no shift.
    """
    expected = observer.data_cost_ns
    longer = max(most_ns - before_ns, 0.0)
    cost = min(max(expected, least_ns - before_ns), longer, MOST * expected)
    beyond = before_ns - (most_ns - cost)
    short_of = before_ns - (least_ns - cost)
    return replace(
        observer,
        cost_ns=observer.cost_ns - expected + cost,
        data_cost_ns=cost,
        shift_ns=max(beyond, 0.0) + min(short_of, 0.0),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def estimate(signs: Signs, observer: Observer) -> Estimate:
    """The range of the untraced step, in ns."""
    parts = _parts(signs)
    traced, cost, data = sum(parts.values()), observer.cost_ns, observer.data_cost_ns
    removed = _removable(parts, cost, data)
    middle = traced - removed
    others = sum(parts.get(part, 0.0) for part in (*WAITING, "other") if part not in ALSO_LATE)
    low = traced - min(MOST * cost, _removable(parts, MOST * cost, MOST * data) + SOFT * others)
    return Estimate(max(low, middle / WIDEST), middle, _high_end(traced, removed))


def _high_end(traced: float, removed: float) -> float:
    """The longest that a step should take without the profiler, in ns. traced -- its length in the
    recording; removed -- what the profiler is expected to have added.
    """
    return min(traced - LEAST * removed, WIDEST * (traced - removed))


def _parts(signs: Signs) -> dict[str, float]:
    """The parts of the traced step, in ns, with AWAITED apart from exposed communication."""
    found = {part: share * signs.step_ns for part, share in signs.shares.items()}
    if LATE in found:
        found[AWAITED] = min(
            min(signs.waiting, signs.pace or 0.0) * signs.step_ns, found["exposed_communication"]
        )
        found["exposed_communication"] -= found[AWAITED]
    return found


def _late_parts(parts: dict[str, float]) -> tuple[str, ...]:
    """The parts that lose the excess, in their order: on a processor the time between operators,
    then the time in them.
    """
    return (LATE, *ALSO_LATE, AWAITED) if LATE in parts else ("between", "compute")


def _removable(parts: dict[str, float], cost: float, data_cost: float) -> float:
    """How much of this cost lengthened the step, in ns: what lies in the phase `data` counts only
    as far as the step waits for data.
    """
    data = min(data_cost, parts.get("data_wait", 0.0))
    return data + min(cost - data_cost, sum(parts.get(part, 0.0) for part in _late_parts(parts)))


def without_profiler(signs: Signs, unprofiled_step_ns: float, known: bool) -> Signs:
    """The signs of the step without the profiler, which takes unprofiled_step_ns.

    known -- whether that was measured. Time that it has beyond the recorded steps is then a part
             `unseen`; where processes load the data, and the wait for them was not timed, it is
             that wait.
    """
    observer, parts = signs.observer, _parts(signs)
    timed = known and observer.shift_ns is not None and "data_wait" in parts
    if timed:
        # The wait for data is known, whatever the other parts lost or gained.
        longer = _clear(observer.shift_ns, unprofiled_step_ns) - observer.data_cost_ns
        parts["data_wait"] = max(0.0, parts["data_wait"] + longer)
        rest = observer.cost_ns - observer.data_cost_ns
        observer = replace(observer, cost_ns=rest, data_cost_ns=0.0)
    unseen = _unseen(parts, observer, unprofiled_step_ns) if known else 0.0
    excess = max(sum(parts.values()) + unseen - unprofiled_step_ns, 0.0)
    lasting = _less(parts, excess, observer, known)
    if timed and not unseen:
        lasting = _longer(lasting, unprofiled_step_ns)
    if unseen and signs.host.workers and observer.shift_ns is None and "data_wait" in lasting:
        lasting["data_wait"] += unseen
    elif unseen:
        lasting["unseen"] = unseen
    step = sum(lasting.values())
    slower = signs.step_ns / step
    awaited = lasting.pop(AWAITED, 0.0)
    if awaited:
        lasting["exposed_communication"] += awaited
    shares = {part: value / step for part, value in lasting.items()}
    # Where the judged steps have no start-up, all of it lies in a step that nobody judged, and
    # stays as it is.
    kept = slower * lasting["start_up"] / parts["start_up"] if parts.get("start_up") else 1.0
    # A part that lost time can't hold more of the small operators than is left of it.
    worked = sum(lasting.get(part, 0.0) for part in ("between", "compute"))
    return replace(
        signs,
        step_ns=step,
        shares=shares,
        start_up=min(1.0, signs.start_up * kept),
        pace=None if signs.pace is None else max(0.0, signs.pace * signs.step_ns - excess) / step,
        waiting=max(0.0, signs.waiting * signs.step_ns - parts.get(AWAITED, 0.0) + awaited) / step,
        small=min(signs.small * slower, worked / step) if signs.on_host else signs.small,
        untypical=bool(unseen),
    )


def _longer(parts: dict[str, float], step_ns: float) -> dict[str, float]:
    """The parts of a step that is so long, in ns, with the wait for data as it is and the others
    lengthened in proportion; unchanged where they fill the step.
    """
    others = sum(length for part, length in parts.items() if part != "data_wait")
    missing = step_ns - others - parts["data_wait"]
    if missing <= 0 or not others:
        return parts
    longer = 1 + missing / others
    return {
        part: length * (1.0 if part == "data_wait" else longer) for part, length in parts.items()
    }


def _clear(shift_ns: float, step_ns: float) -> float:
    """A difference in the time for data, in ns; 0 where steps differ by as much anyhow."""
    return shift_ns if abs(shift_ns) >= MISSING / 3 * step_ns else 0.0


def _unseen(parts: dict[str, float], observer: Observer, unprofiled_step_ns: float) -> float:
    """Time in ns that the untraced step has beyond the recorded ones without the profiler's cost; 0
    where it is within the longest that they could have been.
    """
    traced, cost, data = sum(parts.values()), observer.cost_ns, observer.data_cost_ns
    removed = _removable(parts, cost, data)
    longest = max(
        traced - _removable(parts, LEAST * cost, LEAST * data), _high_end(traced, removed)
    )
    if unprofiled_step_ns - longest < MISSING * unprofiled_step_ns:
        return 0.0
    return unprofiled_step_ns - traced + removed


def _less(
    parts: dict[str, float], excess: float, observer: Observer, known: bool
) -> dict[str, float]:
    """The parts without the excess, in ns. Its share in `data` is taken from the wait for data,
    then as much as possible from the late parts, and the rest from WAITING, from each in
    proportion.

    known -- whether the untraced step was measured. What the recording has beyond it and beyond the
             profiler's cost, other programs took there and not before. Where its time in `data` was
             measured, too, the wait for data loses more only if nothing else is left.
    """
    lasting = dict(parts)
    in_data = excess * observer.data_cost_ns / observer.cost_ns if observer.cost_ns else 0.0
    meanwhile = 0.0
    in_proportion: list[tuple[str, ...]] = [WAITING]
    if known:
        meanwhile = max(excess - observer.cost_ns, 0.0)
    if known and observer.shift_ns is not None:
        in_proportion = [tuple(part for part in WAITING if part != "data_wait"), ("data_wait",)]
    limits = [
        ("data_wait", in_data),
        (CPU_STEAL, meanwhile),
        *((part, excess) for part in _late_parts(parts)),
    ]
    for part, most in limits:
        taken = min(most, excess, lasting.get(part, 0.0))
        if taken:
            lasting[part] -= taken
            excess -= taken
    for group in in_proportion:
        waiting = sum(lasting.get(part, 0.0) for part in group)
        taken = min(excess, waiting)
        if taken:
            lasting |= {
                part: lasting[part] * (1 - taken / waiting) for part in group if part in lasting
            }
            excess -= taken
    return lasting


def views(signs: Signs) -> list[Signs]:
    """The signs of the step without the profiler; where its length is not known, for its likeliest
    length, then for both ends of the range.
    """
    observer = signs.observer
    if observer.unprofiled_step_ns is not None:
        lengths = [observer.unprofiled_step_ns]
        if observer.at_most and observer.estimated_ns:
            lengths.append(min(observer.unprofiled_step_ns, observer.estimated_ns.low))
        return [without_profiler(signs, length, known=True) for length in lengths]
    if observer.estimated_ns is None or observer.estimated_ns.low >= NEARLY * observer.traced_ns:
        return [signs]
    estimated = observer.estimated_ns
    lengths = [estimated.middle, estimated.low, estimated.high]
    return [without_profiler(signs, length, known=False) for length in lengths]
