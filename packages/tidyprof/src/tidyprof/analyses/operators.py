"""Host times of operators: the total time, and the self time without nested operators."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import Kinds, host_events, percent, result, start_and_end
from tidyprof.tables.contract import Profile
from tidyprof.tables.launches import callers


def operators(profile: Profile, kinds: Kinds = "operator") -> pd.DataFrame:
    """Return one row per operator name. The operator with the largest self time comes first. The
    table corresponds to PyTorch's `key_averages`.

    `total_ns` is the total duration of all calls, including nested operators. `self_ns` excludes
    operators that are nested on the same thread, so all self times add up to the time when
    operators ran. `mean_ns` is the mean duration of a call. `percent` is the operator's share of
    all self times (0-100).

    All times are host times. On a GPU, an operator returns as soon as its kernels are launched. To
    include ranges or runtime calls in the nesting, add `annotation` or `runtime` to `kinds`. The
    rows combine all ranks. Raises ValueError for an unknown kind.
    """
    events = host_events(profile, kinds)
    calls = events[["name", "duration_ns"]].assign(self_ns=self_time(events))
    table = calls.groupby("name", observed=True, sort=False, dropna=False).agg(
        calls=("duration_ns", "size"), total_ns=("duration_ns", "sum"), self_ns=("self_ns", "sum")
    )
    table = table.reset_index()
    table["mean_ns"] = table["total_ns"] / table["calls"]
    table["percent"] = percent(table["self_ns"], table["self_ns"].sum())
    order = ["self_ns", "total_ns", "name"]
    table = table.sort_values(order, ascending=[False, False, True], kind="stable")
    return result(table, "operators", profile)


def self_time(events: pd.DataFrame) -> pd.Series:
    """Return each event's duration in nanoseconds, excluding the events that are nested directly in
    it on the same thread.
    """
    self_ns = events["duration_ns"].to_numpy(np.int64, copy=True)
    # An event without a duration contains nothing, but another event with the same start could be
    # assigned to it as its caller.
    rows = np.flatnonzero(self_ns > 0)
    start, end = start_and_end(events)
    thread = (
        events.groupby(["rank", "process", "thread"], dropna=False, sort=False).ngroup().to_numpy()
    )
    order, caller = callers(start[rows], end[rows], thread[rows])
    inner, outer = rows[order[caller >= 0]], rows[order[caller[caller >= 0]]]
    # Rounding can make a call outlast its caller, so limit its time to the caller's time.
    np.subtract.at(self_ns, outer, np.minimum(end[inner], end[outer]) - start[inner])
    return pd.Series(self_ns, index=events.index)
