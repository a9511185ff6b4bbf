"""Operators on the host: total time, and time of their own without what they call."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import Kinds, host_events, percent, result, start_and_end
from tidyprof.tables.contract import Profile

OPERATOR_COLUMNS = {
    "name": "string",
    "calls": "int64",
    "total_ns": "int64",
    "self_ns": "int64",
    "mean_ns": "float64",
    "percent": "float64",
}
"""Columns of `operators`; with by_shape=True `input_shapes` follows the name."""


def operators(profile: Profile, kinds: Kinds = "operator", *, by_shape: bool = False) -> pd.DataFrame:
    """One row per operator name, or with by_shape per name and input shapes, largest self time first.

    It is what torch calls key_averages. total_ns adds the durations of all calls, with the operators that they
    call; self_ns leaves those on the same thread out, so that self times add up to the time in which operators ran.
    mean_ns is total per call, percent the share of all self time (0-100). These are host times: on a GPU an
    operator returns as soon as its kernels are launched. kinds may add `annotation` or `runtime` to the nesting.
    All ranks together.
    Raises ValueError for a kind that there is not, and for shapes that the profiler does not record.
    """
    events = host_events(profile, kinds)
    keys = ["name", "input_shapes"] if by_shape else ["name"]
    if keys[-1] not in events.columns:
        raise ValueError("no shapes of inputs in this profile: only torch.profiler records them")
    own = pd.DataFrame(
        {
            **{key: events[key] for key in keys},
            "duration_ns": events["duration_ns"],
            "self_ns": self_time(events),
        }
    )
    table = own.groupby(keys, observed=True, sort=False, dropna=False).agg(
        calls=("duration_ns", "size"), total_ns=("duration_ns", "sum"), self_ns=("self_ns", "sum")
    )
    table = table.reset_index()
    table["mean_ns"] = table["total_ns"] / table["calls"]
    table["percent"] = percent(table["self_ns"], table["self_ns"].sum())
    table = table.sort_values(
        ["self_ns", "total_ns", *keys], ascending=[False, False, *(True for _ in keys)], kind="stable"
    )
    return result(table, dict.fromkeys(keys, "string") | OPERATOR_COLUMNS, profile)


def self_time(events: pd.DataFrame) -> pd.Series:
    """For each event its duration in ns without the events nested directly in it on the same thread."""
    own = pd.Series(events["duration_ns"].to_numpy(np.int64, copy=True), index=events.index)
    threads = events.groupby(["rank", "process", "thread"], dropna=False, sort=False).indices
    values = own.to_numpy(copy=True)
    start, end = start_and_end(events)
    for rows in threads.values():
        rows = rows[end[rows] > start[rows]]
        parent = _parents(start[rows], end[rows])
        nested = parent >= 0
        child, outer = rows[nested], rows[parent[nested]]
        # A child that outlasts its parent by rounding takes no more than the parent has.
        shared = np.minimum(end[child], end[outer]) - start[child]
        np.subtract.at(values, outer, shared)
    return pd.Series(values, index=events.index)


def _parents(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Position of the innermost event around each event of one thread, -1 for none; all have a duration."""
    order = np.lexsort((-end, start))
    first, last = start[order], end[order]
    # Events of a thread are nested, so those begun and not yet ended are the ones around this one.
    depth = np.arange(len(order)) - np.searchsorted(np.sort(last), first, side="right")
    parent = np.full(len(order), -1)
    outer = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        inner = np.flatnonzero(depth == level)
        if not len(inner) or not len(outer):
            break
        # Positions in order are sorted, so the nearest outer event before this one encloses it.
        parent[inner] = outer[np.maximum(np.searchsorted(outer, inner) - 1, 0)]
        outer = inner
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.where(parent >= 0, order[parent], -1)
    return found
