"""How many bytes per second collectives moved, as nccl-tests and rccl-tests count them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import of_kind, result
from tidyprof.tables.contract import Profile

BUS_FACTORS = {
    r"_?all_?reduce.*": lambda ranks: 2 * (ranks - 1) / ranks,
    r"_?(all_?gather|reduce_?scatter|all_?to_?all).*": lambda ranks: (ranks - 1) / ranks,
    r"_?(broadcast|reduce|send|recv)(_oop)?": lambda ranks: ranks / ranks,
}
"""Names of operations as torch has them -> what algorithm bandwidth is multiplied by to give bus bandwidth.

Source: the summary in https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, and for sends
`src/sendrecv.cu` there; rccl-tests has the same.
"""

BANDWIDTH_COLUMNS = {
    "collective": "string",
    "message_bytes": "Int64",
    "group_size": "Int32",
    "calls": "int64",
    "total_ns": "int64",
    "mean_ns": "float64",
    "min_ns": "int64",
    "algorithm_bytes_per_second": "Float64",
    "bus_bytes_per_second": "Float64",
    "highest_bus_bytes_per_second": "Float64",
}
"""Columns of `collective_bandwidth`."""


def collective_bandwidth(profile: Profile) -> pd.DataFrame:
    """One row per collective operation, size of message and size of group, largest total_ns first.

    collective is as in the file, <NA> where it names none; message_bytes is what the larger side of one rank holds:
    the buffer of an all-reduce, what is gathered, what is scattered. Each kernel on each rank counts as a call.
    algorithm_bytes_per_second is message_bytes / mean_ns; bus_bytes_per_second multiplies that by BUS_FACTORS, so that
    it can be held against what one link of a rank can do, whatever their number; highest_bus_bytes_per_second is the
    same for the shortest call. What a file does not state is <NA>, and so is the bus bandwidth of other operations
    and of a call of 0 ns.

    A kernel's duration holds waiting for ranks that come later (see `collectives`): these figures are lower bounds of
    what the network does, and the highest of a row is nearest to it.
    """
    events = of_kind(profile, "collective")
    keys = {"collective": "string", "bytes": "Int64", "group_size": "Int32"}
    known = pd.DataFrame({key: events.get(key, pd.Series(pd.NA, events.index)).astype(keys[key]) for key in keys})
    grouped = known.assign(duration_ns=events["duration_ns"]).groupby(list(keys), dropna=False)["duration_ns"]
    table = grouped.agg(calls="size", total_ns="sum", mean_ns="mean", min_ns="min").reset_index()
    table = table.rename(columns={"bytes": "message_bytes"})
    factor = _bus_factors(table["collective"], table["group_size"])
    size = table["message_bytes"].astype("Float64") * 1e9
    table["algorithm_bytes_per_second"] = size / table["mean_ns"].replace(0, np.nan).astype("Float64")
    table["bus_bytes_per_second"] = table["algorithm_bytes_per_second"] * factor
    table["highest_bus_bytes_per_second"] = factor * size / table["min_ns"].astype("Float64").replace(0, pd.NA)
    return result(table.sort_values("total_ns", ascending=False, kind="stable"), BANDWIDTH_COLUMNS, profile)


def _bus_factors(collective: pd.Series, group_size: pd.Series) -> pd.Series:
    """For each row what makes bus bandwidth of algorithm bandwidth; <NA> where that is not known."""
    ranks = group_size.astype("Float64").where((group_size > 0).fillna(False))
    found = pd.Series(pd.NA, collective.index, "Float64")
    for pattern, factor in BUS_FACTORS.items():
        own = collective.str.fullmatch(pattern, case=False).fillna(False).astype(bool) & found.isna()
        found[own] = factor(ranks[own])
    return found
