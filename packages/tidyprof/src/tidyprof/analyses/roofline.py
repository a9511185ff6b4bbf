"""Roofline model of the kernels: operations, bytes, arithmetic intensity and ceilings."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.analyses.counter_formulas import (
    DURATION,
    FORMULAS,
    DispatchCounters,
    quantities,
)
from tidyprof.analyses.gpu_peaks import (
    LDS_BYTES,
    VECTOR_RATE,
    Architecture,
    architecture_of,
    memory_bandwidth,
    model_of,
)
from tidyprof.names.short_names import unique_short_names
from tidyprof.tables.contract import Profile

_INTEGER_TYPE = "matrix int8"

OPERATION_TYPES = (
    *("vector fp16", "vector fp32", "vector fp64"),
    *("matrix fp8", "matrix bf16", "matrix fp16", "matrix fp32", "matrix fp64", "matrix fp6/fp4"),
)
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

    The byte formulas follow rocprof-compute's tables. For the vector L1, whole cache lines are
    counted. The bytes between L1 and L2 follow the table "16.3 L1-L2 BW", in which a read transfers
    one line, and a write or an atomic transfers 64 B. The bytes on the fabric follow "L2-Fabric
    Read BW" and "Write BW". The bytes in the local data share follow "Theoretical LDS Bandwidth".
    The formulas are in `counter_formulas`.

    Raises ValueError if the profile has no sysinfo, an unknown architecture or no raw counters,
    such as an analysis database.
    """
    rows = list(_points_of_counters(profile, architecture_of(profile)))
    short = unique_short_names(row["name"] for row in rows)
    rows.sort(key=lambda row: (-(row["duration_ns"] or 0), row["name"]))
    rows = [row | {"short_name": short[row["name"]]} for row in rows]
    return result(rows, "roofline_points", profile)


def _points_of_counters(profile: Profile, architecture: Architecture) -> Iterator[dict[str, Any]]:
    counters = DispatchCounters(profile)
    weights = quantities(architecture, profile.meta["sysinfo"])
    lacking = {name: counters.missing(sums) for name, sums in weights.items()}
    known = [name for name, missing in lacking.items() if not missing]
    # Releases before ROCm 6.4.2 don't count FP8, so the sum leaves out a counter that no dispatch
    # has.
    counted = [name for name in map(column_of, OPERATION_TYPES) if name in known]
    sums = {name: counters.weighted_sum(weights[name]) for name in known}
    table = pd.DataFrame({DURATION: counters.first[DURATION], **sums})
    never = list(dict.fromkeys(name for missing in lacking.values() for name in missing))
    needed = dict.fromkeys(name for sums in weights.values() for name in sums if name not in never)
    lacked = counters.first[list(needed)].isna()
    for kernel, group in table.groupby(counters.kernel, sort=False):
        complete = group[group[counted].notna().all(axis=1)]
        chosen = complete if len(complete) else group
        missing = ", ".join([*never, *lacked.columns[lacked.loc[chosen.index].any()]]) or None
        total = chosen.sum().where(chosen.notna().all())
        row = {"name": str(kernel), "calls": len(chosen), "missing": missing, DURATION: None}
        row |= total.dropna().to_dict()
        yield row | (_derived(row, counted) if len(complete) else {})


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
    devices = profile.meta.get("roofline")
    if devices:
        rates = {
            name: statistics.median(one[column] for one in devices if column in one) * 1e9
            for column, name in _ceilings_in(devices)
        }
        source = "measured by rocprof-compute's benchmark"
        if profile.origin.kind == "modeled":
            source = "peaks that the model uses"
        elif len(devices) > 1:
            source += f", median of {len(devices)} devices"
    else:
        rates, source = _published(architecture_of(profile), profile.meta.get("sysinfo", {}))
    if not rates:
        raise ValueError(
            "no ceilings are known: the profile has no roofline.csv, and its sysinfo lacks the"
            " clock or the number of compute units"
        )
    rows = []
    for name, value in rates.items():
        is_compute = name.startswith(("vector", "matrix"))
        rate_unit = "OP/s" if " int" in name else "FLOP/s"
        kind, unit = ("compute", rate_unit) if is_compute else ("bandwidth", "B/s")
        rows.append({"name": name, "kind": kind, "value": float(value), "unit": unit})
    table = result(rows, "roofline_ceilings", profile)
    table.attrs["ceilings"] = source
    return table


def _ceilings_in(devices: list[dict[str, float]]) -> list[tuple[str, str]]:
    """Return the known columns of roofline.csv, and the ceiling that each column contains."""
    columns = dict.fromkeys(name for device in devices for name in device)
    known = FORMULAS["ceilings"]
    return [(column, known[column]) for column in columns if column in known]


def _published(
    architecture: Architecture, sysinfo: Mapping[str, Any]
) -> tuple[dict[str, float], str]:
    """Return the ceilings from rates per compute unit and clock cycle, and a description of the
    ceilings.
    """
    model = model_of(sysinfo)
    clock = sysinfo.get("max_sclk", model.get("clock_mhz"))
    units = sysinfo.get("cu_per_gpu")
    bandwidth = memory_bandwidth(sysinfo) or model.get("memory_gb_per_second")
    rates = {} if bandwidth is None else {"HBM": bandwidth * 1e9}
    if clock is None or units is None:
        return rates, "published peak of the memory, not measured"
    clocks_per_second = clock * 1e6
    if "total_l2_chan" in sysinfo:
        per_clock = architecture.l2_channel_bytes * sysinfo["total_l2_chan"]
        rates["L2"] = per_clock * clocks_per_second
    of_unit = {
        "L1": architecture.l1_line_bytes,
        "LDS": LDS_BYTES,
        "vector fp32": architecture.vector_fp32,
        "vector fp64": VECTOR_RATE,
        **{f"matrix {name}": rate for name, rate in architecture.matrix.items()},
    }
    rates |= {name: rate * (units * clocks_per_second) for name, rate in of_unit.items()}
    return rates, f"published peaks of {units} compute units at {clock} MHz, not measured"
