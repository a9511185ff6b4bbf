"""GPU time per kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import PLACE, Kinds, of_kind, percent, plain_events, result
from tidyprof.names.short_names import category, unique_short_names
from tidyprof.tables.contract import Profile, categorical_of

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
"""Columns of `kernels`, which are the same for all profilers."""

TOTALS = ("name", "short_name", "category", "calls", "total_ns")
"""Columns of `kernel_totals`."""

KERNEL_KINDS = ("kernel", "collective")
"""Kinds of events that `kernels` lists by default."""


def kernels(
    profile: Profile,
    *,
    include: Kinds = KERNEL_KINDS,
    per_device: bool = False,
) -> pd.DataFrame:
    """Return one row per kernel name. The kernel with the largest total time comes first.

    - `name`, `short_name`: the full name, and a short name that is unique within the table.
    - `category`: one of `short_names.CATEGORIES`.
    - `calls`: the number of events.
    - `total_ns`: the sum of the events' durations. Kernels that run at the same time are counted
      separately.
    - `std_ns`: the sample standard deviation of the durations, as in rocprofv3. For a single call,
      the deviation is 0.
    - `percent`: the kernel's share of the table's total time (0-100).

    `include` selects the event kinds (see `contract.KINDS`). With `per_device`, the table has
    separate rows for each device, and `rank` and `device` are the first columns. Otherwise, each
    row combines all ranks and devices. Raises ValueError for an unknown kind.

    >>> by_name = tidyprof.kernels(tidyprof.read("trace.json.gz"))
    >>> by_name[["short_name", "total_ns"]].to_dict("list")
    {'short_name': ['ncclDevKernel_Generic', 'GEMM NN fp32 MT64x64x32'], 'total_ns': [30000, 20001]}
    """
    events = of_kind(profile, include)
    columns = PLACE if per_device else {}
    texts = categorical_of(events["name"])
    numbered = events[[*columns, "duration_ns"]].assign(name=texts.codes)
    grouped = numbered.groupby([*columns, "name"], dropna=False, sort=False)["duration_ns"]
    sums = {
        "calls": grouped.size(),
        "std_ns": grouped.std().fillna(0.0),
        "mean_ns": grouped.mean(),
        "min_ns": grouped.min(),
        "max_ns": grouped.max(),
        "total_ns": grouped.sum(),
    }
    table = pd.DataFrame(sums).reset_index()
    # Compute names once per distinct name because a table per device has more rows than names.
    used, first = np.unique(texts.codes, return_index=True)
    named = _named(texts.categories[used].tolist(), events["kind"].array[first].tolist())
    rows = np.searchsorted(used, table["name"])
    table = table.assign(
        **{column: [values[row] for row in rows] for column, values in named.items()},
        percent=percent(table["total_ns"], table["total_ns"].sum()),
    )
    table = table.take(_largest_first(table["name"].tolist(), table["total_ns"].tolist()))
    return result(table, columns | KERNEL_COLUMNS, profile)


def kernel_totals(profile: Profile) -> pd.DataFrame:
    """Return only the columns `TOTALS` of the table from `kernels`. This takes a third of the
    time.
    """
    events = plain_events(profile, KERNEL_KINDS)
    texts = events["name"]
    used, first, number, calls = np.unique(
        texts.codes, return_index=True, return_inverse=True, return_counts=True
    )
    total = np.zeros(len(used), np.int64)
    np.add.at(total, number, events["duration_ns"])
    named = _named(texts.categories[used].tolist(), events["kind"][first].tolist())
    order = _largest_first(named["name"], total.tolist())
    table: dict[str, Any] = {
        column: [values[row] for row in order] for column, values in named.items()
    }
    table |= {"calls": calls[order], "total_ns": total[order]}
    return result(table, {column: KERNEL_COLUMNS[column] for column in TOTALS}, profile)


def _named(names: list[str], kinds: list[str]) -> dict[str, list[str]]:
    """Return the first columns of `kernels` for these distinct names and their kinds."""
    short = unique_short_names(names)
    categories = [category(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return {"name": names, "short_name": [short[name] for name in names], "category": categories}


def _largest_first(names: list[str], totals: list[int]) -> list[int]:
    return sorted(range(len(names)), key=lambda row: (-totals[row], names[row]))


def stated_kernels(profile: Profile) -> pd.DataFrame:
    """Return the kernel totals that the profiler itself computed (`meta["stats"]`). The totals
    combine all ranks and processes.

    The columns are `name`, `short_name`, `calls`, `total_ns` and `percent`. The largest total comes
    first. If the profiler computed no totals, the table is empty.
    """
    stats = profile.meta.get("stats", {}).get("kernel")
    if stats is None:
        return pd.DataFrame(columns=["name", "short_name", "calls", "total_ns", "percent"])
    table = stats.groupby("name", as_index=False)[["calls", "total_ns"]].sum()
    table = table.sort_values("total_ns", ascending=False, kind="stable")
    short = unique_short_names(table["name"].tolist())
    shares = percent(table["total_ns"], table["total_ns"].sum())
    return table.assign(short_name=table["name"].map(short), percent=shares)
