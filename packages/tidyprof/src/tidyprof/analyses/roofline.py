"""Where kernels lie under the roofs of the GPU: operations, bytes, arithmetic intensity,
ceilings.
"""

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
"""Types by which floating-point operations are counted: unit and data type."""

LEVELS = ("hbm", "l2", "l1", "lds")
"""Memory levels, from far to near. `hbm` is the traffic between L2 and the fabric: on MI300 and
later the Infinity Cache lies behind it, so that less may reach the memory.
"""


def column_of(operations: str) -> str:
    """The column that counts operations of a type: `matrix fp16` -> `matrix_fp16_flops`."""
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
    """One row per kernel, the longest in total first: what it computed, what it moved, and how
    fast.

    flops adds up the floating-point operations of all calls, of the types that were counted; the
    columns by type say which (`vector` and `matrix` units; matrix_int8_ops are not among flops);
    *_bytes is what was moved at each memory level (see LEVELS), *_intensity is flops per byte,
    flops_per_second is flops by the sum of durations, main_type is the type with the most flops.
    All figures are of the dispatches that have all counters of operations, or, for a kernel without
    such a dispatch, of all its dispatches. What cannot be computed is <NA>, and `missing` names the
    counters that each of these dispatches would have to have.

    In an analysis database operations by type are not known, and bytes follow from the tool's
    intensities, where they can be trusted.

    Bytes: vector L1 looks up whole lines; L1 to L2 as in the tool's table "16.3 L1-L2 BW" (reads of
    a line, writes and atomics of 64 B); fabric as in "L2-Fabric Read BW" and "Write BW"; local data
    share as in "Theoretical LDS Bandwidth". Formulas: see counter_formulas.
    `table.attrs["above_roof"]` has a sentence for each point that lies above a roof of
    `roofline_ceilings`. Raises ValueError for a profile without sysinfo or of an unknown
    architecture.
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
    """What a row of `roofline_points` reaches of each known roof (1 is the roof): of the roofs of
    its bytes, and of that of its main type's flops.

    roofs -- name -> value of `roofline_ceilings`.
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
    """The same shares, but that of L1 by the bytes that its accesses hand out at most, and not by
    whole lines.
    """
    part = L1_ACCESS_BYTES / architecture_of(profile).l1_line_bytes
    return {
        name: share * part if name == "L1" and _is_measured(profile) else share
        for name, share in shares.items()
    }


def _is_measured(profile: Profile) -> bool:
    """Whether a benchmark found the roofs. It counts the bytes that arrive; published peaks count
    whole lines, as `roofline_points` does.
    """
    return bool(profile.meta.get("roofline")) and profile.origin.kind != "modeled"


_ABOVE = {
    "HBM": "the Infinity Cache before the memory answers, too",
    "L1": "l1_bytes are of whole lines, and an access hands out 64 B at most",
}
"""Why a point may lie above a roof."""


def _above(table: pd.DataFrame, profile: Profile) -> Iterator[str]:
    """A sentence for each point above a roof; no sentence where no roofs are known."""
    try:
        roofs = roofline_ceilings(profile).set_index("name")["value"].to_dict()
    except ValueError:
        return
    for point in table[table["duration_ns"] > 0].to_dict("records"):
        for name, share in roof_shares(point, roofs).items():
            if share > 1:
                cause = _ABOVE.get(name, "the clock or the run was another one than the roof's")
                yield (
                    f"{point['short_name']} lies at {share:.2f} times the roof of {name}; likely"
                    f" cause: {cause}."
                )


def _quantities(architecture: Architecture, banks: float) -> Mapping[str, Mapping[str, float]]:
    """What is counted: column -> counter -> weight."""
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
    # Releases before ROCm 6.4.2 count no FP8: a counter that no dispatch has is no reason to give
    # up the sum.
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
    """For each dispatch, row by row as in `counters.frame`, which of the counters it lacks: a bool
    column for each counter.
    """
    return pd.DataFrame(
        {name: np.isnan(counters.column(name)) for name in names}, index=counters.frame.index
    )


def _derived(row: Mapping[str, Any], counted: list[str]) -> dict[str, Any]:
    """Sum of operations, intensities and rate of a row with operations and bytes."""
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
    # A database has rates and no counts: flops are rate times duration (GFLOP/s times ns), and
    # bytes are flops over intensity.
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
    """The peak rates of the GPU: rows of kind `bandwidth` (B/s) and `compute` (FLOP/s, or OP/s for
    integers).

    They are those that rocprof-compute's benchmark measured, where the recording has them
    (roofline.csv; the median if that covers several devices), else the published rates per compute
    unit and clock for the clock in sysinfo, or for the product's published clock.
    `table.attrs["ceilings"]` says which. The published vector FP32 rate is that with packed
    instructions, where the GPU has them. Raises ValueError if neither is known.
    """
    measured = profile.meta.get("roofline")
    if measured and profile.origin.kind == "modeled":
        rows, source = _measured(measured), "peaks that the model computes with"
    elif measured:
        rows, source = _measured(measured), "measured by rocprof-compute's benchmark"
        source += (
            f", median of {len(measured)} devices"
            if len(measured) > 1
            else " in the same recording"
        )
    else:
        sysinfo = profile.meta.get("sysinfo", {})
        rows, source = _published(architecture_of(profile), sysinfo, model_of(sysinfo))
    if not rows:
        raise ValueError(
            "no ceilings: the recording has no roofline.csv, and its sysinfo no clock or number of"
            " compute units"
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
    """`MFMAF16Flops` -> `matrix fp16`, `I8Ops` -> `vector int8`."""
    unit = "matrix" if column.startswith("MFMA") else "vector"
    kind = column.removeprefix("MFMA").removesuffix("Flops").removesuffix("Ops").lower()
    if kind.startswith("bf"):
        return f"{unit} {kind}"
    letters = "int" if kind.startswith("i") else "fp"
    return f"{unit} {letters}{kind.lstrip('fpi')}"


def _published(
    architecture: Architecture, sysinfo: Mapping[str, Any], model: Model | None
) -> tuple[list[dict[str, Any]], str]:
    """Ceilings from rates per compute unit and clock, and a text on what they are."""
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
