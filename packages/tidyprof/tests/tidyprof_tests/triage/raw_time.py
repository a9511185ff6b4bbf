"""Sets of time by a sweep over sorted boundaries, and the times that triage divides a run into,
from raw events.

A set is one truth value for each stretch between two neighbouring boundaries, so that union, cut
and difference are those of truth values; tidyprof's own sets are lists of intervals.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tidyprof_tests.triage.raw_files import Event, Rank

MS = 1_000_000
EARLIEST, LATEST = -(2**62), 2**62

LAUNCH = r"(hip|cuda|cu)\w*Launch\w*"
GRAPH_LAUNCH = r"(hip|cuda)GraphLaunch\w*"
LOADING_CODE = r"(hip|cuda|cu)(Module|Library)Load\w*"
ASKING = r"(hip|cuda|cu)(Event|Stream)Query\w*"
SYNCHRONISING = r"(hip|cuda|cu)(Device|Stream|Event|Ctx|Thread)Synchronize\w*"
ALLOCATING = (
    r"(hipExt|hip|cuda|cu)(Mem)?(Host)?(Malloc|Alloc|Free)(?!\w*Async)\w*"
    r"|(hip|cuda)Host(Unr|R)egister"
)
COPYING = r"(hip|cuda|cu)Memcpy(?!\w*Async)\w*"
TO_HOST = r".*(DtoH|DEVICE_TO_HOST|DeviceToHost).*"
WAITING = f"{SYNCHRONISING}|{ALLOCATING}|{COPYING}"
DATA = r"data|enumerate\(DataLoader\)#.*"
LOADER = r"enumerate\(DataLoader\)#.*"
COMPILING = r".*\(dynamo_timed\)"
COLLECTIVE = r"(gloo|mpi|ucc|nccl|xccl):.*"
HANDING_OVER = r"c10d::.*|record_param_comms"

BLOCKING_NS, WITHOUT_CALLS_NS = MS // 10, 5 * MS
SEARCH_NS, SEARCHED = 30 * MS, 5


def named(events: Iterable[Event], pattern: str) -> list[Event]:
    """The events whose whole name matches."""
    known: dict[str, bool] = {}
    for event in (events := list(events)):
        if event.name not in known:
            known[event.name] = re.fullmatch(pattern, event.name, re.DOTALL) is not None
    return [event for event in events if known[event.name]]


class Axis:
    """Time, cut at all boundaries of these events and times."""

    def __init__(self, events: Iterable[Event], times: Iterable[int] = ()) -> None:
        cuts = {*times}
        for event in events:
            cuts.update((event.start, event.end))
        self.cuts = np.array(sorted(cuts), np.int64)
        self.lengths = np.diff(self.cuts)

    def none(self) -> np.ndarray:
        """The empty set."""
        return np.zeros(len(self.lengths), bool)

    def of(self, pairs: Iterable[tuple[int, int]]) -> np.ndarray:
        """The set that any of these pairs of begin and end cover."""
        ends = np.array([*pairs], np.int64).reshape(-1, 2)
        change = np.zeros(len(self.cuts), np.int64)
        np.add.at(change, np.searchsorted(self.cuts, ends[:, 0]), 1)
        np.add.at(change, np.searchsorted(self.cuts, ends[:, 1]), -1)
        return np.cumsum(change)[:-1] > 0

    def cover(self, events: Iterable[Event]) -> np.ndarray:
        """The set in which any of these events runs."""
        return self.of((event.start, event.end) for event in events)

    def within(self, found: np.ndarray, begin: int, finish: int) -> int:
        """How much of a set lies in a window whose ends are boundaries."""
        first, last = np.searchsorted(self.cuts, (begin, finish))
        return int(self.lengths[first:last][found[first:last]].sum())

    def length(self, found: np.ndarray) -> int:
        """How long a set is."""
        return int(self.lengths[found].sum())

    def runs(self, found: np.ndarray) -> list[tuple[int, int]]:
        """The stretches of a set, as long as they go."""
        edges = np.flatnonzero(np.diff(np.concatenate(([0], found.astype(np.int8), [0]))))
        return [
            (int(self.cuts[first]), int(self.cuts[last])) for first, last in edges.reshape(-1, 2)
        ]

    def long(self, found: np.ndarray, least: int) -> np.ndarray:
        """The stretches that last so long."""
        return self.of((begin, end) for begin, end in self.runs(found) if end - begin >= least)


Window = tuple[int | None, int, int]
"""A step: its number (None: all of the recording), begin and end."""


@dataclass(frozen=True)
class Work:
    """Events of one device with the calls that launched them (None: not recorded), in order of
    start.
    """

    events: list[Event]
    calls: list[Event | None]

    @classmethod
    def of(cls, rank: Rank, events: list[Event]) -> Work:
        """Of several calls with one id it is the first, of these the longest."""
        by_id: dict[object, Event] = {}
        for call in rank.calls:  # in order of start, the longest first
            if call.launches and call.correlation is not None:
                by_id.setdefault(call.correlation, call)
        return cls(events, [by_id.get(event.correlation) for event in events])

    def asked(self, place: int) -> int:
        """When it was launched; the earliest time where nobody knows."""
        call = self.calls[place]
        return EARLIEST if call is None else call.start

    @cached_property
    def first_of_stream(self) -> list[bool]:
        """Whether it is the first event of its stream."""
        seen: set[object] = set()
        return [not (event.stream in seen or seen.add(event.stream)) for event in self.events]

    @cached_property
    def by_start(self) -> dict[int, list[int]]:
        """Start -> places of the lasting events that begin then."""
        found: dict[int, list[int]] = {}
        for place, event in enumerate(self.events):
            if event.end > event.start:
                found.setdefault(event.start, []).append(place)
        return found


def idle_in_three(work: Work, begin: int, finish: int) -> tuple[list[tuple[int, int]], ...]:
    """Idle stretches as pairs: nothing was launched; queued; held up by work that the file lacks.

    By the event that ends the stretch: launched behind its begin, nothing was there to do. A
    millisecond or longer between the launch and the start of the first event of a stream: something
    else ran. See idleness.Idleness.
    """
    dry, queued, earlier = [], [], []
    reach, first = begin, min(event.start for event in work.events)
    ends = sorted(
        {event.start for event in work.events if event.end > event.start and event.start <= finish}
    )
    for time in [*ends, finish]:
        if time > reach:
            here = work.by_start.get(time, [])
            place = min(here, key=work.asked, default=None)
            _sort_idleness(work, place, (reach, time), (dry, queued, earlier), first)
        reach = max([reach, *(work.events[one].end for one in work.by_start.get(time, []))])
    return dry, queued, earlier


def _sort_idleness(
    work: Work, place: int | None, idle: tuple[int, int], lists: tuple[list, ...], first: int
) -> None:
    dry, queued, earlier = lists
    begin, end = idle
    call = None if place is None else work.calls[place]
    late = place is None or (call is not None and call.start >= begin)
    returned = end if call is None else min(max(call.end, begin), end)
    held = end - returned >= MS
    unseen = held and work.first_of_stream[place]
    # A launch that loads code for milliseconds has launched nothing before it returns.
    loads = call is not None and work.events[place].kind == "kernel" and call.end - call.start >= MS
    cut = (returned if held else end) if late else returned if loads else begin
    if unseen and begin < first:
        cut = begin
    dry.append((begin, cut))
    (earlier if unseen else queued).append((cut, end))


def device_steps(work: Work, host: Sequence[Window]) -> list[Window]:
    """The steps of a device: from their range on the host on, but not before what was launched
    earlier has ended.
    """
    events = work.events
    start, end = min(event.start for event in events), max(event.end for event in events)
    if not host:
        return [(None, start, end)]
    if all(call is None for call in work.calls):
        return list(host)
    launched = [_step_of(host, call) for call in work.calls]
    chosen = [place for place in range(len(host)) if place in set(launched)]
    _, _, unseen = idle_in_three(work, min(host[chosen[0]][1], start), end)
    begins, reached = [], EARLIEST
    asked = _asked_or_start(work)
    for place in chosen:
        begin = host[place][1]
        before = max(
            (event.end for event, time in zip(events, asked, strict=True) if time < begin),
            default=EARLIEST,
        )
        hidden = next(((first, last) for first, last in unseen if last > begin), None)
        if hidden and hidden[0] <= max(begin, before):
            begin = hidden[1]
        reached = max(reached, begin, before)
        begins.append(reached)
    own = [event.end for event, place in zip(events, launched, strict=True) if place == chosen[-1]]
    finish = max(*own, host[chosen[-1]][2], begins[-1])
    ends = [*begins[1:], finish]
    return [(host[place][0], begins[i], ends[i]) for i, place in enumerate(chosen)]


def _step_of(host: Sequence[Window], call: Event | None) -> int | None:
    if call is None:
        return None
    return next(
        (place for place, (_, begin, end) in enumerate(host) if begin <= call.start < end), None
    )


def _asked_or_start(work: Work) -> list[int]:
    """Launches; without one the start, and long before where the stream's first launch was not
    yet.
    """
    first: dict[object, int] = {}
    for event, call in zip(work.events, work.calls, strict=True):
        if call is not None:
            first.setdefault(event.stream, event.start)
    return [
        call.start
        if call
        else event.start
        if event.start >= first.get(event.stream, LATEST)
        else EARLIEST
        for event, call in zip(work.events, work.calls, strict=True)
    ]


def slow_first_launches(
    rank: Rank, works: Sequence[Work]
) -> tuple[list[Event], list[Event], float]:
    """Launches of a kernel's first event that took 100 times the median and 1 ms; all single
    launches; their median.
    """
    single: dict[int, list[Event]] = {}
    by_call: dict[int, Event] = {}
    for work in works:
        for event, call in zip(work.events, work.calls, strict=True):
            if call is not None:
                single.setdefault(id(call), []).append(event)
                by_call[id(call)] = call
    pairs = [(by_call[key], events[0]) for key, events in single.items() if len(events) == 1]
    pairs = [pair for pair in pairs if re.fullmatch(LAUNCH, pair[0].name)]
    lengths = sorted(call.end - call.start for call, _ in pairs)
    usual = float(np.median(lengths)) if lengths else 0.0
    first: dict[str, int] = {}
    for event in sorted(
        (event for work in works for event in work.events), key=lambda one: one.start
    ):
        first.setdefault(event.name, id(event))
    slow = [
        call
        for call, event in pairs
        if call.end - call.start >= max(100 * usual, MS) and first[event.name] == id(event)
    ]
    return slow, [call for call, _ in pairs], usual


def around(operators: list[Event]) -> list[int | None]:
    """For each operator the place of the one right around it on its thread; they are in order of
    start, long first.
    """
    running: dict[object, list[int]] = {}
    found = []
    for place, one in enumerate(operators):
        own = running.setdefault(one.thread, [])
        while own and operators[own[-1]].end <= one.start:
            own.pop()
        found.append(own[-1] if own else None)
        own.append(place)
    return found


def calling(rank: Rank) -> list[Event]:
    """Operators without another one in them, and with a call that begins in them on their
    thread.
    """
    inner = {*range(len(rank.operators))} - {*around(rank.operators)}
    begins: dict[object, list[int]] = {}
    for call in _starting(rank.calls):
        begins.setdefault(call.thread, []).append(call.start)
    found = []
    for one in (rank.operators[place] for place in sorted(inner)):
        own = begins.get(one.thread, [])
        if bisect_left(own, one.start) < bisect_left(own, one.end):
            found.append(one)
    return found


def _starting(host: list[Event]) -> list[Event]:
    """All but the calls that ask."""
    return named(host, rf"(?!({ASKING})$).*")


def searches(rank: Rank, works: Sequence[Work]) -> list[Event]:
    """Long operators of ATen's that launch many different kernels themselves."""
    long = [place for place, one in enumerate(rank.operators)
            if one.end - one.start >= SEARCH_NS and one.name.startswith("aten::")]  # fmt: skip
    if not long:
        return []
    outer, found = around(rank.operators), []
    launched = [
        (call, event.name)
        for work in works
        for event, call in zip(work.events, work.calls, strict=True)
        if call and event.kind == "kernel"
    ]
    for place in long:
        whole = rank.operators[place]
        within = [one for one, parent in zip(rank.operators, outer, strict=True) if parent == place]
        tried = {name for call, name in launched
                 if call.thread == whole.thread and whole.start <= call.start < whole.end
                 and not any(one.start <= call.start < one.end for one in within)}  # fmt: skip
        if len(tried) >= SEARCHED:
            found.append(whole)
    return found


def longest_search(rank: Rank, works: Sequence[Work]) -> tuple[str, int]:
    """The name with the most time of these, and the time."""
    times: Counter[str] = Counter()
    for one in searches(rank, works):
        times[one.name] += one.end - one.start
    return max(times.items(), key=lambda item: item[1], default=("", 0))


def blocking_copies(works: Sequence[Work]) -> list[Event]:
    """Calls of a copy that returned late, and behind the end of what they had asked for."""
    pairs = [pair for work in works for pair in zip(work.events, work.calls, strict=True)]
    copies = [(event, call) for event, call in pairs if call and event.kind == "copy"]
    return [
        call
        for event, call in copies
        if call.end - call.start >= BLOCKING_NS and call.end >= event.end
    ]


def device_parts(
    rank: Rank, work: Work, windows: Sequence[Window], first: list[Event], copies: list[Event]
) -> tuple[Axis, dict]:
    """The sets of time of on_device.PARTS on one device, and besides: `dry`, `earlier`, and `idle`
    (outside of loading). first -- what comes once; copies -- `blocking_copies`."""
    start, end = work.events[0].start, max(event.end for event in work.events)
    begin, finish = min(start, *(one[1] for one in windows)), max(end, *(one[2] for one in windows))
    three = idle_in_three(work, begin, finish)
    data = named(rank.ranges, DATA)
    waiting, allocating = named(rank.calls, WAITING), named(rank.calls, ALLOCATING)
    first = [*first, *named(rank.calls, LOADING_CODE)]
    host, talking = (
        [*rank.calls, *rank.operators],
        named([*rank.ranges, *rank.operators], COLLECTIVE),
    )
    times = {time for pairs in three for pair in pairs for time in pair}
    times |= {time for _, *pair in windows for time in pair}
    axis = Axis([*work.events, *host, *data, *talking], times)
    compute = axis.cover(event for event in work.events if event.kind in ("kernel", "fill"))
    collective = axis.cover(event for event in work.events if event.kind == "collective") & ~compute
    copy = (
        axis.cover(event for event in work.events if event.kind == "copy") & ~compute & ~collective
    )
    dry, queued, earlier = (axis.of(pairs) for pairs in three)
    start_up = dry & axis.cover(first)
    in_calls = (dry & ~start_up) & axis.cover(waiting)
    loading = ((dry & ~start_up) | queued) & axis.cover(data) & ~in_calls
    late = dry & ~start_up & ~in_calls & ~loading
    unheard = late if not host else late & ~late
    late = late & ~unheard
    fetching = copy & axis.cover(named(work.events, TO_HOST))
    quiet = _quiet(rank, late, axis)
    silent = quiet & ~axis.cover(talking)
    returning = [*named(waiting, f"(?!({ALLOCATING})$).*"), *copies]
    stalled = (
        late & ~quiet & (_behind(dry, axis, returning) | axis.of(_between_copies(work.events)))
    )
    allocation = in_calls & axis.cover(allocating)
    return axis, {
        "compute": compute,
        "exposed_communication": collective | quiet & ~silent,
        "exposed_copy": copy & ~fetching,
        "fetching": fetching,
        "data_wait": loading,
        "blocked_host": in_calls & ~allocation,
        "allocation": allocation,
        "start_up": start_up,
        "silent": silent,
        "stalled": stalled,
        "launch_bound": late & ~quiet & ~stalled,
        "other": queued & ~loading | unheard,
        "earlier": earlier,
        "dry": dry,
        "idle": (dry | queued) & ~axis.cover(data),
    }


def _quiet(rank: Rank, late: np.ndarray, axis: Axis) -> np.ndarray:
    """Of this idleness what lasts long and holds no call and no operator, or for longer none that
    makes a call.
    """
    calls = _starting(rank.calls)
    unheard = late & ~axis.cover(calls)
    found = axis.long(unheard & ~axis.cover(rank.operators), MS)
    return (
        found | axis.long(unheard & ~axis.cover(calling(rank)), WITHOUT_CALLS_NS)
        if calls
        else found
    )


def _behind(dry: np.ndarray, axis: Axis, calls: list[Event]) -> np.ndarray:
    """From the end of each call that ended while nothing was there to do to the end of that
    stretch.
    """
    idle = axis.runs(dry)
    begins = [begin for begin, _ in idle]
    found = []
    for call in calls:
        place = bisect_left(begins, call.end) - 1
        if place >= 0 and call.end <= idle[place][1]:
            found.append((call.end, idle[place][1]))
    return axis.of(found)


def _between_copies(events: list[Event]) -> list[tuple[int, int]]:
    """The stretches between two copies to the host that nothing begins between."""
    own = {id(one) for one in named(events, TO_HOST)}
    pairs = [(one, then) for one, then in pairwise(events) if {id(one), id(then)} <= own]
    return [(one.end, then.start) for one, then in pairs if one.end < then.start]


def host_parts(rank: Rank, windows: Sequence[Window]) -> tuple[Axis, dict]:
    """The sets of time of on_host.PARTS, of a run without a GPU."""
    operators, ranges = rank.operators, rank.ranges
    compiling = named([*operators, *ranges], COMPILING)
    handing = named(operators, f"{HANDING_OVER}|{COLLECTIVE}")
    ids = {id(one) for one in handing}
    talking = [*handing, *named(ranges, COLLECTIVE)]
    data = _loading(ranges)
    axis = Axis([*operators, *compiling, *talking], {time for pair in data for time in pair}
                | {time for _, *pair in windows for time in pair})  # fmt: skip
    whole = axis.of(pair for _, *pair in windows)
    loading = whole & axis.of(data)
    compiled = whole & axis.cover(compiling) & ~loading
    computing = (
        whole & axis.cover(one for one in operators if id(one) not in ids) & ~loading & ~compiled
    )
    speaking = whole & axis.cover(talking) & ~computing & ~loading & ~compiled
    rest = whole & ~loading & ~compiled & ~computing & ~speaking
    silent = axis.long(rest, MS)
    return axis, {
        "compute": computing,
        "exposed_communication": speaking,
        "data_wait": loading,
        "compiling": compiled,
        "between": rest & ~silent,
        "silent": silent,
    }


def _loading(ranges: list[Event]) -> list[tuple[int, int]]:
    """The ranges of the loader and of the phase `data`; of a range around a loader's from there
    on.
    """
    data = named(ranges, DATA)
    axis = Axis(data)
    begins = sorted(one.start for one in named(ranges, LOADER))
    found = []
    for begin, end in axis.runs(axis.cover(data)):
        inside = [time for time in begins if begin <= time < end]
        found.append((inside[0] if inside else begin, end))
    return found
