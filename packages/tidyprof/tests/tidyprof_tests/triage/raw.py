"""What a raw file says about a run, by algorithms of their own: nothing here comes from tidyprof.

Definitions are those of the docstrings of tidyprof (budget.step_budget, on_device.PARTS,
on_host.PARTS, steps.steps).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from tidyprof_tests.triage.raw_files import ON_DEVICE, Event, Rank, Recording
from tidyprof_tests.triage.raw_time import (
    ALLOCATING,
    COMPILING,
    COPYING,
    DATA,
    GRAPH_LAUNCH,
    LAUNCH,
    LOADER,
    MS,
    SYNCHRONISING,
    WAITING,
    Axis,
    Window,
    Work,
    around,
    blocking_copies,
    device_parts,
    device_steps,
    host_parts,
    longest_search,
    named,
    searches,
    slow_first_launches,
)

STEP = r"ProfilerStep#(\d+)"
MARKS = (
    r"(Optimizer\.)?zero_grad(#.*)?",
    r"(DistributedDataParallel\.)?forward",
    r"Optimizer\.step#.*",
)
NO_MARK = (
    r".*(nccl|rccl|gloo|mpi|ucc|xccl):.*|ProfilerStep#.*|enumerate\(DataLoader\)#.*|PyTorch"
    r" Profiler.*"
)
PHASES = (
    rf"{DATA}|forward|DistributedDataParallel\.forward|loss|backward|optimizer"
    r"|Optimizer\.(step|zero_grad)#.*"
)
COMPILED = r"triton_.*|Torch-Compiled Region.*|CompiledFunction.*|.*CompiledFxGraph.*"
TRAINING = r"autograd::engine::evaluate_function.*|Optimizer\.step#.*|backward|optimizer"
TO_DEVICE = r".*(HtoD|HOST_TO_DEVICE|HostToDevice).*"
BEGINNING = re.compile(r"init|warm|build|set.?up|compil|cache|first|load|prepar", re.IGNORECASE)
NO_PARTS = ("earlier", "dry", "idle")
SMALL_NS, ROUND, ROUNDS = 20_000, 16, 20


@dataclass
class Row:
    """One step of one device (or of a rank's host). length -- without what the file lacks. All
    times in ns.
    """

    rank: Any
    step: int | None
    begin: int
    end: int
    length: int
    parts: dict[str, int]
    unlinked: int = 0
    small: int = 0
    off: float | None = None
    stolen: float | None = None
    apart: tuple[str, int] | None = None
    steady: bool = True


@dataclass
class Side:
    """A rank with its device (None in a run without one), its steps, and its sets of time on an
    axis.
    """

    rank: Rank
    work: Work | None
    host: list[Window]
    windows: list[Window]
    axis: Axis
    sets: dict[str, np.ndarray]
    rows: list[Row] = field(default_factory=list)


class Truth:
    """The numbers of one recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ranks = recording.ranks
        self.device_events = [
            event for rank in self.ranks for own in rank.devices.values() for event in own
        ]
        self.on_host = (
            not self.device_events
            and not recording.gpu
            and any(rank.operators for rank in self.ranks)
        )
        self.sides = [side for rank in self.ranks for side in self._sides(rank)]
        self.rows = [row for side in self.sides for row in side.rows]
        if self.rows:
            self._choose()

    def _sides(self, rank: Rank) -> list[Side]:
        host = host_steps(rank)
        if self.on_host:
            events = [*rank.operators, *rank.ranges, *rank.calls]
            windows = host or [
                (None, min(one.start for one in events), max(one.end for one in events))
            ]
            sides = [Side(rank, None, host, windows, *host_parts(rank, windows))]
        else:
            works = {name: Work.of(rank, events) for name, events in rank.devices.items()}
            own = [*works.values()]
            first, copies = (
                [*slow_first_launches(rank, own)[0], *searches(rank, own)],
                blocking_copies(own),
            )
            sides = []
            for work in works.values():
                windows = device_steps(work, host)
                sides.append(
                    Side(
                        rank, work, host, windows, *device_parts(rank, work, windows, first, copies)
                    )
                )
        for side in sides:
            side.rows = [self._row(side, window) for window in side.windows]
        return sides

    def _row(self, side: Side, window: Window) -> Row:
        number, begin, end = window
        parts = {name: side.axis.within(times, begin, end) for name, times in side.sets.items()}
        parts |= _taken(side, begin, end, parts)
        row = Row(
            side.rank.number, number, begin, end, end - begin - parts.get("earlier", 0), parts
        )
        row.off, row.stolen = _processor(side.rank, begin, end)
        if side.work is None:
            row.small = side.axis.within(looped(side)[1], begin, end)
        else:
            lost = [
                event
                for event, call in zip(side.work.events, side.work.calls, strict=True)
                if call is None
            ]
            row.unlinked = side.axis.within(side.axis.cover(lost), begin, end)
        return row

    def _choose(self) -> None:
        """Which rows count: none that a range makes longer, and not the first where two others
        remain.
        """
        reasons = {
            number: reason for side in self.sides for number, reason in _longer(side).items()
        }
        later = []
        for side in self.sides:
            for row in side.rows:
                row.apart = reasons.get(row.step) if row.step is not None else None
            later += [row for row in side.rows if row.apart is None][1:]
        usual = [row for row in self.rows if row.apart is None]
        chosen = later if len(later) >= 2 * len(self.sides) else usual or self.rows
        for row in self.rows:
            row.steady = any(row is one for one in chosen)

    @cached_property
    def steady(self) -> list[Row]:
        return [row for row in self.rows if row.steady]

    @property
    def marked(self) -> bool:
        return any(row.step is not None for row in self.rows)

    @property
    def steps(self) -> int:
        return len({row.step for row in self.rows})

    @property
    def step_ns(self) -> float:
        return sum(row.length for row in self.steady) / len(self.steady)

    def share(self, name: str) -> float:
        """A part of the steady steps as they were recorded, 0 to 1."""
        total = sum(row.length for row in self.steady)
        return sum(row.parts.get(name, 0) for row in self.steady) / total if total else 0.0

    @property
    def parts(self) -> list[str]:
        return [name for name in (self.rows[0].parts if self.rows else {}) if name not in NO_PARTS]

    @property
    def unlinked(self) -> float:
        """Share of the device's work without a launch."""
        work = sum(row.parts[name] for row in self.steady for name in
                   ("compute", "exposed_communication", "exposed_copy", "fetching"))  # fmt: skip
        return sum(row.unlinked for row in self.steady) / max(work, 1)

    @property
    def first_step(self) -> float | None:
        """The first step over the median of the others."""
        return self._first(lambda row: row.length)

    @property
    def first_alone(self) -> float | None:
        """The same without what other programs had of each step."""
        return self._first(lambda row: row.length - row.parts.get("taken", 0))

    def _first(self, length: Any) -> float | None:
        if not self.marked:
            return None
        lengths = [[length(row) for row in side.rows if row.apart is None] for side in self.sides]
        return min(
            (own[0] / max(median(own[1:]), 1) for own in lengths if len(own) > 1), default=None
        )

    def events(self, kind: str) -> list[Event]:
        """All events of one kind."""
        where = {"call": "calls", "operator": "operators", "range": "ranges"}
        if kind in ON_DEVICE:
            return [event for event in self.device_events if event.kind == kind]
        return [event for rank in self.ranks for event in getattr(rank, where[kind])]

    def per_step(self, chosen: Any) -> float:
        """How many a function of a side and its judged time finds, for each judged step, the mean
        over sides.
        """
        each = ((side, judged(side), sum(row.steady for row in side.rows)) for side in self.sides)
        return sum(chosen(side, windows) / max(count, 1) for side, windows, count in each) / len(
            self.sides
        )

    @property
    def counts(self) -> dict[str, float]:
        """Of one judged step, or of the judged time where none is marked."""
        return {
            "kernels": self.per_step(
                lambda side, judged: sum(one.kind == "kernel" for one in _work(side, judged))
            ),
            "copies": self.per_step(
                lambda side, judged: len(named(_work(side, judged), TO_DEVICE))
            ),
            "batches": self.per_step(
                lambda side, judged: len(
                    named(within(side.rank.ranges, judged), r"enumerate\(DataLoader\)#.*__next__")
                )
            ),
            "waiting": self.per_step(
                lambda side, judged: len(
                    {
                        id(one)
                        for one in [
                            *named(
                                within(side.rank.calls, judged),
                                f"(?!({ALLOCATING})$)({SYNCHRONISING}|{COPYING})",
                            ),
                            *within(blocking_copies([side.work]), judged),
                        ]
                    }
                )
            ),
            "allocating": self.per_step(
                lambda side, judged: len(named(within(side.rank.calls, judged), ALLOCATING))
            ),
        }

    @property
    def graph_share(self) -> float:
        """Of all device events those that a graph launched, the largest of the ranks."""
        return max(
            sum(bool(call and re.fullmatch(GRAPH_LAUNCH, call.name)) for call in side.work.calls)
            / len(side.work.calls)
            for side in self.sides
        )

    @property
    def replays(self) -> tuple[int, int, int, int]:
        """Launches of graphs, those without an event on the device, events of the middle and of the
        largest one.
        """
        found = []
        for rank in self.ranks:
            counts = Counter(id(call) for side in self.sides if side.rank is rank and side.work
                             for call in side.work.calls if call)  # fmt: skip
            started = [counts[id(call)] for call in named(rank.calls, GRAPH_LAUNCH)]
            if len(started) > 1 and started[-1] == 0 and 0 not in started[:-1]:
                started.pop()
            found.append(
                (
                    len(started),
                    started.count(0),
                    int(median(started or [0])),
                    max(started, default=0),
                )
            )
        return max(found, key=lambda one: (one[1], one[0]))

    @property
    def again(self) -> float:
        """Of the device's work, or without one of the judged time, what runs forward again inside
        of backward.
        """
        found = []
        for side in self.sides:
            begins, spans = judged(side), forward_again(side.rank)
            if side.work is None:
                axis = Axis([], {time for pair in [*begins, *spans] for time in pair})
                inside = axis.length(axis.of(spans) & axis.of(begins))
                found.append(inside / max(axis.length(axis.of(begins)), 1))
                continue
            all_work = again = 0
            for event, call in zip(side.work.events, side.work.calls, strict=True):
                if call and any(begin <= call.start < end for begin, end in begins):
                    all_work += event.end - event.start
                    again += (event.end - event.start) * any(
                        begin <= call.start < end for begin, end in spans
                    )
            found.append(again / max(all_work, 1))
        return max(found)

    @property
    def captured(self) -> float:
        """Launches between the begin of a capture and its end, of all launches of work."""
        found = []
        for rank in self.ranks:
            state, inside, launches = 0, 0, 0
            for call in rank.calls:
                state += call.name.endswith("StreamBeginCapture") or "BeginCapture_" in call.name
                state -= state > 0 and "StreamEndCapture" in call.name
                if re.fullmatch(LAUNCH, call.name) and not re.fullmatch(GRAPH_LAUNCH, call.name):
                    launches, inside = launches + 1, inside + (state > 0)
            found.append(inside / max(launches, 1))
        return max(found)

    @property
    def slow(self) -> tuple[int, float, int, float]:
        """Slow first launches: how many, ms in sum, of how many launches, µs of the median one."""
        found = [slow_first_launches(side.rank, [side.work]) for side in self.sides]
        together = sum(call.end - call.start for slow, _, _ in found for call in slow)
        launches = sum(len(one) for _, one, _ in found)
        return (
            sum(len(one) for one, _, _ in found),
            together / 1e6,
            launches,
            max(one for *_, one in found) / 1e3,
        )

    @property
    def search(self) -> tuple[str, int]:
        """The operator with the most time in which it tried out kernels, of the rank with the most
        of it, and ns.
        """
        found = [
            longest_search(rank, [side.work for side in self.sides if side.rank is rank])
            for rank in self.ranks
        ]
        return max(found, key=lambda one: one[1])

    @property
    def gap(self) -> tuple[float, float, float, list[str], bool] | None:
        """The longest idle stretch outside of loading: ns, share of all, over the second, calls
        that cover half, and whether nothing of its name ran before what ends it.
        """
        found = []
        for side in self.sides:
            begin, end = side.work.events[0].start, max(one.end for one in side.work.events)
            idle = side.sets["idle"] & ~side.sets["earlier"] & side.axis.of([(begin, end)])
            runs = sorted(side.axis.runs(idle), key=lambda run: run[0] - run[1])
            if runs:
                (first, last), *rest = runs
                calls = [
                    call.name
                    for call in side.rank.calls
                    if 2 * (min(call.end, last) - max(call.start, first)) >= last - first
                ]
                second = rest[0][1] - rest[0][0] if rest else 1
                before = {one.name for one in side.work.events if one.start < last}
                is_first = any(
                    one.start == last and one.name not in before for one in side.work.events
                )
                found.append(
                    (
                        last - first,
                        (last - first) / side.axis.length(idle),
                        (last - first) / second,
                        calls,
                        is_first,
                    )
                )
        return max(found, key=lambda one: one[0], default=None)

    def idle_in_calls(self, side: Side, pattern: str) -> Counter[str]:
        """For each call of a name how long nothing was there to do while it ran."""
        found: Counter[str] = Counter()
        for call in named(side.rank.calls, pattern):
            found[call.name] += side.axis.within(side.sets["dry"], call.start, call.end)
        return found

    def under(self, name: str, part: str) -> float:
        """Share of a part in stretches that operators, or modules, of this name cover by half; the
        largest of ranks.
        """
        found = []
        for side in self.sides:
            runs = side.axis.runs(side.sets[part])
            modules = named(side.rank.functions, rf"nn\.Module: {re.escape(name)}(_\d+)?")
            own = [one for one in side.rank.operators if one.name == name] or modules
            if not own:
                continue
            begin, end = (
                np.array([*times], np.int64)
                for times in zip(*((one[2], one[3]) for one in own), strict=True)
            )
            covered = [
                last - first
                for first, last in runs
                if (2 * (np.minimum(end, last) - np.maximum(begin, first)) >= last - first).any()
            ]
            found.append(sum(covered) / max(sum(last - first for first, last in runs), 1))
        return max(found, default=0.0)

    @property
    def compiling(self) -> float:
        """Share of all steps' time in ranges of the compiler."""
        spent = 0
        for side in self.sides:
            events = named([*side.rank.ranges, *side.rank.operators], COMPILING)
            axis = Axis(events)
            spent += axis.length(axis.cover(events)) if events else 0
        return spent / max(sum(row.length for row in self.rows), 1)

    def is_named(self, pattern: str) -> bool:
        """Whether an operator, a range or an event on a device has such a name."""
        return bool(
            named([*self.events("operator"), *self.events("range"), *self.device_events], pattern)
        )

    @property
    def kernel_time(self) -> tuple[Counter[str], Counter[str]]:
        """Time and calls of all kernels, collectives among them, by name."""
        time, calls = Counter(), Counter()
        for event in self.device_events:
            if event.kind in ("kernel", "collective"):
                time[event.name] += event.end - event.start
                calls[event.name] += 1
        return time, calls

    @property
    def small(self) -> float:
        """Share of the time in loops over small operators."""
        return sum(row.small for row in self.steady) / sum(row.length for row in self.steady)

    @property
    def looped(self) -> Counter[str]:
        """Small operators in loops, by name, for a step of the rank that has most of one."""
        counts = [(Counter(looped(side)[0]), len(side.rows)) for side in self.sides]
        return Counter(
            {name: number / steps for one, steps in counts for name, number in one.items()}
        )

    def processor(self, name: str) -> float | None:
        """Share of the time without a processor (off) or in line for one (stolen); None where not
        recorded.
        """
        values = [getattr(row, name) for row in self.steady]
        return None if None in values else sum(values) / sum(row.length for row in self.steady)


def host_steps(rank: Rank) -> list[Window]:
    """The steps that the host marked, see steps.steps."""
    if marks := named(rank.ranges, STEP):
        return [(int(re.fullmatch(STEP, one.name)[1]), one.start, one.end) for one in marks]
    if (mark := _mark(rank)) is None:
        return []
    events = [*rank.calls, *rank.operators, *rank.ranges]
    begins = sorted({one.start for one in events if one.name == mark})
    behind = [one for one in events if one.start >= begins[-1]]
    phases = [one for one in named(behind, PHASES) if one.kind == "range" and one.name != mark]
    end = max(one.end for one in phases or behind)
    return [
        (place, *pair) for place, pair in enumerate(zip(begins, [*begins[1:], end], strict=True))
    ]


def _mark(rank: Rank) -> str | None:
    if named(rank.ranges, "data"):
        return "data"
    for pattern in MARKS:
        counts = Counter(one.name for one in named(rank.ranges, pattern))
        if repeating := [one.name for one in rank.ranges if counts[one.name] > 1]:
            return repeating[0]
    outer, reach = [], None
    own = [one for one in rank.ranges if not re.fullmatch(NO_MARK, one.name)]
    for one in own:
        if reach is None or one.start >= reach:
            outer.append(one.name)
        reach = one.end if reach is None else max(reach, one.end)
    size = next((place for place in range(1, len(outer)) if outer[place] == outer[0]), len(outer))
    rounds = len(outer) >= max(3 * size, 3) and all(
        name == outer[i % size] for i, name in enumerate(outer)
    )
    return outer[0] if rounds and len({one.thread for one in own}) == 1 else None


def _longer(side: Side) -> dict[int | None, tuple[str, int]]:
    """Steps that a range makes longer which most others lack: its name and its time."""
    windows = side.host
    lengths = [end - begin for _, begin, end in windows]
    if len(windows) < 3:
        return {}
    usual, found = median(lengths), {}
    inside: dict[str, list[int]] = {}
    by_name: dict[str, list[Event]] = {}
    for one in side.rank.ranges:
        if not re.fullmatch(STEP, one.name):
            by_name.setdefault(re.sub(r"\d+", "#", one.name), []).append(one)
    axis = Axis(side.rank.ranges, {time for _, *pair in windows for time in pair})
    for name, events in by_name.items():
        times = axis.cover(events)
        inside[name] = [axis.within(times, begin, end) for _, begin, end in windows]
    for place, (number, *_) in enumerate(windows):
        rare = {}
        for name, spent in inside.items():
            others = sum(time > 0 for time in spent) - (spent[place] > 0)
            if 2 * others <= len(windows) - 1 and not BEGINNING.search(name):
                rare[name] = spent[place]
        longest = max(rare, key=rare.get, default=None)
        if (
            lengths[place] >= 1.5 * usual
            and longest
            and 2 * rare[longest] >= lengths[place] - usual
        ):
            found[number] = (longest, rare[longest])
    return found


def _processor(rank: Rank, begin: int, end: int) -> tuple[float | None, float | None]:
    own = [times for _, first, *times in rank.watch if begin <= first + times[0] // 2 < end]
    if not rank.watch:
        return None, None
    stolen = sum(times[2] for times in own) if all(len(times) > 2 for times in own) else None
    return sum(max(length - busy, 0) for length, busy, *_ in own), stolen


def _taken(side: Side, begin: int, end: int, parts: dict[str, int]) -> dict[str, float]:
    """What others had of the parts that a thread in line for a processor lengthens, as much as of
    the script's part.
    """
    lost = Counter()
    for _, first, length, _, *line in side.rank.watch:
        if line and length and begin <= first + length // 2 < end:
            for name in {"data_wait", "between", "silent", "stalled", "launch_bound"} & {
                *side.sets
            }:
                runs = side.axis.runs(side.sets[name])
                inside = sum(
                    max(min(last, first + length) - max(start, first), 0) for start, last in runs
                )
                lost[name] += inside * min(line[0] / length, 1.0)
    less = {name: min(value, parts[name]) for name, value in lost.items()}
    return {name: parts[name] - value for name, value in less.items()} | {
        "taken": sum(less.values())
    }


OF_A_MODEL = re.compile(
    r"aten::(linear|conv\dd|(layer|rms|batch|group|instance)_norm|embedding|gelu|silu"
    r"|(leaky_)?relu_?|elu|hardswish_?|dropout_?|(log_)?softmax|cross_entropy_loss"
    r"|scaled_dot_product_attention|max_pool[12]d|adaptive_avg_pool2d)"
)


def forward_again(rank: Rank) -> list[tuple[int, int]]:
    """From the first to the last operator of a model in one node of backward, if two sorts of them
    are in it; what comes before the backward in a node of checkpoint, and its function that
    recomputes.
    """
    nodes: dict[int, list[Event]] = {}
    found = [
        (one.start, one.end)
        for one in rank.functions
        if re.search(r"checkpoint\.py.*: recompute_fn", one.name)
    ]
    running: dict[Any, list[tuple[int, Event]]] = {}
    first_inside: dict[int, int] = {}
    for place, one in enumerate(rank.operators):
        own = running.setdefault(one.thread, [])
        while own and own[-1][1].end <= one.start:
            own.pop()
        is_node = one.name.startswith("autograd::engine::evaluate_function")
        around = [
            (i, outer)
            for i, outer in own
            if re.search("evaluate_function|^CheckpointFunctionBackward", outer.name)
        ]
        if around and is_node and around[-1][1].name == "CheckpointFunctionBackward":
            first_inside.setdefault(around[-1][0], one.start)
        elif around and OF_A_MODEL.fullmatch(one.name) and "evaluate" in around[-1][1].name:
            nodes.setdefault(around[-1][0], []).append(one)
        own.append((place, one))
    for place, one in enumerate(rank.operators):
        if one.name == "CheckpointFunctionBackward":
            found.append((one.start, first_inside.get(place, one.end)))
    several = [inside for inside in nodes.values() if len({one.name for one in inside}) > 1]
    return found + [(inside[0].start, max(one.end for one in inside)) for inside in several]


def outermost(operators: list[Event]) -> list[Event]:
    """Those that no other operator of their thread is around; operators are in order of start."""
    reach: dict[Any, int] = {}
    found = []
    for one in operators:
        if one.start >= reach.get(one.thread, -1):
            found.append(one)
        reach[one.thread] = max(reach.get(one.thread, -1), one.end)
    return found


def judged(side: Side) -> list[tuple[int, int]]:
    """The host's ranges of the judged steps; without steps the judged time."""
    steady = [row for row in side.rows if row.steady]
    if not side.host:
        return [(row.begin, row.end) for row in steady]
    return [
        (begin, end) for number, begin, end in side.host if number in {row.step for row in steady}
    ]


def within(events: Iterable[Event], judged: list[tuple[int, int]]) -> list[Event]:
    return [event for event in events if any(begin <= event.start < end for begin, end in judged)]


def _work(side: Side, judged: list[tuple[int, int]]) -> list[Event]:
    """The device's events that were launched in this time; that began in it where no launch or no
    step is known.
    """
    calls = side.work.calls
    if not side.host or not any(calls):
        return within(side.work.events, judged)
    return [
        event
        for event, call in zip(side.work.events, calls, strict=True)
        if call and within([call], judged)
    ]


def looped(side: Side) -> tuple[list[str], np.ndarray]:
    """Names of the small operators in rounds of up to 16 that come 20 times in a row; the time in
    and behind them.
    """
    top = outermost(side.rank.operators)
    chosen = set()
    for size in range(1, min(ROUND, len(top) // ROUNDS) + 1):
        same = 0
        for place in range(size, len(top)):
            same = same + 1 if top[place].name == top[place - size].name else 0
            if same >= (ROUNDS - 1) * size:
                chosen.update(
                    range(place - same - size + 1, place + 1)
                    if same == (ROUNDS - 1) * size
                    else [place]
                )
    axis, pairs, names = side.axis, [], []
    for place in sorted(chosen):
        one, following = top[place], top[min(place + 1, len(top) - 1)].start
        following = one.end if place + 1 == len(top) else following
        spot = np.searchsorted(axis.cuts, one.start)
        if (
            one.end - one.start < SMALL_NS
            and following - one.end < MS
            and side.sets["compute"][spot]
        ):
            pairs.append((one.start, max(following, one.end)))
            names.append(one.name)
    times = axis.of(pairs) & (side.sets["compute"] | side.sets["between"])
    return names, times


def own_times(truth: Truth) -> list[Counter[str]]:
    """For each rank the time of its operators that is not of others in them, by name, of those that
    began in judged steps.
    """
    found = []
    for side in truth.sides:
        begun = within(side.rank.operators, judged(side))
        begun.sort(key=lambda one: (one.start, -one.end))
        times: Counter[str] = Counter()
        for one, outer in zip(begun, around(begun), strict=True):
            times[one.name] += one.end - one.start
            if outer is not None:
                times[begun[outer].name] -= one.end - one.start
        found.append(times)
    return found


def loader_starts(truth: Truth) -> Counter[str]:
    """Outermost operators that began while data were loaded, by name, for a step, of the rank with
    the most.
    """
    found: Counter[str] = Counter()
    for side in truth.sides:
        data = named(side.rank.ranges, DATA)
        axis = Axis(data)
        inside = axis.runs(axis.cover(data)) if data else []
        own = [
            one
            for one in side.rank.operators
            if any(begin <= one.start < end for begin, end in inside)
        ]
        counts = Counter(one.name for one in outermost(own))
        found |= Counter({name: number / max(len(side.host), 1) for name, number in counts.items()})
    return found


def loading_by_loader(truth: Truth) -> float | None:
    """Share of the phase `data` in which a DataLoader was at work; None without that phase."""
    data = [one for side in truth.sides for one in named(side.rank.ranges, DATA)]
    if not data:
        return None
    axis = Axis(data)
    loader = axis.cover(named(data, LOADER))
    return axis.length(loader) / axis.length(axis.cover(data))


__all__ = [
    "WAITING",
    "Row",
    "Side",
    "Truth",
    "host_steps",
    "judged",
    "loader_starts",
    "loading_by_loader",
    "looped",
]
