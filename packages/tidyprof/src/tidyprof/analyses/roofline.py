"""Roofline model of the kernels: operations, bytes, arithmetic intensity and ceilings."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.analyses.counter_formulas import (
    DURATION,
    DispatchCounters,
    fabric_reads,
    fabric_writes,
    holds_metrics,
    matrix_operations,
    vector_operations,
)
from tidyprof.analyses.gpu_peaks import (
    L1_ACCESS_BYTES,
    LDS_BYTES,
    VECTOR_RATE,
    Architecture,
    Model,
    architecture_of,
    memory_bandwidth,
    model_of,
)
from tidyprof.names.short_names import unique_short_names
from tidyprof.tables.contract import Profile

_VECTOR_TYPES = {"vector fp16": "F16", "vector fp32": "F32", "vector fp64": "F64"}
_MATRIX_TYPES = {
    f"matrix {name}": name for name in ("fp8", "bf16", "fp16", "fp32", "fp64", "fp6/fp4")
}
_INTEGER_TYPE = "matrix int8"

OPERATION_TYPES = (*_VECTOR_TYPES, *_MATRIX_TYPES)
"""Types of floating-point operations, each with a unit and a data type."""

LEVELS = ("hbm", "l2", "l1", "lds")
"""Memory levels, starting with the level that is farthest from the compute units. `hbm` is the
traffic between L2 and the fabric. On MI300 and later GPUs, the Infinity Cache is behind the fabric,
so less traffic may reach the memory.
"""


def column_of(operations: str) -> str:
    """Return the name of the column that counts operations of a type. For `matrix fp16`, the name
    is `matrix_fp16_flops`.
    """
    name = operations.replace(" ", "_").replace("/", "_")
    return f"{name}_ops" if operations == _INTEGER_TYPE else f"{name}_flops"


ROOFLINE_COLUMNS = {
    "name": "string",
    "short_name": "string",
    "calls": "int64",
    "duration_ns": "Float64",
    "flops": "Float64",
    **{column_of(operations): "Float64" for operations in (*OPERATION_TYPES, _INTEGER_TYPE)},
    **{f"{level}_bytes": "Float64" for level in LEVELS},
    **{f"{level}_intensity": "Float64" for level in LEVELS},
    "flops_per_second": "Float64",
    "main_type": "string",
    "missing": "string",
}
"""Columns of `roofline_points`."""

CEILING_COLUMNS = {"name": "string", "kind": "string", "value": "float64", "unit": "string"}
"""Columns of `roofline_ceilings`."""

_BANDWIDTH = re.compile(r"(HBM|MALL|L2|L1|LDS)Bw")
_RATE = re.compile(
    r"(MFMA)?(?:F|FP)(4|6|8|16|32|64)Flops|(MFMA)?(BF16)Flops|(MFMA)?(I8|I32|I64)Ops"
)


def roofline_points(profile: Profile) -> pd.DataFrame:
    """Return one row per kernel with its operations, bytes and rates. The kernel with the longest
    total duration comes first.

    - `flops`: the floating-point operations of all calls, for the types that were counted.
      `matrix_int8_ops` isn't included.
    - `vector_*` and `matrix_*`: the operations of each type. Only the types that were counted have
      values in these columns.
    - `*_bytes`: the number of bytes that were moved at each memory level (see `LEVELS`).
    - `*_intensity`: the number of floating-point operations per byte.
    - `flops_per_second`: the value of `flops` divided by the sum of the durations.
    - `main_type`: the type with the most floating-point operations.

    The values cover the dispatches that have all operation counters. If a kernel has no such
    dispatch, the values cover all of its dispatches. Values that can't be computed are `<NA>`. For
    these values, `missing` lists the counters that each dispatch would need.

    An analysis database doesn't contain operations by type. In this case, the bytes are derived
    from the profiler's intensities if the intensities are reliable.

    The byte formulas follow rocprof-compute's tables. For the vector L1, whole cache lines are
    counted. The bytes between L1 and L2 follow the table "16.3 L1-L2 BW", in which a read transfers
    one line, and a write or an atomic transfers 64 B. The bytes on the fabric follow "L2-Fabric
    Read BW" and "Write BW". The bytes in the local data share follow "Theoretical LDS Bandwidth".
    The formulas are in `counter_formulas`.

    `table.attrs["above_roof"]` contains a sentence for each point above a ceiling of
    `roofline_ceilings`. Raises ValueError if the profile has no sysinfo or an unknown architecture.
    """
    architecture = architecture_of(profile)
    is_database = holds_metrics(profile)
    rows = list(
        _points_of_database(profile) if is_database else _points_of_counters(profile, architecture)
    )
    short = unique_short_names(row["name"] for row in rows)
    rows.sort(key=lambda row: (-(row["duration_ns"] or 0), row["name"]))
    table = result(
        [row | {"short_name": short[row["name"]]} for row in rows], ROOFLINE_COLUMNS, profile
    )
    table.attrs["above_roof"] = list(_above(table, profile))
    return table


def roof_shares(point: Mapping[str, Any], roofs: Mapping[str, float]) -> dict[str, float]:
    """Return which share of each known ceiling a row of `roofline_points` reaches. A share of 1
    means that the row reaches the ceiling.

    The ceilings are the bandwidths of the row's memory levels and the rate of its main type.

    - roofs: the value of each ceiling of `roofline_ceilings`, by name.
    """
    amounts = {level.upper(): point[f"{level}_bytes"] for level in LEVELS}
    if not pd.isna(point["main_type"]):
        amounts[point["main_type"]] = point[column_of(point["main_type"])]
    known = {
        name: amount for name, amount in amounts.items() if name in roofs and not pd.isna(amount)
    }
    return {
        name: float(1e9 * amount / point["duration_ns"] / roofs[name])
        for name, amount in known.items()
    }


def l1_shares_by_access_bytes(profile: Profile, shares: Mapping[str, float]) -> dict[str, float]:
    """Return the same shares, but compare L1 with the bytes that its accesses can return.

    In contrast, `roofline_points` counts whole cache lines for L1.
    """
    part = L1_ACCESS_BYTES / architecture_of(profile).l1_line_bytes
    return {
        name: share * part if name == "L1" and _is_measured(profile) else share
        for name, share in shares.items()
    }


def _is_measured(profile: Profile) -> bool:
    """Return True if the ceilings were measured by a benchmark.

    A benchmark counts the bytes that arrive. In contrast, published peaks and `roofline_points`
    count whole lines.
    """
    return bool(profile.meta.get("roofline")) and profile.origin.kind != "modeled"


_ABOVE = {
    "HBM": "the Infinity Cache serves part of the traffic before it reaches the memory",
    "L1": "l1_bytes counts whole cache lines, but an access returns at most 64 B",
}
"""Possible reasons why a point is above a ceiling."""


def _above(table: pd.DataFrame, profile: Profile) -> Iterator[str]:
    """Yield a sentence for each point above a ceiling. If no ceilings are known, yield nothing."""
    try:
        roofs = roofline_ceilings(profile).set_index("name")["value"].to_dict()
    except ValueError:
        return
    for point in table[table["duration_ns"] > 0].to_dict("records"):
        for name, share in roof_shares(point, roofs).items():
            if share > 1:
                cause = _ABOVE.get(name, "the ceiling is for a different clock or a different run")
                yield (
                    f"{point['short_name']} reaches {share:.2f} times the {name} ceiling. Likely"
                    f" cause: {cause}."
                )


def _quantities(architecture: Architecture, banks: float) -> Mapping[str, Mapping[str, float]]:
    """Return the weight of each counter for each counted quantity (a column)."""
    found = {column_of(name): vector_operations(code) for name, code in _VECTOR_TYPES.items()}
    matrix = _MATRIX_TYPES | {_INTEGER_TYPE: "int8"}
    found |= {
        column_of(n): matrix_operations(code)
        for n, code in matrix.items()
        if code in architecture.matrix
    }
    to_l2 = {
        f"TCP_TCC_{kind}_REQ_sum": 64.0
        for kind in ("WRITE", "ATOMIC_WITH_RET", "ATOMIC_WITHOUT_RET")
    }
    return found | {
        "hbm_bytes": {**fabric_reads(architecture), **fabric_writes(architecture)},
        "l2_bytes": {"TCP_TCC_READ_REQ_sum": float(architecture.l2_read_bytes), **to_l2},
        "l1_bytes": {"TCP_TOTAL_CACHE_ACCESSES_sum": float(architecture.l1_line_bytes)},
        "lds_bytes": {"SQ_LDS_IDX_ACTIVE": banks, "SQ_LDS_BANK_CONFLICT": -banks},
    }


def _points_of_counters(profile: Profile, architecture: Architecture) -> Iterator[dict[str, Any]]:
    banks = 4.0 * profile.meta["sysinfo"].get("lds_banks_per_cu", 32)
    quantities = _quantities(architecture, banks)
    counters = DispatchCounters(
        profile, {name for weights in quantities.values() for name in weights}
    )
    lacking = {name: counters.missing(weights) for name, weights in quantities.items()}
    # Releases before ROCm 6.4.2 don't count FP8, so the sum leaves out a counter that no dispatch
    # has.
    types = [column_of(name) for name in OPERATION_TYPES if column_of(name) in quantities]
    counted = [name for name in types if not lacking[name]]
    table = counters.frame[["kernel", DURATION]].copy()
    for name, weights in quantities.items():
        if not lacking[name]:
            table[name] = counters.weighted_sum(weights)
    never = list(dict.fromkeys(name for names in lacking.values() for name in names))
    lacked = _uncounted(
        counters, [name for weights in quantities.values() for name in weights if name not in never]
    )
    for kernel, group in table.groupby("kernel", sort=False):
        complete = group[group[counted].notna().all(axis=1)]
        chosen = complete if len(complete) else group
        missing = ", ".join([*never, *lacked.columns[lacked.loc[chosen.index].any()]]) or None
        row = {"name": str(kernel), "calls": len(chosen), "missing": missing}
        row |= {
            name: float(chosen[name].sum())
            for name in chosen.columns[2:]
            if chosen[name].notna().all()
        }
        row["duration_ns"] = (
            float(chosen[DURATION].sum()) if chosen[DURATION].notna().all() else None
        )
        yield row | (_derived(row, counted) if len(complete) else {})


def _uncounted(counters: DispatchCounters, names: Iterable[str]) -> pd.DataFrame:
    """Return one bool column per counter that shows which dispatches lack the counter.

    The rows correspond to the rows of `counters.frame`.
    """
    return pd.DataFrame(
        {name: np.isnan(counters.column(name)) for name in names}, index=counters.frame.index
    )


def _derived(row: Mapping[str, Any], counted: list[str]) -> dict[str, Any]:
    """Return the total operations, the intensities and the rate of a row, based on its operations
    and bytes.
    """
    if not counted:
        return {}
    flops = sum(row[name] for name in counted)
    found: dict[str, Any] = {"flops": flops}
    for level in LEVELS:
        moved = row.get(f"{level}_bytes")
        if moved:
            found[f"{level}_intensity"] = flops / moved
    if row["duration_ns"]:
        found["flops_per_second"] = flops / row["duration_ns"] * 1e9
    if flops:
        largest = max(counted, key=lambda name: row[name])
        found["main_type"] = next(name for name in OPERATION_TYPES if column_of(name) == largest)
    return found


def _points_of_database(profile: Profile) -> Iterator[dict[str, Any]]:
    durations = profile.events.groupby(profile.events["name"].astype(object))["duration_ns"]
    total, calls = durations.sum(), durations.size()
    rates = {entry["kernel"]: entry for entry in profile.meta.get("kernel_rates", [])}
    # A database contains rates but no counts. Compute flops as rate times duration (GFLOP/s times
    # ns), and bytes as flops divided by intensity.
    for kernel in total.index:
        rate = rates.get(kernel, {})
        row: dict[str, Any] = {
            "name": kernel,
            "calls": int(calls[kernel]),
            "duration_ns": float(total[kernel]),
        }
        missing = ["operations by type"]
        if "gflops_per_second" in rate:
            row["flops_per_second"] = rate["gflops_per_second"] * 1e9
            row["flops"] = rate["gflops_per_second"] * row["duration_ns"]
        else:
            missing.append("FLOP rate")
        for level in ("hbm", "l2", "l1"):
            intensity = rate.get(f"{level}_intensity")
            if intensity and row.get("flops"):
                row[f"{level}_intensity"] = intensity
                row[f"{level}_bytes"] = row["flops"] / intensity
            else:
                missing.append(f"{level} bytes")
        yield row | {"missing": ", ".join(missing)}


def roofline_ceilings(profile: Profile) -> pd.DataFrame:
    """Return the GPU's peak rates. Rows of the kind `bandwidth` are in B/s. Rows of the kind
    `compute` are in FLOP/s, or in OP/s for integers.

    If the profile contains roofline.csv, the rates are the results of rocprof-compute's benchmark.
    If the file covers several devices, the median is used. Without roofline.csv, the rates are the
    published rates per compute unit and clock cycle, multiplied by the clock. The clock comes from
    sysinfo or from the product's published data. `table.attrs["ceilings"]` contains the source of
    the rates.

    For GPUs with packed instructions, the published vector FP32 rate assumes these instructions.
    Raises ValueError if neither source is available.
    """
    measured = profile.meta.get("roofline")
    if measured and profile.origin.kind == "modeled":
        rows, source = _measured(measured), "peaks that the model uses"
    elif measured:
        rows, source = _measured(measured), "measured by rocprof-compute's benchmark"
        source += (
            f", median of {len(measured)} devices" if len(measured) > 1 else " in the same profile"
        )
    else:
        sysinfo = profile.meta.get("sysinfo", {})
        rows, source = _published(architecture_of(profile), sysinfo, model_of(sysinfo))
    if not rows:
        raise ValueError(
            "no ceilings are known: the profile has no roofline.csv, and its sysinfo lacks the"
            " clock or the number of compute units"
        )
    table = result(rows, CEILING_COLUMNS, profile)
    table.attrs["ceilings"] = source
    return table


def _measured(devices: list[dict[str, float]]) -> list[dict[str, Any]]:
    rows = []
    for column in dict.fromkeys(name for device in devices for name in device):
        value = statistics.median(device[column] for device in devices if column in device) * 1e9
        bandwidth = _BANDWIDTH.fullmatch(column)
        if bandwidth:
            name = "Infinity Cache" if bandwidth[1] == "MALL" else bandwidth[1]
            rows.append({"name": name, "kind": "bandwidth", "value": value, "unit": "B/s"})
        elif _RATE.fullmatch(column):
            name = _rate_name(column)
            unit = "OP/s" if " int" in name else "FLOP/s"
            rows.append({"name": name, "kind": "compute", "value": value, "unit": unit})
    return rows


def _rate_name(column: str) -> str:
    """Return the display name of a rate. For example, `MFMAF16Flops` becomes `matrix fp16`, and
    `I8Ops` becomes `vector int8`.
    """
    unit = "matrix" if column.startswith("MFMA") else "vector"
    kind = column.removeprefix("MFMA").removesuffix("Flops").removesuffix("Ops").lower()
    if kind.startswith("bf"):
        return f"{unit} {kind}"
    letters = "int" if kind.startswith("i") else "fp"
    return f"{unit} {letters}{kind.lstrip('fpi')}"


def _published(
    architecture: Architecture, sysinfo: Mapping[str, Any], model: Model | None
) -> tuple[list[dict[str, Any]], str]:
    """Return the ceilings from rates per compute unit and clock cycle, and a description of the
    ceilings.
    """
    clock = sysinfo.get("max_sclk", model.clock_mhz if model else None)
    units = sysinfo.get("cu_per_gpu")
    bandwidth = memory_bandwidth(sysinfo) or (model.memory_gb_per_second if model else None)
    rows = [] if bandwidth is None else [_row("HBM", "bandwidth", bandwidth * 1e9, "B/s")]
    if clock is None or units is None:
        return rows, "published peak of the memory, not measured"
    clocks_per_second = clock * 1e6
    unit_clocks = units * clocks_per_second
    if "total_l2_chan" in sysinfo:
        per_clock = architecture.l2_channel_bytes * sysinfo["total_l2_chan"]
        rows.append(_row("L2", "bandwidth", per_clock * clocks_per_second, "B/s"))
    rows.append(_row("L1", "bandwidth", architecture.l1_line_bytes * unit_clocks, "B/s"))
    rows.append(_row("LDS", "bandwidth", LDS_BYTES * unit_clocks, "B/s"))
    rows.append(_row("vector fp32", "compute", architecture.vector_fp32 * unit_clocks, "FLOP/s"))
    rows.append(_row("vector fp64", "compute", VECTOR_RATE * unit_clocks, "FLOP/s"))
    for name, rate in architecture.matrix.items():
        unit = "OP/s" if name == "int8" else "FLOP/s"
        rows.append(_row(f"matrix {name}", "compute", rate * unit_clocks, unit))
    return rows, f"published peaks of {units} compute units at {clock} MHz, not measured"


def _row(name: str, kind: str, value: float, unit: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "value": float(value), "unit": unit}
