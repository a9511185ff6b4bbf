"""A comparison of two profiles, kernel by kernel or operator by operator."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import COLUMNS, host_events
from tidyprof.analyses.kernels import KERNEL_KINDS, kernels
from tidyprof.analyses.operators import operators
from tidyprof.names.short_names import short_name
from tidyprof.tables.contract import Profile

_SIDES = ("_before", "_after")


def compare(before: Profile, after: Profile) -> pd.DataFrame:
    """Return one row per kernel that occurs in either profile. The row with the largest change in
    total time comes first.

    Kernels are matched by their short names, because full names differ between versions in
    irrelevant details, such as argument types and suffixes from profilers. Kernels with the same
    short name are added up.

    `difference_ns` is the total of `after` minus the total of `before`. `ratio` is the total of
    `after` divided by the total of `before`. The ratio is infinite for a new kernel and 0 for a
    removed kernel. The totals cover the whole profiles, so compare only profiles with equal numbers
    of steps and ranks. If the origins differ, `attrs["origin"]` names both of them.

    If both profiles contain operators but no kernels, as in CPU-only runs, the table has one row
    per operator, and `total_ns` is the operators' self time.

    >>> before = tidyprof.read("trace.json.gz")
    >>> tidyprof.compare(before, before)[["difference_ns", "ratio"]].values.tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    sides = (before, after)
    is_host = not any(len(one.of_kind(KERNEL_KINDS)) for one in sides)
    is_host &= all(len(host_events(one, "operator")) for one in sides)
    totals = [_operator_totals(one) if is_host else _kernel_totals(one) for one in sides]
    keys = [column for column in totals[0] if column not in ("calls", "total_ns")]
    table = totals[0].merge(totals[1], on=keys, how="outer", suffixes=_SIDES)
    # If a row is missing from one profile, its values for that profile are 0.
    numbers = table.columns.difference(keys)
    table[numbers] = table[numbers].fillna(0)
    old, new = table["total_ns_before"], table["total_ns_after"]
    table["difference_ns"] = new - old
    with np.errstate(divide="ignore", invalid="ignore"):
        table["ratio"] = new.to_numpy(float) / old.to_numpy(float)
    table = table.sort_values("difference_ns", key=abs, ascending=False, kind="stable")
    columns = COLUMNS["operator_comparison" if is_host else "kernel_comparison"]
    table = table[list(columns)].reset_index(drop=True).astype(columns)
    is_same = before.origin == after.origin
    table.attrs["origin"] = (
        before.origin if is_same else f"before {before.origin}; after {after.origin}"
    )
    return table


def _kernel_totals(profile: Profile) -> pd.DataFrame:
    """Return the calls and the total of each kernel, by short name and category."""
    table = kernels(profile)
    table["short_name"] = table["name"].map(short_name).astype("string")
    return table.groupby(["short_name", "category"], as_index=False)[["calls", "total_ns"]].sum()


def _operator_totals(profile: Profile) -> pd.DataFrame:
    """Return the calls and the self time of each operator."""
    names = {"name": "operator", "calls": "calls", "self_ns": "total_ns"}
    return operators(profile)[list(names)].rename(columns=names)
