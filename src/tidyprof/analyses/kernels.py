"""Which kernels took how much time."""

from __future__ import annotations

import pandas as pd

from tidyprof.analyses.common import PLACE, Kinds, of_kind, percent, result
from tidyprof.names.short_names import category, unique_short_names
from tidyprof.tables.contract import Profile

KERNEL_COLUMNS = {
    "name": "string",
    "short_name": "string",
    "category": "string",
    "calls": "int64",
    "total_ns": "int64",
    "mean_ns": "float64",
    "min_ns": "int64",
    "max_ns": "int64",
    "std_ns": "float64",
    "percent": "float64",
}
"""Columns of `kernels`, the same for every tool."""


def kernels(profile: Profile, *, include: Kinds = ("kernel", "collective"), per_device: bool = False) -> pd.DataFrame:
    """One row per kernel name, largest total first.

    name is the full name, short_name is distinct within the table, category is one of
    `names.CATEGORIES`. calls counts events; total_ns is the sum of their durations, so
    kernels that run at the same time both count. std_ns is the sample standard deviation,
    0 for a single call, as in rocprofv3. percent is the share of the table's total (0-100).
    include chooses the kinds (see profile.KINDS; ValueError for another). All ranks and devices are added up, unless
    per_device asks for rows per rank and device, with these two columns in front.
    """
    events = of_kind(profile, include)
    place = list(PLACE) if per_device else []
    grouped = events.groupby([*place, "name"], observed=True, dropna=False, sort=False)["duration_ns"]
    table = grouped.agg(calls="size", total_ns="sum", mean_ns="mean", min_ns="min", max_ns="max", std_ns="std")
    table = table.reset_index()
    table["std_ns"] = table["std_ns"].fillna(0.0)
    kinds = events.drop_duplicates("name").set_index("name")["kind"]
    names = table["name"].astype(str)
    table["short_name"] = names.map(unique_short_names(names))
    table["category"] = [category(name, kinds[name]) for name in names]
    table["percent"] = percent(table["total_ns"], table["total_ns"].sum())
    table = table.sort_values(["total_ns", "name"], ascending=[False, True], kind="stable")
    return result(table, {**(PLACE if per_device else {}), **KERNEL_COLUMNS}, profile)
