"""Which kernels took how much time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import PLACE, Kinds, of_kind, percent, result
from tidyprof.analyses.selection import step_of_each
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
"""Columns of `kernels`, the same for every tool."""


def kernels(
    profile: Profile,
    *,
    include: Kinds = ("kernel", "collective"),
    per_device: bool = False,
    by_step: bool = False,
    mark: str | None = None,
) -> pd.DataFrame:
    """One row per kernel name, largest total first.

    name is the full name, short_name is distinct within the table, category is one of
    `names.CATEGORIES`. calls counts events; total_ns is the sum of their durations, so
    kernels that run at the same time both count. std_ns is the sample standard deviation,
    0 for a single call, as in rocprofv3. percent is the share of the table's total (0-100).
    include chooses the kinds (see profile.KINDS; ValueError for another). All ranks and devices are added up, unless
    per_device asks for rows per rank and device, with these two columns in front.

    by_step asks for rows per step, in order of steps, with the column `step` in front of all: the step that launched
    the kernel, or where no launch on a GPU was recorded the one in which it started; <NA> for what was launched
    outside of steps, as before the recording, and where none are marked. mark and errors are as in `steps`.
    """
    events = of_kind(profile, include)
    columns = {**({"step": "Int64"} if by_step else {}), **(PLACE if per_device else {})}
    if by_step:
        events = events.assign(step=step_of_each(profile, mark)[events.index])
    texts = categorical_of(events["name"])
    numbered = events[[*columns, "duration_ns"]].assign(name=texts.codes)
    grouped = numbered.groupby([*columns, "name"], dropna=False, sort=False)["duration_ns"]
    sums = {"calls": grouped.size(), "std_ns": grouped.std().fillna(0.0)}
    sums |= {f"{how}_ns": grouped.agg(how) for how in ("mean", "min", "max")} | {"total_ns": grouped.sum()}
    table = pd.DataFrame(sums).reset_index()
    used, first = np.unique(texts.codes, return_index=True)
    kinds = dict(zip(texts.categories[used].tolist(), events["kind"].array[first].tolist(), strict=True))
    names = texts.categories[table["name"]].tolist()
    short = unique_short_names(names)
    table = table.assign(
        name=names,
        short_name=[short[name] for name in names],
        category=[category(name, kinds[name]) for name in names],
        percent=percent(table["total_ns"], table["total_ns"].sum()),
    )
    total = table["total_ns"].tolist()
    table = table.take(sorted(range(len(table)), key=lambda row: (-total[row], names[row])))
    if by_step:
        table = table.sort_values("step", kind="stable")
    return result(table, columns | KERNEL_COLUMNS, profile)
