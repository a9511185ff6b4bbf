"""Two recordings side by side, kernel by kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from tidyprof.analyses.common import Kinds, kind_names, of_kind
from tidyprof.names.short_names import category, plain_name, short_name, unique_short_names
from tidyprof.tables.contract import Profile

COMPARISON_COLUMNS = {
    "short_name": "string",
    "category": "string",
    "calls_before": "int64",
    "calls_after": "int64",
    "total_ns_before": "int64",
    "total_ns_after": "int64",
    "difference_ns": "int64",
    "ratio": "float64",
}
"""Columns of `compare`."""


_MERGED = {"calls": "sum", "total_ns": "sum", "category": "first"}


def compare(before: Profile, after: Profile, *, include: Kinds = ("kernel", "collective")) -> pd.DataFrame:
    """One row per kernel of either recording, largest change of total time first.

    Kernels are matched by short name, because full names differ between versions in what does not matter
    (argument types, suffixes that tools add). Where a recording has several kernels of one short
    name, these are matched by full name, with distinct short names. difference_ns is after minus before;
    ratio is after / before, infinite for a new kernel and 0 for one that is gone. The totals are of the whole
    recordings: compare such with equal numbers of steps and ranks. attrs["origin"] names both origins
    where they differ. Raises ValueError for a kind to include that there is not.
    """
    include = kind_names(include)
    sides = {"before": _totals(before, include), "after": _totals(after, include)}
    names = _matched_names([side.index for side in sides.values()])
    joined = pd.concat(
        {side: totals.groupby(totals.index.map(names)).agg(_MERGED) for side, totals in sides.items()}, axis=1
    )
    table = pd.DataFrame(
        {
            "short_name": joined.index,
            "category": joined["before", "category"].combine_first(joined["after", "category"]).to_numpy(),
            **{
                f"{value}_{side}": joined[side, value].fillna(0).astype("int64").to_numpy()
                for value in ("calls", "total_ns")
                for side in ("before", "after")
            },
        }
    )
    table["difference_ns"] = table["total_ns_after"] - table["total_ns_before"]
    with np.errstate(divide="ignore", invalid="ignore"):
        table["ratio"] = table["total_ns_after"].to_numpy(float) / table["total_ns_before"].to_numpy(float)
    largest = table["difference_ns"].abs().sort_values(ascending=False, kind="stable").index
    table = table.loc[largest, list(COMPARISON_COLUMNS)].astype(COMPARISON_COLUMNS).reset_index(drop=True)
    same = before.origin == after.origin
    table.attrs["origin"] = before.origin if same else f"before {before.origin}; after {after.origin}"
    return table


def _matched_names(sides: list[pd.Index]) -> dict[str, str]:
    """Full name -> the name to match by: the short one where no recording uses it for several kernels."""
    ambiguous: set[str] = set()
    for side in sides:
        counts = Counter(short_name(name) for name in side)
        ambiguous |= {name for name, count in counts.items() if count > 1}
    distinct = unique_short_names(name for side in sides for name in side)
    return {full: distinct[full] if short_name(full) in ambiguous else short_name(full) for full in distinct}


def _totals(profile: Profile, include: list[str]) -> pd.DataFrame:
    """Calls, total and category per kernel name without what tools add to it."""
    events = of_kind(profile, include)
    names = events["name"].astype("category").cat
    plain = np.array([plain_name(str(name)) for name in names.categories], dtype=object)
    grouped = pd.DataFrame(
        {
            "name": plain[names.codes] if len(plain) else [],
            "kind": events["kind"].astype(str).to_numpy(),
            "duration": events["duration_ns"].to_numpy(),
        }
    ).groupby("name", sort=True)
    totals = grouped.agg(calls=("duration", "size"), total_ns=("duration", "sum"), kind=("kind", "first"))
    return totals.assign(category=[category(name, kind) for name, kind in totals["kind"].items()])
