"""How fast matrix products ran, from the shapes that torch.profiler records."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import host_events, names_matching, result, start_and_end
from tidyprof.analyses.launches import launched_ns
from tidyprof.analyses.operators import require_shapes
from tidyprof.tables.contract import Profile
from tidyprof.tables.launches import callers

FIRST_FACTOR = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::linear": 0,
    "aten::_int_mm": 0,
    "aten::_scaled_mm": 0,
    "aten::_scaled_mm_v2": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
}
"""Operators that multiply matrices -> place of the left factor among their inputs; the right one
follows.

Source: aten/src/ATen/native/native_functions.yaml of https://github.com/pytorch/pytorch. The weight
of `linear`, [n, k], is transposed. Products of groups of unequal size and convolutions are not
among them.
"""

PRODUCT_COLUMNS = {
    "operator": "string",
    "dtype": "string",
    "batch": "Int64",
    "m": "Int64",
    "n": "Int64",
    "k": "Int64",
    "calls": "int64",
    "launched": "int64",
    "device_ns": "int64",
    "flops": "Float64",
    "flops_per_second": "Float64",
}
"""Columns of `matrix_products`."""

_SIZES = ("batch", "m", "n", "k")
_KEYS = ["operator", "dtype", *_SIZES]


def matrix_products(profile: Profile) -> pd.DataFrame:
    """One row per operator of FIRST_FACTOR, type and sizes, largest device_ns first.

    A call multiplies `batch` times an m x k with a k x n matrix; dtype is the left one's, as in the
    file. flops are the floating-point operations of all calls, 2 m n k batch for each: a
    multiplication and an addition, without what is added or scaled afterwards, as the BLAS count it
    (https://www.netlib.org/lapack/lawnspdf/lawn41.pdf). device_ns adds the durations of the work on
    a GPU that the calls launched on their threads, with fills and conversions; launched counts the
    calls of which there is any, and only their flops make flops_per_second, over device_ns: <NA>
    where there are none, as on a CPU or in the replay of a graph. What has no shapes in the file
    keeps its row with <NA>. Of products that call others, as `linear` calls `addmm`, the inner ones
    count. All ranks together. Raises ValueError for a profile without shapes.
    """
    calls = host_events(profile, "operator")
    require_shapes(calls)
    calls = _innermost(calls[names_matching(calls, "|".join(FIRST_FACTOR))])
    read = ["name", "input_shapes", "input_types"]
    texts = calls.reindex(columns=read).astype("string")
    device_ns = launched_ns(profile, calls)
    counts = {"calls": 1, "launched": (device_ns > 0).astype(np.int64), "device_ns": device_ns}
    table = texts.assign(**counts).groupby(read, dropna=False, sort=False).sum().reset_index()
    found = [_product(*row) for row in table[read].itertuples(index=False)]
    keys = pd.DataFrame(found, columns=_KEYS, index=table.index).astype(
        {key: PRODUCT_COLUMNS[key] for key in _KEYS}
    )
    table = (
        pd.concat([keys, table[list(counts)]], axis=1)
        .groupby(_KEYS, dropna=False)
        .sum()
        .reset_index()
    )
    each = 2 * table[list(_SIZES)].astype("Float64").prod(axis=1, skipna=False)
    table["flops"] = each * table["calls"]
    table["flops_per_second"] = (
        1e9 * each * table["launched"] / table["device_ns"].astype("Float64").replace(0, pd.NA)
    )
    return result(
        table.sort_values("device_ns", ascending=False, kind="stable"), PRODUCT_COLUMNS, profile
    )


def _innermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Those calls in which no other one of them began."""
    thread = (
        calls.groupby(["rank", "process", "thread"], dropna=False, sort=False).ngroup().to_numpy()
    )
    order, caller = callers(*start_and_end(calls), thread)
    return calls.drop(calls.index[order[np.unique(caller[caller >= 0])]])


def _product(name: str, shapes: Any, types: Any) -> tuple[Any, ...]:
    """Values of _KEYS for an operator with these inputs; None for what the texts do not say."""
    first = FIRST_FACTOR[name]
    try:
        left, right = json.loads(shapes)[first : first + 2]
        *batch, m, k = left
        n = right[-2] if name == "aten::linear" else right[-1]
        if name == "aten::linear":
            batch, m = [], math.prod([*batch, m])
        sizes = (math.prod(batch), m, n, k)
    except (TypeError, ValueError, IndexError):
        sizes = (None,) * len(_SIZES)
    try:
        dtype = json.loads(types)[first] or None
    except (TypeError, ValueError, IndexError):
        dtype = None
    return name, dtype, *sizes
