"""A run with a GPU: what the time of its devices goes to, as far as launches, calls and ranges
tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import category_of_call, device_parts, idle_around, waiting_calls
from tidyprof.analyses.collectives import collective_entries
from tidyprof.analyses.common import (
    by_device,
    equal,
    event_arrays,
    events_of_process,
    has_launches,
    launch_times,
    launches_of,
    names_matching,
    occupied,
    of_each_name,
    owner_of,
    plain_events,
    plain_host_events,
    start_and_end,
)
from tidyprof.analyses.device_time import Idleness, overlap
from tidyprof.analyses.gaps import longest_overlap
from tidyprof.analyses.kernels import kernel_totals
from tidyprof.analyses.roofline import (
    l1_shares_by_access_bytes,
    roof_shares,
    roofline_ceilings,
    roofline_points,
)
from tidyprof.analyses.steps import mark_of_steps, phase_time, plain_steps
from tidyprof.diagnosis.host_collectives import communication, host_entries
from tidyprof.diagnosis.host_facts import (
    HostFacts,
    Most,
    calls_within,
    flag_steady_steps,
    host_facts,
    innermost,
    largest_host_range,
    largest_sum,
    profiler_time,
)
from tidyprof.diagnosis.processor import CPU_STEAL, processor_time, without_taken
from tidyprof.diagnosis.profiler_overhead import Cost, cost_of
from tidyprof.diagnosis.recomputation import recomputed
from tidyprof.tables.codes import ABSENT, is_like_communication, nullable
from tidyprof.tables.contract import DEVICE_KINDS, Profile, is_one_of, rows, whole_numbers
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

SILENT_NS = 1_000_000
"""A host that makes no call and runs no operator for so long does something else than launching: a
launch costs it microseconds (10 in the 4-rank trace that gpumodel's host was measured on), an
operator under a profiler up to some hundred.
"""

ELSEWHERE_NS = 5_000_000
"""So does a host that makes no call for so long though it runs operators: a hundred operators that
launch nothing take less.
"""

SLOW_LAUNCH = 100
"""The first launch of a kernel is a first use, in which code is loaded or compiled, if it takes so
many times the median launch.
"""

SEARCH_NS, SEARCHED = 30_000_000, 5
"""An operator of ATen that takes so long, and itself launches so many different kernels, tries out
a library's kernels (cuDNN's benchmark, MIOpen's find): for one size of data it does so once. On an
H200 that took 38 to 660 ms, for 6 to 17 kernels.
"""

BLOCKING_NS = 100_000
"""A copy that was asked for as asynchronous, but takes its caller so long and returns only after
the copy's end, was not: the memory was pageable.
"""

PARTS = (
    "compute",
    "exposed_communication",
    "exposed_copy",
    "fetching",
    "data_wait",
    "blocked_host",
    "allocation",
    "start_up",
    "silent",
    "stalled",
    "launch_bound",
    "other",
    CPU_STEAL,
)
"""Parts of a step on a device, which add up to it: those of `step_budget`, with its copies and its
idleness taken apart.

fetching   -- exposed copies to the host; exposed_copy -- all others.
allocation -- idle in calls that allocate or free; blocked_host -- in others that wait.
start_up   -- idle in slow first launches, and while a library tries out kernels.
silent     -- idle while the host made no call for SILENT_NS; within a collective of gloo or MPI
              that is communication.
other      -- idle although work was queued; where no call and no operator of the host is recorded,
              all idleness but for loading.
stalled    -- idle between the end of a waiting call and the next work, and between copies to the
              host.
taken      -- see `processor.CPU_STEAL`.
"""

DEVICE_BUSY_PARTS = PARTS[:4]
"""Parts in which the device does something."""

GRAPH_LAUNCH = r"(hip|cuda)GraphLaunch\w*"
MODULE, MODULE_NUMBER = r"nn\.Module: .*", r"^nn\.Module: |_\d+$"
"""Python functions that stand for a module, and what in their names is not its class."""

CAPTURE = (r"(hip|cuda)StreamBeginCapture\w*", r"(hip|cuda)StreamEndCapture\w*")
LAUNCH = r"(hip|cuda|cu)\w*Launch\w*"
LOADING_CODE = r"(hip|cuda|cu)(Module|Library)Load\w*"
QUERY_CALLS = r"(hip|cuda|cu)(Event|Stream)Query\w*"
"""Calls that ask whether something has finished; a thread that watches collectives makes them all
the time.
"""

COPY_TO_DEVICE = r".*(HtoD|HOST_TO_DEVICE|HostToDevice).*"
COPY_TO_HOST = r".*(DtoH|DEVICE_TO_HOST|DeviceToHost).*"


class Replays(NamedTuple):
    """Launches of graphs, how many of them started nothing that is in the file, and the number of
    kernels and copies of the median launch and of the largest one. Where only the last launch
    started nothing it is left out: the recording ended.
    """

    launches: int = 0
    empty: int = 0
    usual: int = 0
    most: int = 0


class SlowLaunches(NamedTuple):
    """How many first launches are slow and their time in ns; beside them the number of all launches
    in the file, and the ns of the median launch.
    """

    count: int = 0
    ns: float = 0.0
    launches: int = 0
    usual_ns: float = 0.0


class Gap(NamedTuple):
    """An idle interval: its length in ns, its share of all idleness (0 to 1), its ratio to the
    second longest, and the call that fills it ("" if none).

    is_first -- whether the event that ends it is the first of its name.
    """

    ns: float
    share: float
    over_second: float
    call: str
    is_first: bool = True


@dataclass(frozen=True)
class Timeline:
    """What the events of one rank add to the signs of its run; small, however long the recording.

    budget -- one row per device and step: rank, process, device, step, start_ns, duration_ns, PARTS
              with `_ns`, `steady`, `apart` (see flag_steady_steps), `unlinked_ns` (busy without a
              launch record), `by_launch` (whether the step is the device's own), `waited_ns` (see
              processor_time). Time in which the device did what the file lacks, earlier_ns, is
              no part of duration_ns.
    mark     -- with what steps begin, see `steps`; "" where nothing marks them.
    overlaps, entries, kernels -- the tables of `overlap`, `collective_entries` and `kernel_totals`.
    host   -- see HostFacts.
    counts -- of one judged step: kernels, copies_to_device, batches, waiting_calls, allocations.
    gap    -- the longest idle interval outside of data, None without any.
    slow   -- see SlowLaunches.
    search -- the operator that tried out a library's kernels for the longest time in ns, see
              SEARCH_NS; Most() if none.
    under, module -- the operator, and the class of modules in a trace with stacks, under which most
                launch-bound time lies, and their shares of it; "" where none does.
    alike -- the largest of the kernels whose names look like communication that tidyprof does not
                know, and the share of all kernel time (0 to 1) that they take together; Most() if
                none.
    replays -- see Replays. captured -- share of launches that were recorded into a graph and not
               run.
    again -- see `recomputed`. cost -- what recording it cost.
    """

    budget: pd.DataFrame
    mark: str
    overlaps: pd.DataFrame
    entries: pd.DataFrame
    kernels: pd.DataFrame
    host: HostFacts
    counts: dict[str, float]
    gap: Gap | None
    slow: SlowLaunches
    search: Most
    waiting_call: Most
    under: Most
    module: Most
    alike: Most
    graph_share: float
    replays: Replays
    captured: float
    again: float
    cost: Cost


def timeline(profile: Profile, stacks: PlainEvents, mark: str | None) -> Timeline:
    """What a rank's profile adds. Raises ValueError as `steps` does. stacks -- Python functions,
    see host_facts.
    """
    slow, numbers = slow_launches(profile)
    search, searched = searching(profile)
    devices = list(_devices(profile, slow | search, profiler_time(stacks), mark))
    rows_of_devices, sets = [table for table, _ in devices], [parts for _, parts in devices]
    budget = flag_steady_steps(pd.concat(rows_of_devices, ignore_index=True), profile, mark)
    entries = collective_entries(profile)
    late = _together(sets, "launch_bound")
    judged, totals = _judged(profile, budget, mark), kernel_totals(profile)
    steps_judged = max(budget["step"][budget["steady"]].nunique(), 1)
    return Timeline(
        budget=budget,
        mark=mark_of_steps(profile, mark),
        overlaps=overlap(profile),
        entries=entries if len(entries) else host_entries(profile, mark),
        kernels=totals,
        host=host_facts(
            profile, stacks, *(_together(sets, name) for name in ("silent", "data_wait"))
        ),
        counts=_counts(profile, judged, int(budget["steady"].sum()), mark),
        gap=_longest(_together(sets, "idle"), _together(sets, "earlier"), profile),
        slow=numbers,
        search=searched,
        waiting_call=_most_waiting(profile, _together(sets, "dry")),
        under=largest_host_range(late, plain_host_events(profile, "operator")),
        module=largest_host_range(late, stacks[names_matching(stacks, MODULE)], MODULE_NUMBER),
        alike=_like_communication(profile, totals),
        graph_share=_graph_share(profile),
        replays=_replays(profile),
        captured=_captured(profile),
        again=recomputed(profile, stacks, judged),
        cost=cost_of(profile, stacks, judged, steps_judged),
    )


def _devices(
    profile: Profile, slow: Intervals, watched: Intervals, mark: str | None
) -> Iterator[tuple[pd.DataFrame, dict[str, Intervals]]]:
    """For each device the rows of Timeline.budget, and its parts as sets of time."""
    host, calls = plain_steps(profile, mark=mark), waiting_calls(profile)
    linked = has_launches(plain_events(profile, DEVICE_KINDS))
    # The device's steps follow the launches; without launch records the host's have to do.
    marked = plain_steps(profile, "device", mark) if len(host) and linked else host
    for place, events in by_device(profile):
        owner = owner_of(place, events, host)
        steps = events_of_process(marked, owner)
        if place["device"] is not None:
            # Steps of the host have no device.
            device = steps["device"]
            steps = rows(steps, equal(device, None) | equal(device, place["device"]))
        number, (begin, finish) = steps["step"], start_and_end(steps)
        if not len(steps):
            start, end = start_and_end(events)
            number, begin, finish = (
                np.array([value]) for value in (ABSENT, start.min(), end.max())
            )
        sets = _sets(
            profile,
            owner,
            events,
            idle_around(events, begin, finish),
            events_of_process(calls, owner),
            slow,
            watched,
        )
        within = {f"{name}_ns": time.covered_within(begin, finish) for name, time in sets.items()}
        within = without_taken(within, processor_time(profile, owner, begin, finish, sets))
        unlinked = occupied(events, launch_times(events) == ABSENT).covered_within(begin, finish)
        columns = {
            "step": nullable(number.copy(), "Int64").to_numpy(),
            "start_ns": begin,
            "length_ns": finish - begin,
        }
        columns |= {"duration_ns": finish - begin - within["earlier_ns"], "unlinked_ns": unlinked}
        columns |= {"by_launch": linked}
        yield pd.DataFrame(columns | within | place | {"process": owner["process"]}), sets


def _sets(
    profile: Profile,
    owner: dict[str, Any],
    events: PlainEvents,
    idle: Idleness,
    calls: PlainEvents,
    slow: Intervals,
    watched: Intervals,
) -> dict[str, Intervals]:
    """PARTS of one device as sets of time, and also `earlier`, `idle` (outside of data), `dry`.

    watched -- see `watching`: in that time the program is not silent.
    """
    # Code that is loaded at its first use comes once and not in each step, whatever call loads it.
    first = idle.dry & slow
    rest = Idleness(idle.dry - first, idle.queued, idle.earlier)
    data = phase_time(profile, owner, "data")
    parts = device_parts(events, rest, occupied(calls), data)
    is_allocation = of_each_name(calls, category_of_call, object) == "allocation"
    allocation = parts["blocked_host"] & occupied(calls, is_allocation)
    late = parts["launch_bound"]
    unheard = Intervals.empty() if _is_heard(profile, owner) else late
    late = late - unheard
    to_host = names_matching(events, COPY_TO_HOST)
    fetching = parts["exposed_copy"] & occupied(events, to_host)
    silent = _silence(profile, owner, late - watched)
    talking = silent & occupied(communication(profile, owner))
    waited = np.append(
        start_and_end(calls)[1][~is_allocation],
        start_and_end(events_of_process(blocking_copies(profile), owner))[1],
    )
    stalled = (late - silent) & (
        _behind(idle.dry, waited) | _between_copies(idle.dry, events, to_host)
    )
    return parts | {
        "exposed_communication": parts["exposed_communication"] | talking,
        "exposed_copy": parts["exposed_copy"] - fetching,
        "fetching": fetching,
        "allocation": allocation,
        "blocked_host": parts["blocked_host"] - allocation,
        "start_up": first,
        "silent": silent - talking,
        "stalled": stalled,
        "launch_bound": late - silent - stalled,
        "other": (parts["other"] - idle.earlier) | unheard,
        "earlier": idle.earlier,
        "idle": (idle.dry | idle.queued) - data,
        "dry": idle.dry,
    }


def _is_heard(profile: Profile, owner: dict[str, Any]) -> bool:
    """Whether anything that the host did is recorded: without it nobody knows why a device was
    idle.
    """
    return any(
        len(events_of_process(plain_host_events(profile, kind), owner))
        for kind in ("runtime", "operator")
    )


def _silence(profile: Profile, owner: dict[str, Any], late: Intervals) -> Intervals:
    """The part of this idleness in which the host started nothing: it made no call and ran no
    operator, or ran operators that make no call.
    """
    operators, runtime = (
        events_of_process(plain_host_events(profile, kind), owner)
        for kind in ("operator", "runtime")
    )
    calls = runtime[~names_matching(runtime, QUERY_CALLS)]
    calling = occupied(calls)
    silent = long_ones(late - calling - occupied(operators), SILENT_NS)
    if not len(calls):
        return silent
    # An outer operator contains the calls of all within it, and so would hide their silence.
    inner = innermost(operators)
    return silent | long_ones(
        late - calling - occupied(inner, calls_within(inner, calls) > 0), ELSEWHERE_NS
    )


def _behind(dry: Intervals, ends: np.ndarray) -> Intervals:
    """The time from each of these ends of a wait of the host to the next work, where nothing is
    queued.
    """
    # The device was idle at the end of a wait if it was so in the last nanosecond of that.
    ends = ends[dry.contains(ends - 1)]
    return Intervals.union(ends, dry.ends[np.searchsorted(dry.starts, ends - 1, side="right") - 1])


def blocking_copies(profile: Profile) -> PlainEvents:
    """Calls of asynchronous copies that the host had to wait for, see BLOCKING_NS."""
    work, calls = _launches(profile)
    start, end = start_and_end(calls)
    chosen = (end - start >= BLOCKING_NS) & (end >= start_and_end(work)[1])
    chosen &= is_one_of(work["kind"], ["copy"])
    chosen &= of_each_name(calls, lambda name: category_of_call(name) is None, bool)
    return calls[chosen]


def _between_copies(dry: Intervals, events: PlainEvents, to_host: np.ndarray) -> Intervals:
    """The idleness between two consecutive copies to the host, such as those of a checkpoint."""
    start, end = start_and_end(events)
    order = np.argsort(start, kind="stable")
    first, then = order[:-1], order[1:]
    pairs = to_host[first] & to_host[then] & (start[then] > end[first])
    return dry & Intervals.union(end[first][pairs], start[then][pairs])


def long_ones(times: Intervals, least_ns: int) -> Intervals:
    """The intervals of a set that last so long."""
    long = times.ends - times.starts >= least_ns
    return Intervals(times.starts[long], times.ends[long])


def _together(sets: Iterable[dict[str, Intervals]], name: str) -> Intervals:
    union = Intervals.empty()
    for of_device in sets:
        union = union | of_device[name]
    return union


def _launches(profile: Profile) -> tuple[PlainEvents, PlainEvents]:
    """Events on devices and, beside them, the calls that launched them."""
    work, calls = (PlainEvents(event_arrays(profile), places) for places in launches_of(profile))
    return work, calls


def slow_launches(profile: Profile) -> tuple[Intervals, SlowLaunches]:
    """When the host was in the slow first launch of a kernel or loaded code, and Timeline.slow.

    Slow is SLOW_LAUNCH times the median of all launches that started one event; SILENT_NS at least.
    """
    work, calls = _launches(profile)
    # The launch of a graph starts many events, so its length says nothing about a single launch.
    single = (np.bincount(calls.rows)[calls.rows] == 1) & names_matching(calls, LAUNCH)
    work, calls = work[single], calls[single]
    length = calls["duration_ns"]
    usual = float(np.median(length)) if len(length) else 0.0
    is_first = ~pd.Series(work["name"].codes).duplicated().to_numpy()
    slow = (length >= max(SLOW_LAUNCH * usual, SILENT_NS)) & is_first
    runtime = plain_host_events(profile, "runtime")
    times = occupied(calls, slow) | occupied(runtime, names_matching(runtime, LOADING_CODE))
    return times, SlowLaunches(int(slow.sum()), float(length[slow].sum()), len(length), usual)


def searching(profile: Profile) -> tuple[Intervals, Most]:
    """When an operator tried out the kernels of a library, see SEARCH_NS, and Timeline.search."""
    operators = plain_host_events(profile, "operator")
    (begin, end), threads = start_and_end(operators), operators["thread"]
    long = np.flatnonzero((end - begin >= SEARCH_NS) & names_matching(operators, "aten::.*"))
    work, calls = _launches(profile) if len(long) else (None, None)
    is_search = []
    for row in long:
        children = (threads == threads[row]) & (begin >= begin[row]) & (end <= end[row])
        children[row] = False
        # Only what the operator itself launches: around a whole model there are many kernels.
        own = (calls["thread"] == threads[row]) & (calls["start_ns"] >= begin[row])
        own &= (calls["start_ns"] < end[row]) & is_one_of(work["kind"], ["kernel"])
        own &= ~Intervals.union(begin[children], end[children]).contains(calls["start_ns"])
        is_search.append(len(np.unique(work["name"].codes[own])) >= SEARCHED)
    tried = operators[long[np.array(is_search, bool)]]
    return occupied(tried), largest_sum(tried["name"], tried["duration_ns"])


def _judged(profile: Profile, budget: pd.DataFrame, mark: str | None) -> Intervals:
    """The time of the judged steps: on the host where they are marked there."""
    steady, host = budget["steady"].to_numpy(bool), plain_steps(profile, mark=mark)
    if len(host):
        return occupied(host, np.isin(host["step"], whole_numbers(budget["step"])[steady]))
    begin, length = (
        budget[column].to_numpy(np.int64)[steady] for column in ("start_ns", "length_ns")
    )
    return Intervals.union(begin, begin + length)


def _counts(profile: Profile, judged: Intervals, count: int, mark: str | None) -> dict[str, float]:
    """Timeline.counts: what the judged steps asked for. count -- how many steps there are, added up
    over devices.
    """
    work = plain_events(profile, DEVICE_KINDS)
    # Marked steps are judged on the host, and there work belongs to the step that launched it.
    by_launch = len(plain_steps(profile, mark=mark)) and has_launches(work)
    work = work[judged.contains(launch_times(work) if by_launch else work["start_ns"])]
    calls, ranges = (plain_host_events(profile, kind) for kind in ("runtime", "annotation"))
    calls, ranges = (events[judged.contains(events["start_ns"])] for events in (calls, ranges))
    kinds = of_each_name(calls, category_of_call, object)
    blocking = judged.contains(blocking_copies(profile)["start_ns"])
    numbers = {
        "kernels": is_one_of(work["kind"], ["kernel"]).sum(),
        "copies_to_device": names_matching(work, COPY_TO_DEVICE).sum(),
        "batches": names_matching(ranges, r"enumerate\(DataLoader\)#.*__next__").sum(),
        "waiting_calls": ((kinds == "synchronisation") | (kinds == "copy")).sum() + blocking.sum(),
        "allocations": (kinds == "allocation").sum(),
    }
    return {name: float(number) / count for name, number in numbers.items()}


def _longest(idle: Intervals, earlier: Intervals, profile: Profile) -> Gap | None:
    """Timeline.gap, between the first and the last event on any device. idle and earlier are those
    of all devices.
    """
    work = plain_events(profile, DEVICE_KINDS)
    start, end = start_and_end(work)
    idle = (idle - earlier).clip(int(start.min()), int(end.max()))
    if not len(idle):
        return None
    length = idle.ends - idle.starts
    order = np.argsort(-length, kind="stable")
    longest, second = length[order[0]], length[order[1]] if len(order) > 1 else 1
    only = Intervals(idle.starts[order[:1]], idle.ends[order[:1]])
    (call,) = longest_overlap(only, plain_host_events(profile, "runtime"), 0.5)
    # Several events may end it together: one that is the first of its name is enough.
    names = work["name"].codes
    is_first = ~np.isin(names[start == only.ends[0]], names[start < only.ends[0]])
    return Gap(
        ns=float(longest),
        share=float(longest / length.sum()),
        over_second=float(longest / max(second, 1)),
        call=call or "",
        is_first=bool(is_first.any()),
    )


def _most_waiting(profile: Profile, dry: Intervals) -> Most:
    """The call in which the host waited longest while devices had nothing to do, and for how long
    (ns).

    Only calls that synchronise or copy count: calls that allocate are a part of their own.
    """
    calls = waiting_calls(profile)
    calls = calls[of_each_name(calls, category_of_call, object) != "allocation"]
    name, waited = largest_sum(calls["name"], dry.covered_within(*start_and_end(calls)))
    return Most(name, float(waited)) if waited else Most()


def kernel_sums(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Several tables of `kernel_totals` as one: calls and time of each name, the largest first."""
    if len(tables) == 1:
        return tables[0]
    grouped = pd.concat(tables).groupby("name", sort=True)
    table = grouped.agg(
        short_name=("short_name", "first"),
        category=("category", "first"),
        calls=("calls", "sum"),
        total_ns=("total_ns", "sum"),
    )
    return table.reset_index().sort_values(
        "total_ns", ascending=False, kind="stable", ignore_index=True
    )


def _like_communication(profile: Profile, totals: pd.DataFrame) -> Most:
    """Timeline.alike. totals -- the table of `kernel_totals`."""
    kernels = plain_events(profile, ("kernel",))
    total = plain_events(profile, ("kernel", "collective"))["duration_ns"].sum()
    alike = kernels[of_each_name(kernels, is_like_communication, bool)]
    name, spent = largest_sum(alike["name"], alike["duration_ns"])
    short = totals.loc[totals["name"] == name, "short_name"].iloc[0] if spent else ""
    return Most(str(short), float(alike["duration_ns"].sum() / max(total, 1)))


def _graph_share(profile: Profile) -> float:
    """Share of device events that a graph launched."""
    _, calls = _launches(profile)
    return float(
        names_matching(calls, GRAPH_LAUNCH).sum() / len(plain_events(profile, DEVICE_KINDS))
    )


def _replays(profile: Profile) -> Replays:
    """Timeline.replays."""
    runtime = plain_host_events(profile, "runtime")
    graphs = runtime[names_matching(runtime, GRAPH_LAUNCH)]
    if not len(graphs):
        return Replays()
    # How many device events each launch of a graph started, by rows of the profile's events.
    _, calls = _launches(profile)
    started = np.bincount(calls.rows, minlength=graphs.rows.max() + 1)[graphs.rows]
    started = started[np.argsort(graphs["start_ns"], kind="stable")]
    *before, last = (started > 0).tolist()
    if not last and before and all(before):
        started = started[:-1]
    return Replays(
        launches=len(started),
        empty=int((started == 0).sum()),
        usual=int(np.median(started)),
        most=int(started.max()),
    )


def _captured(profile: Profile) -> float:
    """Timeline.captured: launches between the begin of a capture and its end, of all launches."""
    calls = plain_host_events(profile, "runtime")
    begin, finish = (
        np.sort(calls["start_ns"][names_matching(calls, pattern)]) for pattern in CAPTURE
    )
    if not len(begin):
        return 0.0
    launches = calls["start_ns"][
        names_matching(calls, LAUNCH) & ~names_matching(calls, GRAPH_LAUNCH)
    ]
    # A capture lasts until the next end of any, or without one to the end of the recording.
    ends = np.append(finish, np.iinfo(np.int64).max)[np.searchsorted(finish, begin)]
    inside = Intervals.union(begin, ends).contains(launches)
    return float(inside.sum() / max(len(launches), 1))


AT_CAP = 0.97
"""Share of the power cap from which a sample counts as capped: a capped socket hovers just below
its limit.
"""

BUSY_PERCENT = 90.0
"""Samples of a device that is less busy say nothing about what limits it."""


def power_samples(profile: Profile) -> pd.DataFrame:
    """The samples of a profile that `capped_share` looks at."""
    if not len(profile.counters):
        return profile.counters
    chosen = is_one_of(profile.counters["name"], ["power", "power_cap", "gpu_busy"])
    table = {
        column: profile.counters[column].array[chosen]
        for column in ("time_ns", "device", "name", "value")
    }
    return pd.DataFrame(table | {"name": table["name"].astype(str)})


def capped_share(tables: Iterable[pd.DataFrame]) -> float | None:
    """Share of the samples of a busy device in which its power is at the cap, the largest over
    devices; None if unknown.

    Takes tables of `power_samples`. The cap is the device's `power_cap`, whichever table has it.
    """
    filled = [table for table in tables if len(table)]
    if not filled:
        return None
    samples = pd.concat(filled)
    wide = samples.pivot_table(
        index=["device", "time_ns"], columns="name", values="value", aggfunc="last"
    )
    if not {"power", "power_cap"} <= set(wide.columns):
        return None
    cap = wide.groupby("device")["power_cap"].transform("max")
    known = wide["power"].notna() & cap.notna()
    if "gpu_busy" in wide:
        known &= wide["gpu_busy"] >= BUSY_PERCENT
    capped = (wide["power"] >= AT_CAP * cap)[known]
    return float(capped.groupby("device").mean().max()) if len(capped) else None


def roof_share(profile: Profile) -> float | None:
    """What the kernel with the most time reaches of the roof that it is nearest to: that of
    arithmetic, of memory or of a cache. None if unknown.

    Operations, bytes and roofs are those of `roofline_points` and `roofline_ceilings`.
    """
    try:
        points, ceilings = roofline_points(profile), roofline_ceilings(profile)
    except ValueError:
        return None
    top = points.head(1)
    for point in top[top["duration_ns"] > 0].to_dict("records"):
        shares = l1_shares_by_access_bytes(
            profile, roof_shares(point, ceilings.set_index("name")["value"].to_dict())
        )
        return max(shares.values(), default=None)
    return None
