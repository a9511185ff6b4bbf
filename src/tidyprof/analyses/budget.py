"""Where each step's time goes, in parts that add up to the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
    by_device,
    launch_times,
    of_rank,
    percent,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import DeviceTime
from tidyprof.analyses.steps import PHASE_PATTERNS, phase_time, step_of_time, steps, steps_or_all
from tidyprof.intervals import Intervals
from tidyprof.profile import Profile

DEVICE_PARTS = ("compute", "exposed_communication", "exposed_copy", "launch_bound", "data_wait", "other")
"""Parts of a step on a device, in the order in which time is given to them."""

HOST_PARTS = (*PHASE_PATTERNS, "other")
"""Parts of a step in a recording without device events: the marked phases and the rest."""

_STEP = {**PLACE, "step": "Int64", "start_ns": "int64", "duration_ns": "int64"}

DEVICE_BUDGET_COLUMNS = {
    **_STEP,
    **{f"{part}_ns": "int64" for part in DEVICE_PARTS},
    "launched_earlier_percent": "float64",
    "no_launch_record_percent": "float64",
}
"""Columns of `step_budget` where the recording has device events."""

HOST_BUDGET_COLUMNS = {**_STEP, **{f"{part}_ns": "int64" for part in HOST_PARTS}}
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
    ahead: launched_earlier_percent is the share of the busy time with work launched in an earlier step.
    timeline="device" takes the device's own steps, by launch time (see `steps`). no_launch_record_percent is
    the share of busy time that can be given to no step, because no launch was recorded for it.

    Without device events the parts are the host's phases data, forward, loss, backward, optimizer and
    other; where ranges overlap, the time goes to the later of them in that order.
    A recording that marks no steps has one step <NA>: all of it. Raises ValueError as `steps` does.
    """
    if not len(profile.device_events):
        return _host_budget(profile)
    found = steps_or_all(profile) if timeline == "host" else steps(profile, timeline)
    host = found if timeline == "host" else steps(profile)
    rows: list[dict[str, Any]] = []
    for place, events in by_device(profile):
        own = of_rank(found, place["rank"])
        if timeline != "host":
            own = own[own["device"].isna() if place["device"] is None else own["device"] == place["device"]]
        if len(own):
            rows += _device_rows(profile, place, events, own, of_rank(host, place["rank"]))
    return result(rows, DEVICE_BUDGET_COLUMNS, profile)


def parts_of(budget: pd.DataFrame) -> list[str]:
    """Names of the parts in a table of `step_budget`, in order, without `_ns`."""
    known = DEVICE_PARTS if "compute_ns" in budget.columns else HOST_PARTS
    return [part for part in known if f"{part}_ns" in budget.columns]


def _device_rows(
    profile: Profile, place: dict[str, Any], events: pd.DataFrame, own: pd.DataFrame, host: pd.DataFrame
) -> list[dict[str, Any]]:
    """Budget rows of one device: `own` are the steps to divide, `host` the host's ranges that launches fall in."""
    begin, finish = start_and_end(own)
    time = DeviceTime.of(events)
    busy = time.busy
    # The whole recording, so that a gap is judged by its true beginning and not by where a step cuts it.
    first_event, last_event = events["start_ns"].min(), start_and_end(events)[1].max()
    idle = Intervals.window(int(min(begin.min(), first_event)), int(max(finish.max(), last_event))) - busy
    waiting = idle & phase_time(profile, place["rank"], "data")
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
    earlier, unknown = _attribution(events, own, host)
    columns["launched_earlier_percent"] = percent(earlier.covered_within(begin, finish), work)
    columns["no_launch_record_percent"] = percent(unknown.covered_within(begin, finish), work)
    table = own[["step", "start_ns", "duration_ns"]].assign(**place, **columns)
    return table.to_dict("records")


def run_dry(idle: Intervals, events: pd.DataFrame) -> Intervals:
    """The idle intervals that began with an empty queue.

    The event that ends such an interval was launched after the device had fallen idle, or
    none follows. Where its launch is not recorded, nothing is claimed.
    """
    order = np.argsort(events["start_ns"].to_numpy(np.int64), kind="stable")
    start = events["start_ns"].to_numpy(np.int64)[order]
    launch = launch_times(events)
    # The latest time stands for "no event follows", the earliest for "launch unknown".
    launched = launch.fillna(np.iinfo(np.int64).min).to_numpy(np.int64)[order]
    launched = np.append(launched, np.iinfo(np.int64).max)
    following = np.searchsorted(start, idle.starts, side="left")
    late = launched[following] >= idle.starts
    return Intervals(idle.starts[late], idle.ends[late])


def _attribution(events: pd.DataFrame, own: pd.DataFrame, host: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """When work ran that an earlier step had launched, and when work without a launch record."""
    launch = launch_times(events)
    begin, finish = start_and_end(events)
    running_in = _step_numbers(own, pd.Series(begin, index=events.index, dtype="Int64"))
    launched_in = _step_numbers(host, launch)
    before_all = (launch < host["start_ns"].min()).fillna(False).to_numpy(bool)
    # Work that begins between or after the steps was launched in an earlier one, whichever it was.
    earlier = (launched_in >= 0) & ((running_in > launched_in) | (running_in < 0)) | before_all
    unknown = launch.isna().to_numpy()
    return Intervals.union(begin[earlier], finish[earlier]), Intervals.union(begin[unknown], finish[unknown])


def _step_numbers(own: pd.DataFrame, times: pd.Series) -> np.ndarray:
    """The number of the step that each time falls in, -1 for none; the one unnumbered step counts as 0."""
    numbers = np.append(own["step"].fillna(0).to_numpy(np.int64), -1)
    return numbers[step_of_time(own, times)]


def _host_budget(profile: Profile) -> pd.DataFrame:
    rows = []
    found = steps_or_all(profile)
    for rank in found["rank"].drop_duplicates():
        own = of_rank(found, rank)
        begin, finish = start_and_end(own)
        columns: dict[str, np.ndarray] = {}
        taken = Intervals.empty()
        for phase in reversed(PHASE_PATTERNS):
            spent = phase_time(profile, rank, phase) - taken
            taken = taken | spent
            columns[f"{phase}_ns"] = spent.covered_within(begin, finish)
        columns["other_ns"] = (finish - begin) - taken.covered_within(begin, finish)
        rows += own.assign(**columns).to_dict("records")
    return result(rows, HOST_BUDGET_COLUMNS, profile)
