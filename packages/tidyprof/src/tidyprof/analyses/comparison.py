"""A comparison of two profiles, kernel by kernel or operator by operator."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from tidyprof.analyses.common import COLUMNS, Kinds, host_events, kind_names, of_kind
from tidyprof.analyses.launches import launching_operators
from tidyprof.analyses.operators import operators
from tidyprof.names.short_names import category, plain_name, short_name, unique_short_names
from tidyprof.tables.contract import Profile

_SIDES = ("_before", "_after")

_OF_A_VENDOR = r"(aten::)_?(?:cudnn|miopen)_"


def compare(
    before: Profile,
    after: Profile,
    *,
    include: Kinds = ("kernel", "collective"),
    by: str = "kernel",
) -> pd.DataFrame:
    """Return one row per kernel that occurs in either profile. The row with the largest change in
    total time comes first.

    Kernels are matched by their short names, because full names differ between versions in
    irrelevant details, such as argument types and suffixes from profilers. If several kernels in
    one profile have the same short name, these kernels are matched by their full names and get
    distinct short names.

    `difference_ns` is the total of `after` minus the total of `before`. `ratio` is the total of
    `after` divided by the total of `before`. The ratio is infinite for a new kernel and 0 for a
    removed kernel. The totals cover the whole profiles, so compare only profiles with equal numbers
    of steps and ranks. If the origins differ, `attrs["origin"]` names both of them.

    With `by="operator"`, the table has one row for each PyTorch operator that launched GPU work of
    the included kinds. Work is assigned to the innermost operator that was running at the launch.
    Use this table to compare GPUs whose kernels have different names. `total_ns` is the kernels'
    time, and `calls` is the number of calls to the operator. Operators of cuDNN and MIOpen are
    matched under a common name. For example, `aten::miopen_convolution` is listed as
    `aten::convolution`. The row `<NA>`, with 0 calls, contains the work without a known operator,
    such as the work of a replayed graph. If `on_hosts_only` is True for the profiles, `total_ns` is
    the operators' self time.

    Raises ValueError for an unknown kind in `include` or an unknown `by`. With `by="operator"`,
    also raises ValueError if a profile doesn't link any work of these kinds to an operator. Only
    torch.profiler with CPU activities and rpd with `emit_nvtx` record these links.

    >>> before = tidyprof.read("trace.json.gz")
    >>> tidyprof.compare(before, before)[["difference_ns", "ratio"]].values.tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    include = kind_names(include)
    if by not in ("kernel", "operator"):
        raise ValueError(f"by must be kernel or operator, not {by!r}")
    sides = {"before": before, "after": after}
    if by == "kernel":
        totals = _kernel_totals(before, after, include)
    elif on_hosts_only(before, after, include=include):
        names = {"name": "operator", "calls": "calls", "self_ns": "total_ns"}
        totals = [operators(one)[list(names)].rename(columns=names) for one in sides.values()]
    else:
        totals = [_operator_totals(one, include, side) for side, one in sides.items()]
    table = totals[0].merge(totals[1], on=totals[0].columns[0], how="outer", suffixes=_SIDES)
    numbers = [f"{value}{side}" for value in ("calls", "total_ns") for side in _SIDES]
    # If a row is missing from one profile, its values for that profile are 0.
    table = table.fillna(dict.fromkeys(numbers, 0))
    if by == "kernel":
        table["category"] = table["category_before"].combine_first(table["category_after"])
    old, new = table["total_ns_before"], table["total_ns_after"]
    table["difference_ns"] = new - old
    with np.errstate(divide="ignore", invalid="ignore"):
        table["ratio"] = new.to_numpy(float) / old.to_numpy(float)
    largest = table["difference_ns"].abs().sort_values(ascending=False, kind="stable").index
    columns = COLUMNS[f"{by}_comparison"]
    table = table.loc[largest, list(columns)].reset_index(drop=True).astype(columns)
    is_same = before.origin == after.origin
    table.attrs["origin"] = (
        before.origin if is_same else f"before {before.origin}; after {after.origin}"
    )
    return table


def on_hosts_only(
    before: Profile, after: Profile, *, include: Kinds = ("kernel", "collective")
) -> bool:
    """Return True if both profiles contain operators and neither profile contains GPU work of these
    kinds.

    This is the case for profiles of CPU-only runs.
    """
    sides = (before, after)
    return all(
        len(host_events(one, "operator")) and not len(of_kind(one, include)) for one in sides
    )


def _kernel_totals(before: Profile, after: Profile, include: list[str]) -> list[pd.DataFrame]:
    """Return the calls, the total and the category of each kernel in the two profiles.

    The name for matching is the short name without suffixes from profilers. If one of the profiles
    uses the short name for several kernels, the full name is used instead.
    """
    sides = [_totals(profile, include) for profile in (before, after)]
    ambiguous: set[str] = set()
    for side in sides:
        counts = Counter(map(short_name, side.index))
        ambiguous |= {name for name, count in counts.items() if count > 1}
    distinct = unique_short_names(name for side in sides for name in side.index)
    names = {
        full: unique if short_name(full) in ambiguous else short_name(full)
        for full, unique in distinct.items()
    }
    merged = {"calls": "sum", "total_ns": "sum", "category": "first"}
    return [
        side.groupby(side.index.map(names)).agg(merged).rename_axis("short_name").reset_index()
        for side in sides
    ]


def _operator_totals(profile: Profile, include: list[str], side: str) -> pd.DataFrame:
    """Return a table of all operators with their numbers of calls and the total time of the work
    that they launched.

    Raises ValueError if no operator is known.
    """
    work = of_kind(profile, include)
    names = launching_operators(profile).reindex(work.index)
    if not names.notna().any():
        raise ValueError(
            f"the profile `{side}` doesn't contain the operators that launched its GPU work; record"
            " it with torch.profiler and ProfilerActivity.CPU, or compare kernels"
        )
    totals = work["duration_ns"].groupby(names, dropna=False).sum()
    calls = host_events(profile, "operator")["name"].astype("string").value_counts()
    table = pd.DataFrame(
        {"operator": totals.index, "calls": totals.index.map(calls), "total_ns": totals.to_numpy()}
    )
    table["operator"] = table["operator"].str.replace(_OF_A_VENDOR, r"\1", regex=True)
    return table.groupby("operator", dropna=False).sum().reset_index()


def _totals(profile: Profile, include: list[str]) -> pd.DataFrame:
    """Return the calls, the total and the category for each kernel name. Suffixes from profilers
    are removed from the names.
    """
    events = of_kind(profile, include)
    names = events["name"].astype("category").cat
    plain = np.array([plain_name(str(name)) for name in names.categories], dtype=object)
    grouped = pd.DataFrame(
        {
            "name": plain[names.codes] if len(plain) else [],
            "kind": events["kind"].astype(str).to_numpy(),
            "duration": events["duration_ns"].to_numpy(),
        }
    ).groupby("name")
    totals = grouped.agg(
        calls=("duration", "size"), total_ns=("duration", "sum"), kind=("kind", "first")
    )
    return totals.assign(category=[category(name, kind) for name, kind in totals["kind"].items()])
