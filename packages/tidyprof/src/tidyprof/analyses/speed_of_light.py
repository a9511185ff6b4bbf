"""The Speed-of-Light table of rocprof-compute, computed from raw counters.

The table compares the rates that a run achieved with the peak rates of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.analyses.counter_formulas import DispatchCounters, Metric, holds_metrics, metrics
from tidyprof.analyses.gpu_peaks import architecture_of
from tidyprof.tables.contract import Profile

AVERAGES = ("dispatches", "totals")
"""Methods of averaging over dispatches."""

_NEVER_DEFINED = "a dispatch in which the metric is defined (not 0 / 0)"


def speed_of_light(
    profile: Profile, *, kernel: str | None = None, average: str = "dispatches"
) -> pd.DataFrame:
    """Return the Speed-of-Light table, which contains each metric's value, its peak, and the ratio
    of the two in percent.

    - profile: a profile from `read_rocprof_compute`. An analysis database contains no raw counters,
      so its own values are returned together with peaks that are computed here.
    - kernel: a string that selects the dispatches of kernels with this string in their name.
    - average: the method of averaging. `dispatches` is the mean over dispatches, in which a 3 us
      kernel has the same weight as a 3 ms kernel. rocprof-compute prints this mean up to release
      3.6. `totals` is the ratio of the sums, which rocprof-compute prints in release 3.7.0 and
      later.

    Rates are in 10^9 per second. Their peaks apply to the clock and the number of compute units in
    sysinfo. `dispatches` is the number of dispatches that contribute to the value. If a metric
    can't be computed, it has no value, and `missing` lists the counters or sysinfo entries that it
    needs.

    As in rocprof-compute, "VALU FLOPs" is compared with the unpacked rate of 128 FLOP per CU and
    clock cycle, so packed FP32 can exceed 100%. "Wavefront Occupancy" is inaccurate for kernels
    that take less than 1 ms.

    The formulas come from `counter_formulas`. The formula of "Active CUs" comes from
    projects/rocprofiler-compute, src/utils/parser.py (`BUILD_IN_VARS`). Raises ValueError if the
    profile has no sysinfo or an unknown architecture, if no dispatch has such a kernel, or if no
    metric can be computed. Also raises ValueError if `average` is `totals` but the profile comes
    from an analysis database.
    """
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {', '.join(AVERAGES)}, not {average!r}")
    architecture, sysinfo = architecture_of(profile), profile.meta["sysinfo"]
    formulas = list(metrics(architecture, sysinfo))
    if holds_metrics(profile):
        if average != "dispatches":
            raise ValueError(
                "an analysis database contains only averages; for totals, read the folder with the"
                " raw counters"
            )
        rows = _evaluated(profile, formulas, kernel)
    else:
        counters = DispatchCounters(profile, kernel)
        rows = [_row(metric, counters, average) for metric in formulas]
        # Insert the row at its position in the tool's table.
        position = [metric.name for metric in formulas].index("CU Utilization")
        rows.insert(position, _active_compute_units(counters, sysinfo))
    if not any(row.get("value") is not None for row in rows):
        raise ValueError(f"no metric can be computed; the first metric lacks {rows[0]['missing']}")
    return result(rows, "speed_of_light", profile)


def _known(metric: Metric, value: float | None = None) -> dict[str, Any]:
    """Return the table row of a metric with this value."""
    has_both = metric.peak is not None and value is not None and not pd.isna(value)
    return {
        "metric": metric.name,
        "unit": metric.unit,
        "peak": metric.peak,
        "missing": metric.needs,
        "value": value,
        "percent": 100 * value / metric.peak if has_both else None,
    }


def _row(
    metric: Metric, counters: DispatchCounters, average: str, lacking: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the table row of a metric, computed from counters.

    - lacking: what else is missing for the metric.
    """
    missing = [*counters.missing([*metric.numerator, *metric.denominator]), *lacking]
    if missing:
        return _known(metric) | {"dispatches": 0, "missing": ", ".join(missing)}
    part = counters.weighted_sum(metric.numerator, metric.run_of)
    whole = counters.weighted_sum(metric.denominator, metric.run_of)
    defined = ~np.isnan(part) & ~np.isnan(whole) & (whole != 0)
    if not defined.any():
        return _known(metric) | {"dispatches": 0, "missing": _NEVER_DEFINED}
    part, whole = part[defined], whole[defined]
    mean = (part / whole).mean() if average == "dispatches" else part.sum() / whole.sum()
    return _known(metric, float(mean)) | {"dispatches": int(defined.sum())}


def _active_compute_units(counters: DispatchCounters, sysinfo: Mapping[str, Any]) -> dict[str, Any]:
    """Return an estimate of "Active CUs" from the mean number of busy wave slots.

    The estimate counts 8 units for each full set of slots and up to 8 units for the remaining
    slots. AMD now prefers "CU Utilization", but most published tables contain "Active CUs".
    """
    facts = {name: sysinfo.get(name) for name in ("cu_per_gpu", "num_xcd", "max_waves_per_cu")}
    units, chiplets, slots = facts.values()
    # The counter counts units of four clock cycles, and GRBM_GUI_ACTIVE adds up all chiplets
    # (XCDs).
    busy, active = {"SQ_BUSY_CU_CYCLES": 4.0}, {"GRBM_GUI_ACTIVE": 1 / (chiplets or 1)}
    metric = Metric("Active CUs", "CUs", busy, active, units)
    lacking = [f"{name} in sysinfo" for name, value in facts.items() if value is None]
    row = _row(metric, counters, "dispatches", lacking)
    if row["value"] is None:
        return row
    mean = round(row["value"])
    return row | _known(metric, float(int(min(mean / slots * 8 + min(mean % slots, 8), units))))


def _evaluated(
    profile: Profile, formulas: Iterable[Metric], kernel: str | None
) -> list[dict[str, Any]]:
    """Return table rows with the values from an analysis database."""
    values = _values_of_workload(profile) if kernel is None else _values_of_kernel(profile, kernel)
    values = {name.removesuffix(" (deprecated)"): value for name, value in values.items()}
    rows = [_known(metric, values.get(metric.name)) for metric in formulas]
    for row in rows:
        if row["value"] is None:
            row["missing"] = "a value in rocprof-compute's table 2.1"
    return rows


def _values_of_workload(profile: Profile) -> dict[str, float]:
    tables = profile.meta.get("metric_tables", {})
    rows: list[dict] = next((rows for name, rows in tables.items() if name.startswith("2.1 ")), [])
    return {row["Metric"]: row["Avg"] for row in rows if "Avg" in row}


def _values_of_kernel(profile: Profile, kernel: str) -> dict[str, float]:
    table = profile.counters[profile.counters["metric_id"].astype(str).str.startswith("2.1.")]
    names = [name for name in table["kernel"].cat.categories if kernel in name]
    if len(names) != 1:
        raise ValueError(
            f"{len(names)} kernels have {kernel!r} in their name. Choose exactly one kernel because"
            " the database has one value per kernel"
        )
    table = table[(table["kernel"] == names[0]) & (table["statistic"] == "Avg")]
    return dict(zip(table["name"].astype(str), table["value"], strict=True))
