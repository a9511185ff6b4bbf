"""Where each step's time goes, in parts that add up to the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    by_device,
    launch_times,
    occupied,
    overlapping,
    percent,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import DeviceTime
from tidyprof.analyses.step_owners import OWNER, of_owner, owner_of
from tidyprof.analyses.steps import (
    PHASE_PATTERNS,
    STEP_COLUMNS,
    phase_time,
    require_timeline,
    step_of_time,
    steps,
    steps_or_all,
)
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

DEVICE_PARTS = ("compute", "exposed_communication", "exposed_copy", "launch_bound", "data_wait", "other")
"""Parts of a step on a device, in the order in which time is given to them."""

HOST_PARTS = (*PHASE_PATTERNS, "other")
"""Parts of a step in a recording without device events: the marked phases and the rest."""

DEVICE_BUDGET_COLUMNS = {
    **STEP_COLUMNS,
    **{f"{part}_ns": "int64" for part in DEVICE_PARTS},
    "launched_earlier_percent": "float64",
    "no_launch_record_percent": "float64",
}
"""Columns of `step_budget` where the recording has device events."""

HOST_BUDGET_COLUMNS = {**STEP_COLUMNS, **{f"{part}_ns": "int64" for part in HOST_PARTS}}
"""Columns of `step_budget` where it has none."""


def step_budget(profile: Profile, timeline: str = "host") -> pd.DataFrame:
    """One row per rank, device and step: its duration_ns and the parts of it, which add up exactly.

    With device events, the parts are what the device did during the step:
      compute_ns                 a kernel or fill ran (definitions: device_time.DeviceTime)
      exposed_communication_ns   a collective ran and no computation beside it
      exposed_copy_ns            a copy ran and neither of these
      data_wait_ns               idle while the host was in the phase `data` (steps.PHASE_PATTERNS)
      launch_bound_ns            else idle because nothing was queued: the host launched the next work
                                 only after the device had run dry
      other_ns                   idle although the next work was queued, or its launch was not recorded

    timeline="host" takes the host's step ranges, with whatever the device did in that time. The host may run
    ahead: launched_earlier_percent is the share of the busy time with work that a step before this one launched.
    timeline="device" takes the device's own steps, by launch time (see `steps`). no_launch_record_percent is
    the share of busy time that can be given to no step, because no launch was recorded for it.

    Without device events the parts are, for either timeline, the host's phases data, forward, loss, backward,
    optimizer and other; where ranges overlap, the time goes to the later of them in that order.
    A recording that marks no steps has one step <NA>: all of it. `process` is as in `steps`. Raises ValueError as
    `steps` does.
    """
    require_timeline(timeline)
    if not len(profile.device_events):
        return _host_budget(profile)
    found = steps_or_all(profile) if timeline == "host" else steps(profile, timeline)
    host = found if timeline == "host" else steps(profile)
    rows: list[dict[str, Any]] = []
    for place, events in by_device(profile):
        owner = owner_of(place, events, host)
        own = of_owner(found, owner)
        if timeline != "host":
            own = own[own["device"].isna() if place["device"] is None else own["device"] == place["device"]]
        if len(own):
            rows += _device_rows(
                {**place, **owner}, events, own, of_owner(host, owner), phase_time(profile, owner, "data")
            )
    return result(rows, DEVICE_BUDGET_COLUMNS, profile)


def parts_of(budget: pd.DataFrame) -> list[str]:
    """Names of the parts in a table of `step_budget`, in order, without `_ns`."""
    known = DEVICE_PARTS if "compute_ns" in budget.columns else HOST_PARTS
    return [part for part in known if f"{part}_ns" in budget.columns]


def _device_rows(
    place: dict[str, Any], events: pd.DataFrame, own: pd.DataFrame, host: pd.DataFrame, data: Intervals
) -> list[dict[str, Any]]:
    """Budget rows of one device.

    own -- the steps to divide; host -- the host's ranges that launches fall in; data -- when it was in that phase.
    """
    begin, finish = start_and_end(own)
    time = DeviceTime.of(events)
    busy = time.busy
    # The whole recording, so that a gap is judged by its true beginning and not by where a step cuts it.
    first_event, last_event = events["start_ns"].min(), start_and_end(events)[1].max()
    idle = Intervals.window(int(min(begin.min(), first_event)), int(max(finish.max(), last_event))) - busy
    waiting = idle & data
    dry = run_dry(idle, events) - waiting
    parts = {
        "compute": time.computation,
        "exposed_communication": time.exposed_communication,
        "exposed_copy": time.exposed_copy,
        "launch_bound": dry,
        "data_wait": waiting,
        "other": idle - waiting - dry,
    }
    columns = {f"{part}_ns": parts[part].covered_within(begin, finish) for part in DEVICE_PARTS}
    work = busy.covered_within(begin, finish)
    unrecorded = occupied(events[launch_times(events).isna()])
    columns["launched_earlier_percent"] = percent(_launched_earlier(events, own, host), work)
    columns["no_launch_record_percent"] = percent(unrecorded.covered_within(begin, finish), work)
    table = own[["step", "start_ns", "duration_ns"]].assign(**place, **columns)
    return table.to_dict("records")


def run_dry(idle: Intervals, events: pd.DataFrame) -> Intervals:
    """The idle intervals that began with an empty queue.

    The event that ends such an interval was launched after the device had fallen idle, or
    none follows. Where its launch is not recorded, nothing is claimed.
    """
    # The latest time stands for "no event follows".
    launched = np.append(_launched_or_first(events), np.iinfo(np.int64).max)
    late = launched[ending_events(idle, events)] >= idle.starts
    return Intervals(idle.starts[late], idle.ends[late])


def ending_events(idle: Intervals, events: pd.DataFrame) -> np.ndarray:
    """Position of the event that ends each idle interval, -1 where none follows.

    Of several that start together it is the one launched first, before these one whose launch is not recorded.
    An event without a duration ends no idleness.
    """
    start, end = start_and_end(events)
    lasting = np.flatnonzero(end > start)
    order = lasting[np.lexsort((_launched_or_first(events)[lasting], start[lasting]))]
    return np.append(order, -1)[np.searchsorted(start[order], idle.ends, side="left")]


def _launched_or_first(events: pd.DataFrame) -> np.ndarray:
    """Launch times in ns, the earliest time of all where the launch is not recorded."""
    return launch_times(events).fillna(np.iinfo(np.int64).min).to_numpy(np.int64)


def _launched_earlier(events: pd.DataFrame, own: pd.DataFrame, host: pd.DataFrame) -> np.ndarray:
    """For each of the steps `own`, how long work ran in it that a step before it had launched, in ns."""
    launch = launch_times(events)
    launched_in = np.append(_numbers(host), np.iinfo(np.int64).max)[step_of_time(host, launch)]
    # What was launched before the first step is earlier than every one of them.
    launched_in[(launch < host["start_ns"].min()).fillna(False).to_numpy(bool)] = -1
    (start, end), (begin, finish) = start_and_end(events), start_and_end(own)
    event, step = overlapping(start, end, begin, finish)
    earlier = launched_in[event] < _numbers(own)[step]
    event, step = event[earlier], step[earlier]
    # Each step is moved to a time of its own: one union then counts every step by itself, though steps overlap.
    moved_end = np.cumsum(finish - begin)
    move = moved_end - finish
    covered = Intervals.union(
        np.maximum(start[event], begin[step]) + move[step], np.minimum(end[event], finish[step]) + move[step]
    )
    return covered.covered_within(begin + move, moved_end)


def _numbers(steps_of_owner: pd.DataFrame) -> np.ndarray:
    """The number of each step; the one unnumbered step counts as 0."""
    return steps_of_owner["step"].fillna(0).to_numpy(np.int64)


def _host_budget(profile: Profile) -> pd.DataFrame:
    rows = []
    found = steps_or_all(profile)
    for owner in found[list(OWNER)].drop_duplicates().to_dict("records"):
        own = of_owner(found, owner)
        begin, finish = start_and_end(own)
        columns: dict[str, np.ndarray] = {}
        taken = Intervals.empty()
        for phase in reversed(PHASE_PATTERNS):
            spent = phase_time(profile, owner, phase) - taken
            taken = taken | spent
            columns[f"{phase}_ns"] = spent.covered_within(begin, finish)
        columns["other_ns"] = (finish - begin) - taken.covered_within(begin, finish)
        rows += own.assign(**columns).to_dict("records")
    return result(rows, HOST_BUDGET_COLUMNS, profile)
