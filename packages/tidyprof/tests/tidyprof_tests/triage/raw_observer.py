"""The step without the profiler, from what the profiler wrote down and what that costs by
docs/triage.md.

Of a trace of torch.profiler. What others cost is not known, and what a model made is taken as it
is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import fmean, median

from tidyprof_tests.triage import raw_ranks
from tidyprof_tests.triage.raw import Truth, judged
from tidyprof_tests.triage.raw_files import Event, Rank
from tidyprof_tests.triage.raw_time import DATA, Axis, around, named

OPERATOR, ALONE, CALL, FUNCTION = 2.4, 1.6, 1.6, 1.0
USUAL_NS, FEWEST = 1800.0, 30
WIDEST = 1.26
HOST_PARTS = ("silent", "blocked_host", "allocation", "start_up", "data_wait", "compiling", "taken")
"""Those that the host makes last, besides those that lose the excess first."""


@dataclass(frozen=True)
class Bill:
    """Of one judged step: how many events were recorded, what they cost in ns, and what of that
    lies in `data`.
    """

    events: float
    cost: float
    data: float


def usual_gap(operators: list[Event]) -> float:
    """The median time from an operator's start to that of the first one in it, in ns."""
    first: dict[int, int] = {}
    for one, outer in zip(operators, around(operators), strict=True):
        if outer is not None:
            first.setdefault(outer, one.start - operators[outer].start)
    return float(median(first.values())) if len(first) >= FEWEST else USUAL_NS


def bill(truth: Truth, rank: Rank) -> Bill:
    """That of one rank."""
    sides = [side for side in truth.sides if side.rank is rank]
    number = len({row.step for side in sides for row in side.rows if row.steady})
    pairs = {pair for side in sides for pair in judged(side)}
    data = named(rank.ranges, DATA)
    axis = Axis(data, {time for pair in pairs for time in pair})
    whole = axis.of(pairs)
    kinds = (
        (rank.operators, OPERATOR if rank.calls else ALONE),
        (rank.calls, CALL),
        (rank.functions, FUNCTION),
    )
    found = []
    for times in (axis.runs(whole), axis.runs(whole & axis.cover(data))):
        counts = [_beginning(events, times) / number for events, _ in kinds]
        price = sum(count * one for count, (_, one) in zip(counts, kinds, strict=True))
        found.append((sum(counts), price * usual_gap(rank.operators)))
    (events, cost), (_, in_data) = found
    return Bill(events, cost, in_data)


def _beginning(events: list[Event], times: list[tuple[int, int]]) -> int:
    starts = [event.start for event in events]
    return sum(bisect_left(starts, end) - bisect_left(starts, begin) for begin, end in times)


@cache
def bill_of_all(truth: Truth) -> Bill:
    """The mean over ranks."""
    bills = [
        bill(truth, rank) for rank in {id(side.rank): side.rank for side in truth.sides}.values()
    ]
    events, cost, data = (
        fmean(getattr(one, name) for one in bills) for name in ("events", "cost", "data")
    )
    # A traced step is at most three times as long as it is without the profiler.
    left = min(1.0, truth.step_ns * 2 / 3 / cost) if cost else 1.0
    return Bill(events, cost * left, data * left)


@dataclass(frozen=True)
class Step:
    """A step, traced or of this length without the profiler: its parts in ns, what of the
    communication is waiting for ranks that launch late (`awaited`) among these, and what the
    profiler added.
    """

    truth: Truth
    parts: dict[str, float]
    excess: float = 0.0

    @cached_property
    def length(self) -> float:
        return sum(self.parts.values())

    def share(self, name: str) -> float:
        """A part of it, 0 to 1."""
        found = self.parts.get(name, 0.0)
        if name == "exposed_communication":
            found += self.parts.get("awaited", 0.0)
        return found / self.length if self.length else 0.0

    @property
    def shorter(self) -> float:
        """The traced step in lengths of this one."""
        return self.truth.step_ns / self.length

    @property
    def start_up(self) -> float:
        """Share of all steps in slow first launches and searches. What lies outside of the judged
        steps stays.
        """
        rows = self.truth.rows
        every = sum(row.parts.get("start_up", 0) for row in rows) / sum(row.length for row in rows)
        before = traced(self.truth).share("start_up")
        return min(1.0, every * self.share("start_up") / before) if before else every

    @property
    def pace(self) -> float:
        """Launch-bound share of the rank that waits least."""
        return max(raw_ranks.pace(self.truth) * self.truth.step_ns - self.excess, 0.0) / self.length

    @property
    def waiting(self) -> float:
        """Share in which ranks wait for each other, less what was due to late launches."""
        less = traced(self.truth).parts.get("awaited", 0.0) - self.parts.get("awaited", 0.0)
        return max(raw_ranks.waiting(self.truth) * self.truth.step_ns - less, 0.0) / self.length

    @property
    def waits_left(self) -> float:
        """How many times the recorded share of waiting that is."""
        recorded = raw_ranks.waiting(self.truth) if raw_ranks.compared(self.truth) else 0.0
        return self.waiting / recorded if recorded else 1.0

    @property
    def small(self) -> float:
        """Share in loops over small operators, which is no more than what is left of operators and
        between them.
        """
        return min(self.truth.small * self.shorter, self.share("between") + self.share("compute"))


@cache
def traced(truth: Truth) -> Step:
    """The step as it was recorded."""
    names = [name for name in truth.parts if name != "awaited"]
    parts = {name: truth.share(name) * truth.step_ns for name in names}
    if len(truth.sides) > 1 and not truth.on_host:
        late = min(raw_ranks.waiting(truth), raw_ranks.pace(truth)) * truth.step_ns
        parts["awaited"] = min(late, parts["exposed_communication"])
        parts["exposed_communication"] -= parts["awaited"]
    return Step(truth, parts)


def _late(truth: Truth) -> tuple[str, ...]:
    """The parts that lose the excess first, in this order."""
    return ("between", "compute") if truth.on_host else ("launch_bound", "stalled", "awaited")


def _removable(truth: Truth, times: float) -> float:
    """What this many times the expected cost can have added: as much as is there of what it
    lengthens.
    """
    own, parts = bill_of_all(truth), traced(truth).parts
    late = sum(parts.get(name, 0.0) for name in _late(truth))
    return min(times * own.data, parts.get("data_wait", 0.0)) + min(
        times * (own.cost - own.data), late
    )


@cache
def lengths(truth: Truth) -> tuple[float, float, float] | None:
    """The least, the likeliest and the greatest length of the untraced step, in ns.

    None where that is not known, or no other than the traced one.
    """
    if truth.recording.tool != "torch.profiler" or truth.recording.modelled or not truth.rows:
        return None
    parts, cost = traced(truth).parts, bill_of_all(truth).cost
    whole, removable = sum(parts.values()), _removable(truth, 1.0)
    middle = whole - removable
    others = sum(parts.get(name, 0.0) for name in (*HOST_PARTS, "other"))
    low = max(whole - min(1.4 * cost, _removable(truth, 1.4) + 0.2 * others), middle / WIDEST)
    high = min(whole - 0.65 * removable, WIDEST * middle)
    return None if low >= 0.98 * truth.step_ns else (low, middle, high)


@cache
def step_of(truth: Truth, length: float) -> Step:
    """The step that takes so long without the profiler."""
    own, left = bill_of_all(truth), Counter(traced(truth).parts)
    whole = sum(left.values())
    excess = rest = max(whole - length, 0.0)
    in_data = excess * own.data / own.cost if own.cost else 0.0
    for name, most in (("data_wait", in_data), *((name, excess) for name in _late(truth))):
        gone = min(most, rest, left[name])
        left[name] -= gone
        rest -= gone
    lasting = [name for name in ("stalled", *HOST_PARTS) if left[name] > 0]
    kept = 1 - min(rest / sum(left[name] for name in lasting), 1.0) if lasting else 1.0
    return Step(
        truth,
        {name: value * (kept if name in lasting else 1.0) for name, value in left.items()},
        excess,
    )


def judged_step(truth: Truth) -> Step:
    """The step that shares are of."""
    found = lengths(truth)
    return step_of(truth, found[1]) if found else traced(truth)


def end_steps(truth: Truth) -> list[Step]:
    """Those of the least and the greatest length; none where the length is known."""
    found = lengths(truth)
    return [step_of(truth, found[0]), step_of(truth, found[2])] if found else []


__all__ = ["Step", "bill_of_all", "end_steps", "judged_step", "lengths"]
