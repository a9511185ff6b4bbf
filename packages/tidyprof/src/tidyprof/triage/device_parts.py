"""Divide the steps of a run with a GPU into parts, based on launches, calls and ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import (
    GRAPH_LAUNCH,
    LAUNCH,
    capturing,
    category_of_call,
    device_parts,
    idle_around,
    kernel_launches,
    waiting_calls,
)
from tidyprof.analyses.collectives import collective_entries, communication, host_entries
from tidyprof.analyses.common import (
    by_device,
    equal,
    event_arrays,
    has_launches,
    launch_times,
    launches_of,
    names_matching,
    occupied,
    of_each_name,
    of_rank,
    plain_events,
    plain_host_events,
    start_and_end,
)
from tidyprof.analyses.device_time import Idleness, overlap
from tidyprof.analyses.kernels import kernel_totals
from tidyprof.analyses.steps import mark_of_steps, phase_time, plain_steps
from tidyprof.tables.codes import ABSENT, is_like_communication, nullable
from tidyprof.tables.contract import DEVICE_KINDS, Profile, is_one_of, rows, whole_numbers
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents
from tidyprof.triage.cpu_time import CPU_STEAL, without_steal
from tidyprof.triage.facts import Gap, Most, RankFacts, largest_sum, share_of
from tidyprof.triage.host_activity import (
    compiling,
    flag_steady_steps,
    host_values,
    profiler_time,
)
from tidyprof.triage.profiler_overhead import cost_of

SILENT_NS = 1_000_000
"""The minimum time without calls and operators after which the host counts as silent.

A launch takes microseconds, for example 10 µs in a trace of four ranks on MI300X. A profiled
operator takes at most a few hundred microseconds.
"""

ELSEWHERE_NS = 5_000_000
"""The minimum time without calls after which a host that runs operators counts as silent. Even a
hundred operators without a launch take less time.
"""

SLOW_LAUNCH = 100
"""The minimum ratio of a slow first launch to the median launch time. Slow first launches load or
compile code.
"""

SEARCH_NS, SEARCHED_KERNELS = 30_000_000, 5
"""Limits for a library search, which benchmarks the library's kernels (cuDNN's benchmark mode or
MIOpen's find mode).

An ATen operator counts as a search if it reaches both the minimum duration in ns and the minimum
number of different kernels that it launches directly. A search occurs once per input size. On an
H200, searches took 38 to 660 ms for 6 to 17 kernels.
"""

CLOCK_NS = 10_000
"""If GPU work starts earlier than its launch by more than this time, the clocks disagree. In the
course's recordings, clocks differ by at most a few microseconds.
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
    "compiling",
    "silent",
    "stalled",
    "launch_bound",
    "other",
    CPU_STEAL,
)
"""The parts of a step on a device, which add up to the step. The parts come from `step_budget`, but
copies and idle time are divided further.

- fetching: exposed copies to the host.
- exposed_copy: all other exposed copies.
- allocation: idle time in calls that allocate or free memory.
- blocked_host: idle time in other calls that wait.
- start_up: idle time in slow first launches and in library searches.
- compiling: idle time while PyTorch's compiler is running.
- silent: idle time in which the host makes no call for SILENT_NS.
- exposed_communication: communication that no computation hides, including idle time during gloo
  and MPI collectives, which run on the host.
- other: idle time although work is queued. If the file contains no host calls and no operators, the
  part `other` contains all idle time except data loading.
- stalled: idle time from the end of a waiting call to the next GPU work.
- CPU_STEAL: time lost to other programs; see cpu_time.
"""

DEVICE_BUSY_PARTS = PARTS[:4]

OF_THE_CPU = ("data_wait", "compiling", "silent", "stalled", "launch_bound")
"""Parts that other programs can lengthen. The time in waiting calls isn't among these parts,
because a waiting call doesn't need a CPU core.
"""

LOADING_CODE = r"(hip|cuda|cu)(Module|Library)Load\w*"
QUERY_CALLS = r"(hip|cuda|cu)(Event|Stream)Query\w*"
"""Calls that query whether work has finished. A thread that monitors collectives makes such calls
constantly.
"""

COPY_TO_DEVICE = r".*(HtoD|HOST_TO_DEVICE|HostToDevice).*"
COPY_TO_HOST = r".*(DtoH|DEVICE_TO_HOST|DeviceToHost).*"


def device_facts(profile: Profile, stacks: PlainEvents, mark: str | None) -> RankFacts:
    """Return the facts about a rank with a GPU. Raises ValueError as `steps` does.

    - stacks: the rank's Python functions.
    """
    slow, (search, tried) = slow_launches(profile), library_search(profile)
    devices = list(_devices(profile, slow | search, profiler_time(stacks), mark))
    sets = [parts for _, parts in devices]
    budget = flag_steady_steps(pd.concat([table for table, _ in devices], ignore_index=True))
    entries = collective_entries(profile)
    judged, totals = _judged(profile, budget, mark), kernel_totals(profile)
    values: dict[str, Any] = {
        "library_search": tried,
        "step_marker": mark_of_steps(profile, mark),
        "waiting_call": _longest_wait(profile, _together(sets, "dry")),
        "unknown_collective_share": _like_communication(profile),
        "graph_share": _graph_share(profile),
        "captured_share": _captured(profile),
        **_replays(profile),
        **_link_values(profile),
        **_counts(profile, judged, int(budget["steady"].sum()), mark),
        **host_values(profile, stacks, _together(sets, "silent"), _together(sets, "data_wait")),
    }
    return RankFacts(
        budget=budget,
        parts=PARTS,
        values=values,
        overlaps=overlap(profile),
        entries=entries if len(entries) else host_entries(profile, mark),
        kernels=totals,
        gap=_longest_gap(sets, profile),
        cost=cost_of(profile, stacks, judged, max(budget["step"][budget["steady"]].nunique(), 1)),
    )


def _devices(
    profile: Profile, slow: Intervals, traced: Intervals, mark: str | None
) -> Iterator[tuple[pd.DataFrame, dict[str, Intervals]]]:
    """For each device, yield its rows of RankFacts.budget and the time intervals of each part."""
    host, calls = plain_steps(profile, mark=mark), waiting_calls(profile)
    linked = has_launches(plain_events(profile, DEVICE_KINDS))
    # Device steps follow the launches. Without launch records, use the host's steps.
    marked = plain_steps(profile, "device", mark) if len(host) and linked else host
    for place, events in by_device(profile):
        rank = place["rank"]
        steps = of_rank(marked, rank)
        if place["device"] is not None:
            # The host's steps don't name a device.
            device = steps["device"]
            steps = rows(steps, equal(device, None) | equal(device, place["device"]))
        number, (begin, finish) = steps["step"], start_and_end(steps)
        if not len(steps):
            start, end = start_and_end(events)
            number, begin, finish = (
                np.array([value]) for value in (ABSENT, start.min(), end.max())
            )
        idle = idle_around(events, begin, finish)
        sets = _sets(profile, rank, events, idle, of_rank(calls, rank), slow, traced)
        within = without_steal(profile, rank, begin, finish, sets, OF_THE_CPU)
        unlinked = occupied(events, launch_times(events) == ABSENT).covered_within(begin, finish)
        columns = {
            "step": nullable(number.copy(), "Int64").to_numpy(),
            "start_ns": begin,
            "length_ns": finish - begin,
            "duration_ns": finish - begin - within["earlier_ns"],
            "unlinked_ns": unlinked,
        }
        yield pd.DataFrame(columns | within | place), sets


def _sets(
    profile: Profile,
    rank: int | None,
    events: PlainEvents,
    idle: Idleness,
    calls: PlainEvents,
    slow: Intervals,
    traced: Intervals,
) -> dict[str, Intervals]:
    """Return the time intervals of all parts for one device. The result also contains the intervals
    `earlier`, `dry`, and `idle`, which excludes data loading.

    - traced: the intervals in which the host recorded the trace, which don't count as silent time.
    """
    # Code is loaded once, at its first use, and not in each step. It doesn't matter which call
    # loads the code.
    first = idle.dry & slow
    rest = Idleness(idle.dry - first, idle.queued, idle.earlier)
    data = phase_time(profile, rank, "data")
    parts = device_parts(events, rest, occupied(calls), data)
    is_allocation = of_each_name(calls, category_of_call, object) == "allocation"
    allocation = parts["blocked_host"] & occupied(calls, is_allocation)
    late = parts["launch_bound"]
    unheard = Intervals.empty() if _is_heard(profile, rank) else late
    late = late - unheard
    compiled = late & compiling(profile)
    late = late - compiled
    to_host = names_matching(events, COPY_TO_HOST)
    fetching = parts["exposed_copy"] & occupied(events, to_host)
    silent = _silence(profile, rank, late - traced)
    talking = occupied(communication(profile, rank))
    talking_late, talking_queued = silent & talking, parts["other"] & talking
    waited = np.append(
        start_and_end(calls)[1][~is_allocation],
        start_and_end(of_rank(blocking_copies(profile), rank))[1],
    )
    stalled = (late - silent) & _after_waits(idle.dry, waited)
    return parts | {
        "exposed_communication": parts["exposed_communication"] | talking_late | talking_queued,
        "exposed_copy": parts["exposed_copy"] - fetching,
        "fetching": fetching,
        "allocation": allocation,
        "blocked_host": parts["blocked_host"] - allocation,
        "start_up": first,
        "compiling": compiled,
        "silent": silent - talking_late,
        "stalled": stalled,
        "launch_bound": late - silent - stalled,
        "other": (parts["other"] - idle.earlier - talking_queued) | unheard,
        "earlier": idle.earlier,
        "idle": (idle.dry | idle.queued) - data,
        "dry": idle.dry,
    }


def _is_heard(profile: Profile, rank: int | None) -> bool:
    """Return True if the file contains any host calls or operators. Without such events, the reason
    for idle time is unknown.
    """
    return any(
        len(of_rank(plain_host_events(profile, kind), rank)) for kind in ("runtime", "operator")
    )


def _silence(profile: Profile, rank: int | None, late: Intervals) -> Intervals:
    """Return the idle time in which the host launched no work.

    During this time, the host either ran no operators or ran operators that make no calls.
    """
    operators, runtime = (
        of_rank(plain_host_events(profile, kind), rank) for kind in ("operator", "runtime")
    )
    calls = runtime[~names_matching(runtime, QUERY_CALLS)]
    uncalled = late - occupied(calls)
    elsewhere = long_ones(uncalled, ELSEWHERE_NS) if len(calls) else Intervals.empty()
    return long_ones(uncalled - occupied(operators), SILENT_NS) | elsewhere


def _after_waits(dry: Intervals, ends: np.ndarray) -> Intervals:
    """Return the time from the end of each wait to the next work, if no work is queued at that
    time.
    """
    # Check the last nanosecond of each wait to find out whether the device was idle when the wait
    # ended.
    ends = ends[dry.contains(ends - 1)]
    return Intervals.union(ends, dry.ends[np.searchsorted(dry.starts, ends - 1, side="right") - 1])


def blocking_copies(profile: Profile) -> PlainEvents:
    """Return the asynchronous copy calls that made the host wait until the copy had ended. Copies
    of pageable memory do so.
    """
    work, calls = _launches(profile)
    chosen = (start_and_end(calls)[1] >= start_and_end(work)[1]) & is_one_of(work["kind"], ["copy"])
    chosen &= of_each_name(calls, lambda name: category_of_call(name) is None, bool)
    return calls[chosen]


def long_ones(times: Intervals, least_ns: int) -> Intervals:
    """Return the intervals with at least this length in ns."""
    long = times.ends - times.starts >= least_ns
    return Intervals(times.starts[long], times.ends[long])


def _together(sets: Iterable[dict[str, Intervals]], name: str) -> Intervals:
    union = Intervals.empty()
    for of_device in sets:
        union = union | of_device[name]
    return union


def _launches(profile: Profile) -> tuple[PlainEvents, PlainEvents]:
    """Return the device events and, in the same order, the calls that launched them."""
    work, calls = (PlainEvents(event_arrays(profile), places) for places in launches_of(profile))
    return work, calls


def slow_launches(profile: Profile) -> Intervals:
    """Return the intervals in which the host loaded code or waited for a kernel's slow first
    launch.

    A launch is slow if it takes at least SILENT_NS and at least SLOW_LAUNCH times the median launch
    time. The median covers all launches that started a single event.
    """
    work, calls = _launches(profile)
    # A graph launch starts many events, so its duration can't be compared with a single launch.
    single = (np.bincount(calls.rows)[calls.rows] == 1) & names_matching(calls, LAUNCH)
    work, calls = work[single], calls[single]
    length = calls["duration_ns"]
    usual = float(np.median(length)) if len(length) else 0.0
    is_first = ~pd.Series(work["name"].codes).duplicated().to_numpy()
    slow = (length >= max(SLOW_LAUNCH * usual, SILENT_NS)) & is_first
    runtime = plain_host_events(profile, "runtime")
    return occupied(calls, slow) | occupied(runtime, names_matching(runtime, LOADING_CODE))


def library_search(profile: Profile) -> tuple[Intervals, Most]:
    """Return the intervals of library searches (see SEARCH_NS), the name of the operator that
    searched longest, and its time in ns.
    """
    operators = plain_host_events(profile, "operator")
    (begin, end), threads = start_and_end(operators), operators["thread"]
    long = np.flatnonzero((end - begin >= SEARCH_NS) & names_matching(operators, "aten::.*"))
    if not len(long):
        return Intervals.empty(), Most()
    work, calls = _launches(profile)
    is_search = []
    for row in long:
        children = (threads == threads[row]) & (begin >= begin[row]) & (end <= end[row])
        children[row] = False
        # Count only kernels that the operator launches directly, because any large operator
        # launches many kernels indirectly.
        own = (calls["thread"] == threads[row]) & (calls["start_ns"] >= begin[row])
        own &= (calls["start_ns"] < end[row]) & is_one_of(work["kind"], ["kernel"])
        own &= ~Intervals.union(begin[children], end[children]).contains(calls["start_ns"])
        is_search.append(len(np.unique(work["name"].codes[own])) >= SEARCHED_KERNELS)
    tried = operators[long[np.array(is_search, bool)]]
    return occupied(tried), largest_sum(tried["name"], tried["duration_ns"])


def _judged(profile: Profile, budget: pd.DataFrame, mark: str | None) -> Intervals:
    """Return the intervals of the judged steps. If steps are marked on the host, use the host's
    intervals.
    """
    steady, host = budget["steady"].to_numpy(bool), plain_steps(profile, mark=mark)
    if len(host):
        return occupied(host, np.isin(host["step"], whole_numbers(budget["step"])[steady]))
    begin, length = (
        budget[column].to_numpy(np.int64)[steady] for column in ("start_ns", "length_ns")
    )
    return Intervals.union(begin, begin + length)


def _counts(profile: Profile, judged: Intervals, count: int, mark: str | None) -> dict[str, float]:
    """Return the counts of kernels, copies, batches and calls per judged step.

    - count: the total number of steps on all devices.
    """
    work = plain_events(profile, DEVICE_KINDS)
    # Marked steps are judged on the host, so GPU work belongs to the step that launched it.
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
        "waiting_calls": ((kinds == "synchronization") | (kinds == "copy")).sum() + blocking.sum(),
        "allocations": (kinds == "allocation").sum(),
    }
    return {name: float(number) / count for name, number in numbers.items()}


def _link_values(profile: Profile) -> dict[str, float]:
    """Return the number of launches without GPU work in the file, and the share of GPU work with
    times that contradict the launch times. Return an empty dictionary if no launch is linked to
    work.
    """
    work, calls = _launches(profile)
    if not len(work):
        return {}
    launching, is_lost = kernel_launches(profile)
    delay = work["start_ns"] - calls["start_ns"]
    early = delay < -CLOCK_NS
    share, offset = float(early.mean()), float(max(-delay.min(), 0))
    return {
        "launches": len(launching),
        "launches_without_work": int(is_lost.sum()),
        "lost_launches_share": share_of(is_lost.sum(), len(launching)),
        "clock_conflict_share": share,
        "clock_offset_ns": offset,
    }


def _longest_gap(sets: list[dict[str, Intervals]], profile: Profile) -> Gap | None:
    """Return the longest idle interval between the first and the last device event, excluding data
    loading.
    """
    work = plain_events(profile, DEVICE_KINDS)
    start, end = start_and_end(work)
    idle = _together(sets, "idle") - _together(sets, "earlier")
    idle = idle.clip(int(start.min()), int(end.max()))
    if not len(idle):
        return None
    length = idle.ends - idle.starts
    order = np.argsort(-length, kind="stable")
    longest, second = length[order[0]], length[order[1]] if len(order) > 1 else 1
    only = Intervals(idle.starts[order[:1]], idle.ends[order[:1]])
    inside = {
        part: float(np.mean([(of_device[part] & only).length for of_device in sets]))
        for part in PARTS
        if part in sets[0]
    }
    return Gap(
        ns=float(longest),
        share=float(longest / length.sum()),
        over_second=float(longest / max(second, 1)),
        parts=inside,
    )


def _longest_wait(profile: Profile, dry: Intervals) -> Most:
    """Return the call in which the host waited longest while the devices had no work, and the
    waiting time in ns. Allocation calls don't count, because they belong to a separate part.
    """
    calls = waiting_calls(profile)
    calls = calls[of_each_name(calls, category_of_call, object) != "allocation"]
    name, waited = largest_sum(calls["name"], dry.covered_within(*start_and_end(calls)))
    return Most(name, waited) if waited else Most()


def _like_communication(profile: Profile) -> float:
    """Return the share of kernel time in kernels that may be communication, by their names."""
    kernels = plain_events(profile, ("kernel",))
    total = plain_events(profile, ("kernel", "collective"))["duration_ns"].sum()
    alike = kernels[of_each_name(kernels, is_like_communication, bool)]
    return float(alike["duration_ns"].sum() / max(total, 1))


def _graph_share(profile: Profile) -> float:
    """Return the share of device events that graphs launched."""
    _, calls = _launches(profile)
    return float(
        names_matching(calls, GRAPH_LAUNCH).sum() / len(plain_events(profile, DEVICE_KINDS))
    )


def _replays(profile: Profile) -> dict[str, int]:
    """Return the number of graph launches, and the number of poor ones, which started no work or
    less than half of the largest number of device events.
    """
    runtime = plain_host_events(profile, "runtime")
    graphs = runtime[names_matching(runtime, GRAPH_LAUNCH)]
    # Count the device events that each graph launch started. Rows refer to the profile's events.
    _, calls = _launches(profile)
    started = np.bincount(calls.rows, minlength=len(profile.events))[graphs.rows]
    poor = (started == 0) | (2 * started < started.max(initial=0))
    return {"graph_replays": len(graphs), "poor_replays": int(poor.sum())}


def _captured(profile: Profile) -> float:
    """Return the share of launches that a graph captured without running them."""
    calls = plain_host_events(profile, "runtime")
    launching = names_matching(calls, LAUNCH) & ~names_matching(calls, GRAPH_LAUNCH)
    inside = capturing(profile).contains(calls["start_ns"][launching])
    return float(inside.sum() / max(len(inside), 1))
