"""GPU time per kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import COLUMNS, PLACE, Kinds, percent, plain_events, result
from tidyprof.names.short_names import category, unique_short_names
from tidyprof.tables.contract import Profile

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
    events, columns = plain_events(profile, include), PLACE if per_device else {}
    texts = events["name"]
    keys = {**{column: events[column] for column in columns}, "code": texts.codes}
    numbered = pd.DataFrame({**keys, "duration_ns": events["duration_ns"]})
    grouped = numbered.groupby([*keys], sort=False)["duration_ns"]
    table = grouped.agg(
        calls="size", total_ns="sum", mean_ns="mean", min_ns="min", max_ns="max", std_ns="std"
    )
    table = table.reset_index().fillna({"std_ns": 0.0})
    # Compute names once per distinct name because a table per device has more rows than names.
    used, first = np.unique(texts.codes, return_index=True)
    names, kinds = texts.categories[used].tolist(), events["kind"][first].tolist()
    short = unique_short_names(names)
    named = pd.DataFrame(
        {
            "name": names,
            "short_name": [short[name] for name in names],
            "category": [category(name, kind) for name, kind in zip(names, kinds, strict=True)],
        },
        index=used,
        dtype=object,
    )
    table = table.join(named, on="code")
    table["percent"] = percent(table["total_ns"], table["total_ns"].sum())
    order = np.lexsort((table["name"].tolist(), -table["total_ns"]))
    arrays = {name: column.to_numpy() for name, column in table.take(order).items()}
    return result(arrays, columns | COLUMNS["kernels"], profile)


def kernel_totals(profile: Profile) -> pd.DataFrame:
    """Return the names and totals from the table of `kernels`."""
    return kernels(profile)[["name", "short_name", "category", "calls", "total_ns"]]


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
