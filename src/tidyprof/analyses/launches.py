"""How long device work waited between its launch and its start."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import PLACE, by_device, launch_times, result, start_and_end
from tidyprof.tables.contract import Profile

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

    delay_ns is from the begin of the launch call to the start on the device (negative only if the file's
    clocks disagree). queue_depth counts the device's events, on all streams, that had been launched before
    and not yet finished when this one was launched: 0 means the device had run dry. Long delays with a deep
    queue mean that the GPU is the bottleneck; short ones with an empty queue that the host is.
    """
    tables = []
    for place, events in by_device(profile):
        launch = launch_times(events)
        own = events[launch.notna()]
        if not len(own):
            continue
        launched = launch.dropna().to_numpy(np.int64)
        start, end = start_and_end(own)
        depth = np.searchsorted(np.sort(launched), launched, side="left")
        depth -= np.searchsorted(np.sort(end), launched, side="right")
        tables.append(
            own.assign(**place, launch_ns=launched, delay_ns=start - launched, queue_depth=np.maximum(depth, 0))
        )
    table = pd.concat(tables) if tables else pd.DataFrame(columns=list(LAUNCH_COLUMNS))
    return result(table.sort_values(["launch_ns", "start_ns"], kind="stable"), LAUNCH_COLUMNS, profile)
