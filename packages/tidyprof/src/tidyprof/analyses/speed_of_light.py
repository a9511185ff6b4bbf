"""The Speed-of-Light table of rocprof-compute, computed from raw counters.

The table compares the rates that a run achieved with the peak rates of the GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.analyses.counter_formulas import DispatchCounters, Metric, metrics
from tidyprof.analyses.gpu_peaks import architecture_of
from tidyprof.tables.contract import Profile

AVERAGES = ("dispatches", "totals")
"""Methods of averaging over dispatches."""

_NEVER_DEFINED = "a dispatch in which the metric is defined (not 0 / 0)"


def speed_of_light(profile: Profile, *, average: str = "dispatches") -> pd.DataFrame:
    """Return the Speed-of-Light table, which contains each metric's value, its peak, and the ratio
    of the two in percent.

    - profile: a profile of a folder from `read_rocprof_compute`. An analysis database contains
      averages instead of raw counters.
    - average: the method of averaging. `dispatches` is the mean over dispatches, in which a 3 us
      kernel has the same weight as a 3 ms kernel. rocprof-compute prints this mean up to release
      3.6. `totals` is the ratio of the sums, which rocprof-compute prints in release 3.7.0 and
      later.

    Rates are in 10^9 per second. Their peaks apply to the clock and the number of compute units in
    sysinfo. `dispatches` is the number of dispatches that contribute to the value. If a metric
    can't be computed, it has no value, and `missing` lists the counters that it needs.

    As in rocprof-compute, "VALU FLOPs" is compared with the unpacked rate of 128 FLOP per CU and
    clock cycle, so packed FP32 can exceed 100%. "Wavefront Occupancy" is inaccurate for kernels
    that take less than 1 ms.

    The formulas come from `counter_formulas`. "Active CUs" isn't included because it isn't a ratio.
    Raises ValueError if the profile has no sysinfo, an unknown architecture or no raw counters, or
    if no metric can be computed.
    """
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {', '.join(AVERAGES)}, not {average!r}")
    formulas = metrics(architecture_of(profile), profile.meta["sysinfo"])
    counters = DispatchCounters(profile)
    rows = [_row(metric, counters, average) for metric in formulas]
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
        "missing": None,
        "value": value,
        "percent": 100 * value / metric.peak if has_both else None,
    }


def _row(metric: Metric, counters: DispatchCounters, average: str) -> dict[str, Any]:
    """Return the table row of a metric, computed from counters."""
    missing = counters.missing([*metric.numerator, *metric.denominator])
    if missing:
        return _known(metric) | {"dispatches": 0, "missing": ", ".join(missing)}
    part = counters.weighted_sum(metric.numerator)
    whole = counters.weighted_sum(metric.denominator)
    defined = ~np.isnan(part) & ~np.isnan(whole) & (whole != 0)
    if not defined.any():
        return _known(metric) | {"dispatches": 0, "missing": _NEVER_DEFINED}
    part, whole = part[defined], whole[defined]
    mean = (part / whole).mean() if average == "dispatches" else part.sum() / whole.sum()
    return _known(metric, float(mean)) | {"dispatches": int(defined.sum())}
