"""A comparison of two profiles, kernel by kernel or operator by operator."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import COLUMNS, Kinds, host_events, of_kind
from tidyprof.analyses.kernels import KERNEL_KINDS, kernels
from tidyprof.analyses.operators import operators
from tidyprof.names.short_names import short_name
from tidyprof.tables.contract import Profile

_SIDES = ("_before", "_after")

_OF_A_VENDOR = r"(aten::)_?(?:cudnn|miopen)_"


def compare(before: Profile, after: Profile, *, by: str = "kernel") -> pd.DataFrame:
    """Return one row per kernel that occurs in either profile. The row with the largest change in
    total time comes first.

    Kernels are matched by their short names, because full names differ between versions in
    irrelevant details, such as argument types and suffixes from profilers. Kernels with the same
    short name are added up.

    `difference_ns` is the total of `after` minus the total of `before`. `ratio` is the total of
    `after` divided by the total of `before`. The ratio is infinite for a new kernel and 0 for a
    removed kernel. The totals cover the whole profiles, so compare only profiles with equal numbers
    of steps and ranks. If the origins differ, `attrs["origin"]` names both of them.

    With `by="operator"`, the table has one row for each PyTorch operator that launched kernels
    (column `operator` of the events). Use this table to compare GPUs whose kernels have different
    names. `total_ns` is the kernels' time, and `calls` is the number of kernels. Operators of cuDNN
    and MIOpen are matched under a common name. For example, `aten::miopen_convolution` is listed as
    `aten::convolution`. The row `<NA>` contains the work without a known operator, such as the work
    of a replayed graph. If `on_hosts_only` is True for the profiles, `total_ns` is the operators'
    self time, and `calls` is the number of calls.

    Raises ValueError for an unknown `by`. With `by="operator"`, also raises ValueError if a profile
    doesn't link any kernel to an operator. torch.profiler with CPU activities records these links.

    >>> before = tidyprof.read("trace.json.gz")
    >>> tidyprof.compare(before, before)[["difference_ns", "ratio"]].values.tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    if by == "kernel":
        totals = [_kernel_totals(profile) for profile in (before, after)]
    elif by != "operator":
        raise ValueError(f"by must be kernel or operator, not {by!r}")
    elif on_hosts_only(before, after):
        names = {"name": "operator", "calls": "calls", "self_ns": "total_ns"}
        totals = [operators(one)[list(names)].rename(columns=names) for one in (before, after)]
    else:
        totals = [_operator_totals(profile) for profile in (before, after)]
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
    columns = COLUMNS[f"{by}_comparison"]
    table = table[list(columns)].reset_index(drop=True).astype(columns)
    is_same = before.origin == after.origin
    table.attrs["origin"] = (
        before.origin if is_same else f"before {before.origin}; after {after.origin}"
    )
    return table


def on_hosts_only(before: Profile, after: Profile, *, include: Kinds = KERNEL_KINDS) -> bool:
    """Return True if both profiles contain operators and neither profile contains GPU work of these
    kinds.

    This is the case for profiles of CPU-only runs.
    """
    sides = (before, after)
    return all(
        len(host_events(one, "operator")) and not len(of_kind(one, include)) for one in sides
    )


def _kernel_totals(profile: Profile) -> pd.DataFrame:
    """Return the calls and the total of each kernel, by short name and category."""
    table = kernels(profile)
    table["short_name"] = table["name"].map(short_name).astype("string")
    return table.groupby(["short_name", "category"], as_index=False)[["calls", "total_ns"]].sum()


def _operator_totals(profile: Profile) -> pd.DataFrame:
    """Return the number and the total time of the kernels that each operator launched.

    Raises ValueError if no operator is known.
    """
    work = of_kind(profile, KERNEL_KINDS)
    names = work["operator"].astype("string") if "operator" in work else pd.Series(dtype="string")
    if not names.notna().any():
        raise ValueError(
            "the operators that launched the kernels aren't in the file; record it with"
            " torch.profiler and ProfilerActivity.CPU, or compare kernels"
        )
    names = names.str.replace(_OF_A_VENDOR, r"\1", regex=True).rename("operator")
    grouped = work["duration_ns"].groupby(names, dropna=False)
    return grouped.agg(calls="size", total_ns="sum").reset_index()
