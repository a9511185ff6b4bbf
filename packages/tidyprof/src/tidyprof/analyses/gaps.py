"""The device's idle intervals, and what the host was doing meanwhile."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
    by_device,
    events_of_process,
    launch_times,
    longest_overlap,
    names_matching,
    occupied,
    owner_of,
    plain_host_events,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import ending_events, idleness
from tidyprof.analyses.steps import STEP_PATTERN, steps
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

HOST_COLUMNS = {"annotation": "host_range", "operator": "host_operator", "runtime": "host_call"}
"""Kind of host event -> the column of `gaps` that names it."""

MIN_COVERED_SHARE = 0.5
"""Share of a gap that a call must cover to be named for it."""

GAP_COLUMNS = {
    **PLACE,
    "start_ns": "int64",
    "duration_ns": "int64",
    "cause": "string",
    "after": "string",
    "before": "string",
    **dict.fromkeys(HOST_COLUMNS.values(), "string"),
}
"""Columns of `gaps`."""


def gaps(profile: Profile, minimum_ns: int = 10_000) -> pd.DataFrame:
    """Idle intervals of at least minimum_ns between a device's first and last event, longest first.

    after and before are the short names of the events that the gap lies between. cause is what most
    of the gap is: `launched late` (nothing was launched), `queued` (the next work had been
    launched: dispatch, or a dependency), `earlier work` (the next work is the first of its stream,
    had been launched and waited a millisecond or longer: what the device did, such as the batch
    before, is not in the file) or `unknown` (no launch record). Events without a duration neither
    begin nor end a gap; of several events that end one together, the first launched counts.
    host_range, host_operator and host_call name the annotation (step ranges left out), operator and
    runtime call of the same rank that overlap the gap longest, the innermost of equal ones; missing
    where there is none. A call that covers less than MIN_COVERED_SHARE of the gap is no reason for
    it: host_call is missing then. Where several processes without a rank mark steps, only host
    events of the device's process count; raises ValueError where that is not clear, see
    `common.owner_of`.
    """
    host = plain_host_events(profile)
    host = host[~names_matching(host, STEP_PATTERN)]
    marked = steps(profile)
    tables = []
    for place, events in by_device(profile):
        busy = occupied(events)
        idle = Intervals(busy.ends[:-1], busy.starts[1:])
        long = idle.ends - idle.starts >= minimum_ns
        idle = Intervals(idle.starts[long], idle.ends[long])
        if len(idle):
            table = _device_gaps(idle, events)
            own = events_of_process(host, owner_of(place, events, marked))
            # A range or an operator says where in the program the gap lies, however short; a call
            # would be taken for the reason.
            for kind, column in HOST_COLUMNS.items():
                least = MIN_COVERED_SHARE if kind == "runtime" else 0
                table[column] = longest_overlap(idle, own[own["kind"] == kind], least)
            tables.append(table.assign(**place))
    table = pd.concat(tables) if tables else pd.DataFrame(columns=list(GAP_COLUMNS))
    table = table.sort_values(["duration_ns", "start_ns"], ascending=[False, True], kind="stable")
    return result(table, GAP_COLUMNS, profile)


def _device_gaps(idle: Intervals, events: PlainEvents) -> pd.DataFrame:
    events = events[events["duration_ns"] > 0]
    _, end = start_and_end(events)
    by_end = np.argsort(end, kind="stable")
    names = events["short_name"]
    before = ending_events(idle, events)
    after = by_end[np.searchsorted(end[by_end], idle.starts, side="right") - 1]
    found = idleness(int(idle.starts[0]), int(idle.ends[-1]), events)
    late, earlier = (2 * part.covered_within(idle.starts, idle.ends) > idle.ends - idle.starts
                     for part in (found.dry, found.earlier))  # fmt: skip
    known = (launch_times(events) != ABSENT)[before]
    return pd.DataFrame(
        {
            "start_ns": idle.starts,
            "duration_ns": idle.ends - idle.starts,
            "cause": np.select(
                [late, earlier, known], ["launched late", "earlier work", "queued"], "unknown"
            ),
            "after": names[after].astype("string"),
            "before": names[before].astype("string"),
        }
    )
