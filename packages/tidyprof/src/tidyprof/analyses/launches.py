"""Launch delays of device work, and the work that a call launched."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import by_device, launch_times, result, start_and_end
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import Profile


def launches(profile: Profile) -> pd.DataFrame:
    """Return one row per device event with a recorded launch, in launch order.

    `delay_ns` is the time from the start of the launch call to the start of the event on the
    device. The delay is negative only if the clocks in the file disagree.

    `queue_depth` is the number of earlier launches on all streams of the device that hadn't
    finished at this event's launch. A depth of 0 means that the device had run out of queued work.

    If the delays are long and the queue is deep, the GPU is the bottleneck. If the delays are short
    and the queue is empty, the host is the bottleneck.
    """
    tables = []
    for place, events in by_device(profile):
        launch = launch_times(events)
        known, launched = events[launch != ABSENT], launch[launch != ABSENT]
        start, end = start_and_end(known)
        # Subtract the finished events from the events launched before. If clocks disagree, the
        # result could be negative.
        depth = np.searchsorted(np.sort(launched), launched, side="left")
        depth -= np.searchsorted(np.sort(end), launched, side="right")
        table = profile.events.iloc[known.rows].assign(**place, launch_ns=launched)
        depth = np.maximum(depth, 0)
        tables.append(table.assign(delay_ns=start - launched, queue_depth=depth))
    tables = [table for table in tables if len(table)]
    if not tables:
        return result([], "launches", profile)
    table = pd.concat(tables).sort_values(["launch_ns", "start_ns"], kind="stable")
    return result(table, "launches", profile)


def launched_ns(profile: Profile, calls: pd.DataFrame) -> np.ndarray:
    """For each call on the host, return the total duration of the device work that the call's
    thread launched during the call. The result is in nanoseconds.
    """
    work = profile.device_events
    total = np.zeros(len(calls), np.int64)
    if "launch_thread" not in work.columns:
        return total
    work = work.dropna(subset=["launch_ns", "launch_thread"]).sort_values("launch_ns")
    of_thread = dict(iter(work.fillna({"rank": -1}).groupby(["rank", "launch_thread"])))
    start, end = start_and_end(calls)
    threads = calls[["rank", "thread"]].fillna({"rank": -1}).groupby(["rank", "thread"])
    for thread, rows in threads.indices.items():
        if thread in of_thread:
            launch, duration = (
                of_thread[thread][column].to_numpy(np.int64)
                for column in ("launch_ns", "duration_ns")
            )
            # These are cumulative sums. The work of a call is the difference between two of them.
            summed = np.append(0, np.cumsum(duration))
            last = summed[np.searchsorted(launch, end[rows], side="right")]
            total[rows] = last - summed[np.searchsorted(launch, start[rows])]
    return total
