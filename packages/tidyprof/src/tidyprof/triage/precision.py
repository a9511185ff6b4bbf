"""Find the data type of a run's matrix products, and whether a smaller type would be faster."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from tidyprof.analyses.common import names_matching, plain_events, plain_host_events
from tidyprof.names.product_types import product_type
from tidyprof.names.short_names import category
from tidyprof.tables.contract import Profile
from tidyprof.triage.facts import Most, share_of
from tidyprof.triage.host_activity import outermost

MOST = 0.5
"""The share that a data type must exceed before the report mentions it."""

MATTERS = 0.1
"""The minimum share of the work in matrix products. Below this share, a faster data type hardly
helps.
"""

PRODUCTS = (
    r"aten::(add|b|badd|_scaled_)?mm|aten::addbmm|aten::convolution_backward"
    r"|aten::(cudnn|miopen|mkldnn)_convolution|aten::(_slow|thnn)_conv\w+"
)
"""Operators that multiply matrices directly, without calling another operator."""

_INPUT_TYPES = {
    "double": "float64",
    "float": "float32",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
}
"""Kineto's type names in the field `Input type` of a trace with shapes."""

_FAST_IN_16_BITS = re.compile(
    r"\bMI\d{3}|\bgfx(908|90a|94\d|95\d)"
    r"|\b(V100|GV100|T4|A\d+G?|L\d+S?|H\d+|B\d+|G[HB]\d+|RTX|TITAN (V|RTX))\b",
    re.IGNORECASE,
)
"""The names of AMD GPUs with matrix cores (MI100, CDNA, and newer) and of NVIDIA GPUs with tensor
cores (Volta and newer). Both are faster with 16-bit types.
"""


def precision_note(
    shares: Mapping[str, float], gpu: str, what: str = "time in matrix products"
) -> str:
    """Return a note if a smaller data type would be faster, otherwise an empty string. The note
    concerns float64 on any device, and float32 on GPUs that are faster with 16-bit types.

    - shares: the share (0 to 1) of each type in `what`. Parameter types show the types of matrix
      products only if the program doesn't use autocast.
    """
    double, single = shares.get("float64", 0.0), shares.get("float32", 0.0)
    if double > MOST:
        return (
            f"float64: {double:.0%} of the {what}. Use float32 or less unless you need"
            " float64. NumPy arrays are float64 by default."
        )
    if single > MOST and _FAST_IN_16_BITS.search(gpu):
        return (
            f"float32: {single:.0%} of the {what}. This GPU is faster in 16 bits, so try"
            " torch.autocast."
        )
    return ""


def kernels_type(profile: Profile) -> Most:
    """Return the data type of most matrix products, weighted by kernel time.

    If the file has no times, count kernels instead. The result is empty if no known type exceeds
    the share MOST, or if matrix products take less of the work than the share MATTERS.

    The kernel name has priority, because it shows TF32. If the name shows no type, the operator's
    input types determine the result. Input types don't count for convolutions on NVIDIA GPUs,
    because such convolutions may use TF32.
    """
    kernels = plain_events(profile, "kernel")
    linked = "operator" in profile.events.columns
    columns = {
        "name": kernels["name"],
        "operator": kernels["operator"] if linked else "",
        "duration_ns": kernels["duration_ns"],
    }
    grouped = pd.DataFrame(columns).groupby(["name", "operator"], observed=True, dropna=False)
    table = grouped["duration_ns"].agg(["sum", "count"]).reset_index()
    table["amount"] = table["sum"] if table["sum"].any() else table["count"]
    table["category"] = [category(str(name), "kernel") for name in table["name"]]
    products = table[table["category"].isin(["GEMM", "convolution"])]
    nvidia, inputs = profile.meta.get("backend") == "cuda", _input_types(profile)
    types = [
        product_type(str(row.name))
        or ("" if nvidia and row.category == "convolution" else inputs.get(row.operator, ""))
        for row in products.itertuples()
    ]
    return _largest(types, products["amount"].to_numpy(), float(table["amount"].sum()))


def operators_type(profile: Profile) -> Most:
    """Return the data type of most matrix products in a run without a GPU."""
    operators = plain_host_events(profile, "operator")
    products = operators[names_matching(operators, PRODUCTS)]
    inputs = _input_types(profile)
    types = [inputs.get(name, "") for name in products["name"]]
    return _largest(
        types, products["duration_ns"], float(outermost(operators)["duration_ns"].sum())
    )


def _largest(types: list[str], amounts: np.ndarray, work: float) -> Most:
    whole = float(amounts.sum())
    sums = pd.Series(amounts, dtype=float).groupby(np.array(types, object)).sum()
    sums = sums[sums.index != ""]
    if not len(sums) or whole < MATTERS * work or sums.max() <= MOST * whole:
        return Most()
    return Most(str(sums.idxmax()), share_of(float(sums.max()), whole))


def _input_types(profile: Profile) -> dict[str, str]:
    """Return the input type of each operator that is always called with the same type."""
    operators = plain_host_events(profile, "operator")
    if "input_types" not in profile.events.columns:
        return {}
    columns = {"name": operators["name"], "input_types": operators["input_types"]}
    pairs = pd.DataFrame(columns).drop_duplicates().dropna()
    types: dict[str, set[str]] = {}
    for name, text in pairs.itertuples(index=False):
        found = {_INPUT_TYPES.get(one, "") for one in re.findall(r'"([\w:]+)"', str(text))} - {""}
        types.setdefault(str(name), set()).update(found)
    return {name: next(iter(found)) for name, found in types.items() if len(found) == 1}
