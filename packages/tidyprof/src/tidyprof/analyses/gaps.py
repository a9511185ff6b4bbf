"""A device's idle intervals, and what the host did during them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    by_device,
    launch_times,
    names_matching,
    occupied,
    of_rank,
    plain_host_events,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import ending_events, idleness
from tidyprof.analyses.steps import STEP_PATTERN
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import Profile, categorical_of
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

HOST_COLUMNS = {"annotation": "host_range", "operator": "host_operator", "runtime": "host_call"}
"""The column of `gaps` that names each kind of host event."""

MIN_COVERED_SHARE = 0.5
"""Minimum share of a gap that a runtime call must cover to be listed as the `host_call`."""


def gaps(profile: Profile, minimum_ns: int = 10_000) -> pd.DataFrame:
    """Return the idle intervals between a device's first and last event that last at least
    `minimum_ns`. The longest interval comes first.

    `after` and `before` are the short names of the events around the gap. `cause` explains most of
    the gap:

    - `launched late`: no work had been launched.
    - `queued`: the next work had already been launched. Dispatch or a dependency caused the delay.
    - `earlier work`: the next work is the first work of its stream and started at least a
      millisecond after its launch. During this delay, the device did something that isn't in the
      file, such as the previous batch.
    - `unknown`: the launch wasn't recorded.

    Events without a duration don't start or end a gap. If several events end a gap at the same
    time, the event that was launched first determines the cause.

    `host_range`, `host_operator` and `host_call` contain the names of the annotation, operator and
    runtime call that overlap the gap longest. These host events have the same rank as the device.
    If several of them overlap the gap equally long, the innermost one is used. Step ranges are left
    out. The value is missing if no event overlaps the gap. `host_call` is also missing if the call
    covers less than `MIN_COVERED_SHARE` of the gap, because such a call doesn't explain the gap.
    """
    host = plain_host_events(profile)
    host = host[~names_matching(host, STEP_PATTERN)]
    tables = []
    for place, events in by_device(profile):
        busy = occupied(events)
        idle = Intervals(busy.ends[:-1], busy.starts[1:])
        long = idle.ends - idle.starts >= minimum_ns
        idle = Intervals(idle.starts[long], idle.ends[long])
        if len(idle):
            table = _device_gaps(idle, events)
            own = of_rank(host, place["rank"])
            # Even a short range or operator shows which part of the program the gap belongs to. But
            # a short call would be mistaken for the cause.
            for kind, column in HOST_COLUMNS.items():
                least = MIN_COVERED_SHARE if kind == "runtime" else 0
                table[column] = _longest_overlap(idle, own[own["kind"] == kind], least)
            tables.append(table.assign(**place))
    if not tables:
        return result([], "gaps", profile)
    table = pd.concat(tables)
    table = table.sort_values(["duration_ns", "start_ns"], ascending=[False, True], kind="stable")
    return result(table, "gaps", profile)


def _device_gaps(idle: Intervals, events: PlainEvents) -> pd.DataFrame:
    events = events[events["duration_ns"] > 0]
    _, end = start_and_end(events)
    by_end = np.argsort(end, kind="stable")
    before = ending_events(idle, events)
    after = by_end[np.searchsorted(end[by_end], idle.starts, side="right") - 1]
    found = idleness(int(idle.starts[0]), int(idle.ends[-1]), events)
    lengths = idle.ends - idle.starts
    late, earlier = (
        2 * part.covered_within(idle.starts, idle.ends) > lengths
        for part in (found.dry, found.earlier)
    )
    known = (launch_times(events) != ABSENT)[before]
    causes = ["launched late", "earlier work", "queued"]
    names = events["short_name"]
    return pd.DataFrame(
        {
            "start_ns": idle.starts,
            "duration_ns": lengths,
            "cause": np.select([late, earlier, known], causes, "unknown"),
            "after": names[after].astype("string"),
            "before": names[before].astype("string"),
        }
    )


def _longest_overlap(idle: Intervals, host: PlainEvents, least: float) -> np.ndarray:
    """For each gap, return the name of the host event that overlaps the gap longest.

    If several events overlap the gap equally long, the shortest event is used. The name is None if
    no event covers at least the share `least` of the gap.
    """
    start, end = start_and_end(host)
    # Each event overlaps consecutive gaps, because the gaps don't overlap.
    first = np.searchsorted(idle.ends, start, side="right")
    count = np.maximum(np.searchsorted(idle.starts, end, side="left") - first, 0)
    event = np.repeat(np.arange(len(start)), count)
    gap = np.arange(len(event)) - np.repeat(np.cumsum(count) - count - first, count)
    shared = np.minimum(end[event], idle.ends[gap]) - np.maximum(start[event], idle.starts[gap])
    # Sort by gap, with the best event of each gap first.
    order = np.lexsort(((end - start)[event], -shared, gap))
    # An event without a duration that starts inside a gap overlaps it by 0 ns.
    enough = (end > start)[event] & (shared >= least * (idle.ends - idle.starts)[gap])
    order = order[enough[order]]
    best, first_of = np.unique(gap[order], return_index=True)
    names = np.full(len(idle), None, dtype=object)
    names[best] = categorical_of(host["name"])[event[order[first_of]]].tolist()
    return names
