"""The time budget of each step. The parts of a step add up to its duration."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    by_device,
    equal,
    launches_of,
    names_matching,
    occupied,
    of_rank,
    plain_host_events,
    ranks_of,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import DeviceTime, Idleness, idleness
from tidyprof.analyses.steps import (
    PHASE_PATTERNS,
    phase_time,
    require_timeline,
    steps,
    steps_or_all,
    with_mark_of,
)
from tidyprof.tables.contract import ORDER, Profile, whole_numbers
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

WAITING_CALLS = {
    "synchronization": r"(hip|cuda|cu)(Device|Stream|Event|Ctx|Thread)Synchronize\w*",
    "allocation": (
        r"(hipExt|hip|cuda|cu)(Mem)?(Host)?(Malloc|Alloc|Free)(?!\w*Async)\w*"
        r"|(hip|cuda)Host(Unr|R)egister"
    ),
    "copy": r"(hip|cuda|cu)Memcpy(?!\w*Async)\w*",
}
"""HIP and CUDA calls that block the host, grouped by the reason for blocking."""


def waiting_calls(profile: Profile) -> PlainEvents:
    """Return the runtime calls that are listed in `WAITING_CALLS`."""
    calls = plain_host_events(profile, "runtime")
    return profile.once(
        "waiting calls", lambda: calls[names_matching(calls, "|".join(WAITING_CALLS.values()))]
    )


def category_of_call(name: str) -> str | None:
    """Return the reason why a call waits, which is a key of `WAITING_CALLS`. For a call that
    returns immediately, return None.
    """
    return next(
        (category for category, pattern in WAITING_CALLS.items() if re.fullmatch(pattern, name)),
        None,
    )


GRAPH_LAUNCH = r"(hip|cuda)GraphLaunch\w*"
NO_KERNEL_LAUNCH = rf"{GRAPH_LAUNCH}|(hip|cuda|cu)\w*LaunchHostFunc\w*"
CAPTURE = (r"(hip|cuda)StreamBeginCapture\w*", r"(hip|cuda)StreamEndCapture\w*")
LAUNCH = r"(hip|cuda|cu)\w*Launch\w*"

WARN_LOST, LOST = 0.05, 1 / 3
"""Two limits for the share of launches whose work is missing from the file. If the share reaches
the first limit, the profile contains a warning. If it reaches the second limit, the cause of a
step's idle time counts as unknown.
"""


def kernel_launches(profile: Profile) -> tuple[PlainEvents, np.ndarray]:
    """Return the calls that launch kernels, and a mask of the calls whose kernel is missing from
    the file.

    Launch calls during a graph capture are left out. If no launch is linked to work, the mask is
    False for all calls.
    """
    calls = plain_host_events(profile, "runtime")
    launching = names_matching(calls, LAUNCH) & ~names_matching(calls, NO_KERNEL_LAUNCH)
    launching &= ~capturing(profile).contains(calls["start_ns"])
    _, linked = launches_of(profile)
    calls = calls[launching]
    is_lost = ~np.isin(calls.rows, linked)
    return calls, is_lost & bool(len(linked))


def link_warnings(profile: Profile) -> list[str]:
    """Return a warning if work is missing from the file for at least `WARN_LOST` of the
    launches.
    """
    calls, is_lost = kernel_launches(profile)
    if is_lost.sum() < WARN_LOST * max(len(calls), 1):
        return []
    return [f"{is_lost.sum():,} of {len(calls):,} launches have no work in the file."]


def capturing(profile: Profile) -> Intervals:
    """Return the times during which a stream captured launches into a graph without running
    them.
    """
    calls = plain_host_events(profile, "runtime")
    begin, finish = (
        np.sort(calls["start_ns"][names_matching(calls, pattern)]) for pattern in CAPTURE
    )
    # A capture lasts until any capture ends next, or until the end of the trace.
    ends = np.append(finish, np.iinfo(np.int64).max)[np.searchsorted(finish, begin)]
    return Intervals.union(begin, ends)


DEVICE_PARTS = (
    "compute",
    "exposed_communication",
    "exposed_copy",
    "launch_bound",
    "blocked_host",
    "data_wait",
    "other",
)
"""Parts of a step on a device, in display order."""

PART_WORDS = {
    "launch_bound": "launch-bound idle",
    "fetching": "copying to the host",
    "allocation": "in a call that allocates",
    "start_up": "in slow first launches",
    "silent": "host silent",
    "stalled": "behind a waiting call",
    "between": "between operators",
    "taken": "taken by other programs",
}
"""Display names of the parts whose column names aren't plain English, including parts from
triage.
"""


def part_words(part: str) -> str:
    """Return the display name of a part of a step."""
    return PART_WORDS.get(part, part.replace("_", " "))


HOST_PARTS = (*PHASE_PATTERNS, "other")
"""Parts of a step in a profile without device events: the marked phases and the remaining time."""

MEMORY = ("resident_bytes", "gpu_peak_bytes")
"""Keys for byte counts in a line of times_rank*.jsonl."""

NO_PARTS = ("rank", "step", "samples", *MEMORY)
"""Keys in a line of times_rank*.jsonl (docs/gate.md) that don't contain the duration of a part."""

WARM_UP_STEPS = 1
"""Number of steps at the start that are ignored if at least two other steps remain. During these
first steps, libraries are loaded and kernels are compiled.
"""


def step_budget(profile: Profile, timeline: str = "host", mark: str | None = None) -> pd.DataFrame:
    """Return one row per rank, device and step. The parts of the step add up to `duration_ns`
    exactly.

    With device events, the parts describe what the device did during the step. Each moment of idle
    time belongs to the first idle part in this list that applies:

    - `compute_ns`: a kernel or fill ran (for the definitions, see `device_time.DeviceTime`).
    - `exposed_communication_ns`: a collective ran, but no computation ran at the same time.
    - `exposed_copy_ns`: a copy ran, but no computation or communication ran at the same time.
    - `blocked_host_ns`: the device was idle and had no queued work because the host waited in a
      call that allocates, frees, copies or synchronizes
      (see `WAITING_CALLS`).
    - `data_wait_ns`: the device was idle while the host was in the phase `data` (see
      `steps.PHASE_PATTERNS`).
    - `launch_bound_ns`: the device was idle because no work was queued. The host launched the next
      work only after the device had finished its queue. If work is missing from the file for `LOST`
      of the step's launches, this part is 0.
    - `other_ns`: the device was idle for one of three other reasons. The next work was already
      queued, the launch of the next work wasn't recorded, or the device did something that isn't in
      the file (see `device_time.Idleness.earlier`).

    `timeline="host"` uses the host's step ranges and counts what the device did during each range.
    The host may run ahead, so this can be work of earlier steps. `timeline="device"` uses the
    device's steps, which are defined by launch times (see `steps`).

    Without device events, both timelines contain the host's phases: data, forward, loss, backward,
    optimizer and other. If ranges overlap, the overlapping time counts for the later phase in this
    order.

    All times come from the traced steps. If the script timed steps before the trace (see
    readers/torch/meta.py), `attrs["unprofiled_step_ns"]` is the step time without the profiler.
    Otherwise, this entry is None.

    Without step markers, the whole profile counts as one step `<NA>`. `mark` and the
    attrs about the step markers are the same as in `steps`. Raises ValueError under the same
    conditions as `steps`.
    """
    require_timeline(timeline)
    if profile.meta.get("times") == ORDER:
        raise ValueError("the events of this profile have an order but no times")
    host = steps(profile, mark=mark)
    # Without step marks, the device's timeline has no rows, but the host's timeline has one step.
    on_host = timeline == "host" or not len(profile.device_events)
    marked = steps_or_all(profile, mark) if on_host else steps(profile, timeline, mark)
    if not len(profile.device_events):
        return _with_untraced(profile, with_mark_of(host, _host_budget(profile, marked)))
    calls = waiting_calls(profile)
    rows: list[dict[str, Any]] = []
    for place, events in by_device(profile):
        rank = place["rank"]
        of_host, own = (of_rank(table, rank) for table in (host, marked))
        if not on_host:
            own = own[equal(own["device"], place["device"])]
        if len(own):
            blocked, data = (
                occupied(of_rank(calls, rank)),
                phase_time(profile, rank, "data"),
            )
            begin, finish = start_and_end(own)
            parts = device_parts(events, idle_around(events, begin, finish), blocked, data)
            columns = {f"{part}_ns": parts[part].covered_within(begin, finish) for part in parts}
            # If launches are lost, the cause of idle time is unknown.
            unknown = np.where(
                _lost_steps(profile, rank, own, of_host), columns["launch_bound_ns"], 0
            )
            columns["other_ns"] += unknown
            columns["launch_bound_ns"] -= unknown
            rows += own.assign(**place, **columns).to_dict("records")
    return _with_untraced(profile, with_mark_of(host, result(rows, "device_budget", profile)))


def _lost_steps(
    profile: Profile, rank: int | None, own: pd.DataFrame, host: pd.DataFrame
) -> np.ndarray:
    """Return a mask of the steps in `own` for which `LOST` of the launches have no work in the
    file.
    """
    calls, is_lost = kernel_launches(profile)
    counted = host if len(host) else own
    lost, launched = (
        np.diff(np.searchsorted(np.sort(times), start_and_end(counted), side="left"), axis=0)[0]
        for times in (of_rank(chosen, rank)["start_ns"] for chosen in (calls[is_lost], calls))
    )
    is_unknown = (lost > 0) & (lost >= LOST * launched)
    return np.isin(whole_numbers(own["step"]), whole_numbers(counted["step"])[is_unknown])


def _with_untraced(profile: Profile, table: pd.DataFrame) -> pd.DataFrame:
    stated = [one["step_ns"] for one in profile.meta.get("untraced", {}).values()]
    table.attrs["unprofiled_step_ns"] = float(np.mean(stated)) if stated else None
    return table


def budget_parts(budget: pd.DataFrame) -> list[str]:
    """Return the names of the parts in a table of `step_budget`, in order and without the suffix
    `_ns`.
    """
    known = DEVICE_PARTS if "compute_ns" in budget.columns else HOST_PARTS
    return [part for part in known if f"{part}_ns" in budget.columns]


def steady_steps(budget: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `step_budget` without the first `WARM_UP_STEPS` of each device. If fewer
    than two other steps per device would remain, return the whole table.
    """
    number = budget.groupby(["rank", "device"], dropna=False).cumcount()
    steady = budget[number >= WARM_UP_STEPS]
    return steady if len(steady) >= 2 * len(budget.loc[number == 0]) else budget


def idle_around(events: PlainEvents, begin: np.ndarray, finish: np.ndarray) -> Idleness:
    """Return a device's idle time between its events, and in the windows [begin, finish) before and
    after the events.

    Idle time is computed for the whole profile, because a step boundary may cut a gap. The cause of
    the gap depends on its true start.
    """
    start, end = start_and_end(events)
    return idleness(int(min(begin.min(), start.min())), int(max(finish.max(), end.max())), events)


def device_parts(
    events: PlainEvents, idle: Idleness, blocked: Intervals, data: Intervals
) -> dict[str, Intervals]:
    """Return `DEVICE_PARTS` as sets of time intervals that don't overlap.

    - blocked: the times when the host was in a call that waits.
    - data: the times when the host was in the phase `data`.
    """
    time, blocked = DeviceTime.of(events), idle.dry & blocked
    waiting = ((idle.dry | idle.queued) & data) - blocked
    return {
        "compute": time.computation,
        "exposed_communication": time.exposed_communication,
        "exposed_copy": time.exposed_copy,
        "launch_bound": idle.dry - blocked - waiting,
        "blocked_host": blocked,
        "data_wait": waiting,
        "other": (idle.queued - waiting) | idle.earlier,
    }


def _host_budget(profile: Profile, marked: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `step_budget` for a profile without device events.

    - marked: the steps of the profile, or the whole profile as one step.
    """
    rows = []
    for rank in ranks_of(marked):
        own = of_rank(marked, rank)
        begin, finish = start_and_end(own)
        columns: dict[str, np.ndarray] = {}
        taken = Intervals.empty()
        # Start with the last phase because overlapping time belongs to the later phase.
        for phase in reversed(PHASE_PATTERNS):
            spent = phase_time(profile, rank, phase) - taken
            taken = taken | spent
            columns[f"{phase}_ns"] = spent.covered_within(begin, finish)
        columns["other_ns"] = (finish - begin) - taken.covered_within(begin, finish)
        rows += own.assign(**columns).to_dict("records")
    return result(rows, "host_budget", profile)
