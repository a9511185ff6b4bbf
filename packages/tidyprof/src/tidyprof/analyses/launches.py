"""How long device work waited between its launch and its start, and which operator launched it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
    by_device,
    host_events,
    launch_times,
    result,
    start_and_end,
)
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import Profile
from tidyprof.tables.launches import innermost

LAUNCH_COLUMNS = {
    **PLACE,
    "stream": "Int64",
    "kind": "string",
    "name": "string",
    "short_name": "string",
    "launch_ns": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "delay_ns": "int64",
    "queue_depth": "int64",
}
"""Columns of `launches`."""


def launches(profile: Profile) -> pd.DataFrame:
    """One row per device event whose launch was recorded, in order of launch.

    delay_ns is from the begin of the launch call to the start on the device (negative only if the
    file's clocks disagree). queue_depth counts the device's events, on all streams, that had been
    launched before and not yet finished when this one was launched: 0 means the device had run dry.
    Long delays with a deep queue mean that the GPU is the bottleneck; short ones with an empty
    queue that the host is.
    """
    tables = []
    for place, events in by_device(profile):
        launch = launch_times(events)
        known, launched = events[launch != ABSENT], launch[launch != ABSENT]
        if not len(known):
            continue
        start, end = start_and_end(known)
        # Launched before, less finished by then; clocks that disagree could make that negative.
        depth = np.searchsorted(np.sort(launched), launched, side="left")
        depth -= np.searchsorted(np.sort(end), launched, side="right")
        table = profile.events.iloc[known.rows]
        tables.append(
            table.assign(
                **place,
                launch_ns=launched,
                delay_ns=start - launched,
                queue_depth=np.maximum(depth, 0),
            )
        )
    table = pd.concat(tables) if tables else pd.DataFrame(columns=list(LAUNCH_COLUMNS))
    return result(
        table.sort_values(["launch_ns", "start_ns"], kind="stable"), LAUNCH_COLUMNS, profile
    )


def launched_ns(profile: Profile, calls: pd.DataFrame) -> np.ndarray:
    """For each call on the host the summed durations (ns) of the device work that its thread
    launched during the call.
    """
    work = profile.device_events
    total = np.zeros(len(calls), np.int64)
    if "launch_thread" not in work.columns:
        return total
    work = work.assign(rank=work["rank"].fillna(-1))
    work = work.dropna(subset=["launch_ns", "launch_thread"]).sort_values("launch_ns")
    of_thread = dict(iter(work.groupby(["rank", "launch_thread"])))
    start, end = start_and_end(calls)
    threads = calls.assign(rank=calls["rank"].fillna(-1)).groupby(["rank", "thread"])
    for thread, rows in threads.indices.items():
        if thread in of_thread:
            launch = of_thread[thread]["launch_ns"].to_numpy(np.int64)
            # Sums up to each launch: the work of a call is the difference of two of them.
            summed = np.append(0, np.cumsum(of_thread[thread]["duration_ns"].to_numpy(np.int64)))
            first = np.searchsorted(launch, start[rows])
            last = np.searchsorted(launch, end[rows], side="right")
            total[rows] = summed[last] - summed[first]
    return total


def launching_operators(profile: Profile) -> pd.Series:
    """The name of the operator that launched each event on a device, as string; <NA> where that is
    not known.

    It is the operator that the file states, or else the innermost one that ran on the launching
    thread at the launch.
    """
    work = profile.device_events
    names = work.get("operator", pd.Series(pd.NA, work.index)).astype("string")
    calls = host_events(profile, "operator")
    if "launch_thread" not in work.columns or not len(calls):
        return names
    asked = work[names.isna() & (launch_times(work) != ABSENT) & work["launch_thread"].notna()]
    launch = asked["launch_ns"].to_numpy(np.int64)
    around = innermost(
        start_and_end(calls),
        _threads(calls, "thread"),
        (launch, launch),
        _threads(asked, "launch_thread"),
    )
    # The last name answers the -1 of launches outside of all operators.
    names[asked.index] = pd.array([*calls["name"], pd.NA], "string")[around]
    return names


def _threads(events: pd.DataFrame, thread: str) -> tuple[np.ndarray, np.ndarray]:
    """Rank and thread of each event."""
    rank, number = (
        events[column].astype("Int64").to_numpy(np.int64, na_value=ABSENT)
        for column in ("rank", thread)
    )
    return rank, number
