"""Formulas of rocprof-compute's Speed-of-Light table as weighted sums of hardware counters. The
formulas are in `counter_formulas.toml`.

Peak rates apply to the clock and the number of compute units in sysinfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.gpu_peaks import Architecture, memory_bandwidth
from tidyprof.package_data import table_of
from tidyprof.tables.contract import Profile

DURATION = "duration_ns"
"""Placeholder for the dispatch's duration among the counters of a formula. A rate per nanosecond
corresponds to a rate of 10^9 per second.
"""

FORMULAS = table_of("analyses/counter_formulas.toml")

_KEY = ["device", "dispatch_id", "kernel"]


class DispatchCounters:
    """The counters of a profile's dispatches, which can be looked up by name.

    - kernel: the kernel of each dispatch.
    - first: one row per dispatch and one column per counter. `duration_ns` is a float, NaN if the
      time is unknown. If a counter was collected in several runs of the program, the value is from
      the first run.
    """

    def __init__(self, profile: Profile) -> None:
        """Read the counters. Raises ValueError if the profile has no raw counters."""
        if "dispatch_id" not in profile.counters:
            raise ValueError(
                "the profile has no hardware counters of single dispatches; read the output folder"
                " of `rocprof-compute profile`"
            )
        # Merge names as plain objects because counters and events have different categories.
        counters = profile.counters.astype({"kernel": object, "name": object})
        # Keep the dispatches that have counters, with or without times.
        known = counters[_KEY].drop_duplicates()
        timed = profile.events[["device", "dispatch_id", "name", DURATION]]
        timed = timed.set_axis([*_KEY, DURATION], axis="columns").astype({"kernel": object})
        known = known.merge(timed, how="left", on=_KEY).reset_index(names="row")
        values = counters.merge(known[["row", *_KEY]], on=_KEY)
        values = values.sort_values("replay_pass", kind="stable").drop_duplicates(["row", "name"])
        values = values.pivot(index="row", columns="name", values="value")
        self.kernel = known["kernel"]
        self.first = values.reindex(known.index)
        self.first[DURATION] = known[DURATION].astype("float64")

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the counters that are missing from all dispatches."""
        known = set(self.first.columns)
        if self.first[DURATION].isna().all():
            known.remove(DURATION)
        return [name for name in dict.fromkeys(names) if name not in known]

    def weighted_sum(self, weights: Mapping[str, float]) -> np.ndarray:
        """Return the weighted sum of the counters for each dispatch. The sum is NaN if one of the
        counters is missing.
        """
        values = self.first[list(weights)] * pd.Series(weights)
        return values.sum(axis=1, skipna=False).to_numpy()


@dataclass(frozen=True)
class Metric:
    """A metric that is the ratio of two weighted sums of counters.

    - numerator: the weight of each counter. The counter `DURATION` results in rates of 10^9 per
      second.
    - denominator: the weight of each counter.
    - peak: the peak value, or None if there is none or it is unknown.
    """

    name: str
    unit: str
    numerator: Mapping[str, float]
    denominator: Mapping[str, float]
    peak: float | None = None


def metrics(architecture: Architecture, sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield all metrics in the order of the profiler's table."""
    facts = _facts(architecture, sysinfo)
    for entry in FORMULAS["metrics"]:
        if "type" not in entry or entry["type"] in architecture.matrix:
            yield Metric(
                entry["name"],
                entry["unit"],
                _weights(entry["sum"], facts),
                _weights(entry.get("per", {DURATION: 1}), facts),
                _peak(entry, facts, sysinfo),
            )


def quantities(
    architecture: Architecture, sysinfo: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """Return the weight of each counter for each counted column of `roofline_points`.

    The matrix operations that the GPU doesn't support are left out.
    """
    facts = _facts(architecture, sysinfo)
    found = {name: _weights(sums, facts) for name, sums in FORMULAS["quantities"].items()}
    found["hbm_bytes"] = {**architecture.fabric_reads, **found["hbm_bytes"]}
    supported = tuple(f"matrix_{name.replace('/', '_')}_" for name in architecture.matrix)
    return {
        name: weights
        for name, weights in found.items()
        if not name.startswith("matrix_") or name.startswith(supported)
    }


def _facts(architecture: Architecture, sysinfo: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named weights, peaks and counter prefixes of the formulas."""
    lacking = [name for name in ("cu_per_gpu", "num_xcd") if name not in sysinfo]
    units, chiplets = sysinfo.get("cu_per_gpu", 1), sysinfo.get("num_xcd", 1)
    lds_access_bytes = 4.0 * sysinfo.get("lds_banks_per_cu", 32)
    return {
        **vars(architecture),
        **{f"matrix {name}": rate for name, rate in architecture.matrix.items()},
        # If sysinfo lacks an entry, the entry's name replaces the counter so that it is reported as
        # missing.
        "active": f"{', '.join(lacking)} in sysinfo" if lacking else "GRBM_GUI_ACTIVE",
        "units_per_chiplet": units / chiplets,
        "per_chiplet": 1 / chiplets,
        "lds_access_bytes": lds_access_bytes,
        "-lds_access_bytes": -lds_access_bytes,
        "memory_bandwidth": memory_bandwidth(sysinfo),
        "wave_size": float(sysinfo.get("wave_size", 64)),
    }


def _weights(sums: Any, facts: Mapping[str, Any]) -> dict[str, float]:
    named = facts[sums] if isinstance(sums, str) else sums
    return {name.format(**facts): facts.get(weight, weight) for name, weight in named.items()}


def _peak(
    entry: Mapping[str, Any], facts: Mapping[str, Any], sysinfo: Mapping[str, Any]
) -> float | None:
    """Return the peak of a metric, or None if sysinfo doesn't contain its clock or units."""
    stated = entry.get("peak")
    if not isinstance(stated, dict):
        return facts.get(stated, stated)
    amount = facts.get(stated["per_clock"], stated["per_clock"])
    known = [sysinfo.get(name, np.nan) for name in stated["of"]]
    peak = amount / 1000 * float(np.prod(known))
    return None if np.isnan(peak) else peak
