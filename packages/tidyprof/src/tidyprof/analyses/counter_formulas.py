"""Formulas of rocprof-compute's Speed-of-Light table as weighted sums of hardware counters.

The formulas come from src/rocprof_compute_soc/analysis_configs/gfx*/0200_system_speed_of_light.yaml
in ROCm/rocm-systems, projects/rocprofiler-compute. Peak rates apply to the clock and the number of
compute units in sysinfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.gpu_peaks import (
    LDS_BYTES,
    SCALAR_CACHE_BYTES,
    VECTOR_RATE,
    Architecture,
    memory_bandwidth,
)
from tidyprof.tables.contract import Profile

DURATION = "duration_ns"
"""Placeholder for the dispatch's duration among the counters of a formula. A rate per nanosecond
corresponds to a rate of 10^9 per second.
"""

_KEY = ["device", "dispatch_id", "kernel"]


def holds_metrics(profile: Profile) -> bool:
    """Return True if the file contains evaluated metrics instead of counters, as in an analysis
    database.

    An analysis database contains metrics for each kernel, but no counters for each dispatch.
    """
    return "metric_id" in profile.counters


class DispatchCounters:
    """The counters of a profile's dispatches, which can be looked up by name.

    - frame: one row per dispatch with `device`, `dispatch_id`, `kernel` and `duration_ns` (a float,
      NaN if the time is unknown).

    If a counter was collected in several runs of the program, the first run is used. If
    `with_run_of` names another counter, the run that also collected that counter is used.
    """

    def __init__(self, profile: Profile, names: Iterable[str], kernel: str | None = None) -> None:
        """Read the counters.

        - names: the names of the counters that will be used.
        - kernel: a string that selects the kernels with this string in their name.

        Raises ValueError if the profile has no raw counters, or if no kernel has this string in its
        name.
        """
        if "dispatch_id" not in profile.counters:
            raise ValueError(
                "the profile has no hardware counters; read the output folder of"
                " `rocprof-compute profile`"
            )
        counters = profile.counters
        # Keep the dispatches that have counters, with or without times. Merge kernels as plain
        # objects because counters and events have different categories.
        known = counters[_KEY].drop_duplicates()
        if kernel is not None:
            known = known[_matching(known["kernel"], kernel)]
        timed = profile.events[["device", "dispatch_id", "name", DURATION]].rename(
            columns={"name": "kernel"}
        )
        timed = timed.assign(kernel=timed["kernel"].astype(object))
        known = known.assign(kernel=known["kernel"].astype(object))
        self.frame = (
            known.merge(timed, how="left", on=_KEY)
            .astype({DURATION: "float64"})
            .reset_index(drop=True)
        )
        wanted = counters[counters["name"].isin(list(names))]
        places = self.frame[_KEY].assign(row=np.arange(len(self.frame)))
        wanted = wanted.assign(kernel=wanted["kernel"].astype(object)).merge(places, on=_KEY)
        self._values = wanted[["row", "name", "replay_pass", "value"]].sort_values(
            "replay_pass", kind="stable"
        )
        self._present = set(wanted["name"].unique())

    def __len__(self) -> int:
        return len(self.frame)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the counters that are missing from all dispatches."""
        return [name for name in dict.fromkeys(names) if not self._has(name)]

    def _has(self, name: str) -> bool:
        return (
            bool(self.frame[DURATION].notna().any()) if name == DURATION else name in self._present
        )

    def column(self, name: str, with_run_of: str | None = None) -> np.ndarray:
        """Return one value per dispatch. The value is NaN if the dispatch has no value for this
        counter.
        """
        if name == DURATION:
            return self.frame[DURATION].to_numpy()
        values = self._values[self._values["name"] == name]
        first = (
            values.drop_duplicates("row").set_index("row")["value"].reindex(range(len(self.frame)))
        )
        if with_run_of is None or with_run_of == name:
            return first.to_numpy()
        runs = self._values.loc[self._values["name"] == with_run_of, ["row", "replay_pass"]]
        same = (
            values.merge(runs, on=["row", "replay_pass"])
            .drop_duplicates("row")
            .set_index("row")["value"]
        )
        return same.reindex(range(len(self.frame))).fillna(first).to_numpy()

    def weighted_sum(
        self, weights: Mapping[str, float], with_run_of: str | None = None
    ) -> np.ndarray:
        """Return the weighted sum of the counters for each dispatch. The sum is NaN if one of the
        counters is missing.
        """
        total = np.zeros(len(self.frame))
        for name, weight in weights.items():
            total = total + weight * self.column(name, with_run_of)
        return total


def _matching(kernels: pd.Series, text: str) -> np.ndarray:
    names = kernels.astype("category").cat
    has_text = [text in name for name in names.categories]
    if not any(has_text):
        shown = "; ".join(str(name)[:60] for name in names.categories[:5])
        raise ValueError(f"no kernel has {text!r} in its name. Kernels: {shown}")
    return np.array([*has_text, False])[names.codes]


_LANES = 64
"""Number of work-items per wavefront. An instruction counts as one operation for each work-item."""

_MATRIX_UNIT = 512
"""Number of FLOP per count of SQ_INSTS_VALU_MFMA_MOPS_*."""

_ISSUE_PEAK = 5
"""Number of instructions that a CU can issue per clock cycle."""

MATRIX_METRICS: Mapping[str, tuple[str, str]] = {
    "fp8": ("MFMA FLOPs (F8)", "F8"),
    "bf16": ("MFMA FLOPs (BF16)", "BF16"),
    "fp16": ("MFMA FLOPs (F16)", "F16"),
    "fp32": ("MFMA FLOPs (F32)", "F32"),
    "fp64": ("MFMA FLOPs (F64)", "F64"),
    "fp6/fp4": ("MFMA FLOPs (F6F4)", "F6F4"),
    "int8": ("MFMA IOPs (Int8)", "I8"),
}
"""The metric for each data type, and the name of the type in the counter."""


@dataclass(frozen=True)
class Metric:
    """A metric that is the ratio of two weighted sums of counters.

    - numerator: the weight of each counter. The counter `DURATION` results in rates of 10^9 per
      second.
    - denominator: the weight of each counter.
    - peak: the peak value, or None if there is none.
    - needs: the missing sysinfo entries that are required for the peak.
    - run_of: the name of a counter. If a counter of this metric was collected in several runs, the
      run that also collected `run_of` is used.
    """

    name: str
    unit: str
    numerator: Mapping[str, float]
    denominator: Mapping[str, float]
    peak: float | None = None
    needs: str | None = None
    run_of: str | None = None


def metrics(architecture: Architecture, sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield all metrics in the order of the profiler's table. "Active CUs" isn't included because
    it isn't a ratio.
    """
    yield from _compute_rates(architecture, sysinfo)
    yield from _utilization(sysinfo)
    yield from _local_data_share(sysinfo)
    yield from _vector_caches(architecture, sysinfo)
    yield from _fabric(architecture, sysinfo)
    yield from _scalar_caches(sysinfo)


def _product(sysinfo: Mapping[str, Any], factor: float, *names: str) -> dict[str, Any]:
    """Return the product of the factor and these sysinfo entries as `peak`. If entries are missing,
    return their names as `needs`.
    """
    lacking = [name for name in names if name not in sysinfo]
    if lacking:
        return {"needs": f"{', '.join(lacking)} in sysinfo (for the peak)"}
    return {"peak": factor * float(np.prod([sysinfo[name] for name in names]))}


def vector_operations(data_type: str) -> dict[str, float]:
    """Return the FLOP per count for each counter of vector instructions with this floating-point
    type (F16, F32 or F64).
    """
    prefix = "SQ_INSTS_VALU"
    single = {f"{prefix}_{kind}_{data_type}": float(_LANES) for kind in ("ADD", "MUL", "TRANS")}
    return single | {f"{prefix}_FMA_{data_type}": 2.0 * _LANES}


def matrix_operations(data_type: str) -> dict[str, float]:
    """Return the FLOP per count for the counter of matrix instructions with this type, as named in
    `ARCHITECTURES`.
    """
    return {f"SQ_INSTS_VALU_MFMA_MOPS_{MATRIX_METRICS[data_type][1]}": float(_MATRIX_UNIT)}


def _compute_rates(architecture: Architecture, sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    per_clock = ("max_sclk", "cu_per_gpu")
    vector = {**vector_operations("F16"), **vector_operations("F32"), **vector_operations("F64")}
    integer = {"SQ_INSTS_VALU_INT32": _LANES, "SQ_INSTS_VALU_INT64": _LANES}
    peak = _product(sysinfo, VECTOR_RATE / 1000, *per_clock)
    yield Metric("VALU FLOPs", "GFLOP/s", vector, {DURATION: 1}, **peak)
    yield Metric("VALU IOPs", "GIOP/s", integer, {DURATION: 1}, **peak)
    for data_type, (name, _) in MATRIX_METRICS.items():
        if data_type in architecture.matrix:
            peak = _product(sysinfo, architecture.matrix[data_type] / 1000, *per_clock)
            unit = "GIOP/s" if data_type == "int8" else "GFLOP/s"
            yield Metric(name, unit, matrix_operations(data_type), {DURATION: 1}, **peak)


def _utilization(sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    lacking = [name for name in ("cu_per_gpu", "num_xcd") if name not in sysinfo]
    units, chiplets = sysinfo.get("cu_per_gpu", 1), sysinfo.get("num_xcd", 1)
    # The counter adds up the clock cycles of all chiplets (XCDs). If sysinfo lacks an entry, the
    # entry's name replaces the counter so that it is reported as missing.
    active = f"{', '.join(lacking)} in sysinfo" if lacking else "GRBM_GUI_ACTIVE"
    clocks = {active: units / chiplets}
    shares = {
        "CU Utilization": {"SQ_BUSY_CU_CYCLES": 100.0},
        "SALU Utilization": {"SQ_ACTIVE_INST_SCA": 100.0},
        "VALU Utilization": {"SQ_ACTIVE_INST_VALU": 100.0},
        "MFMA Utilization": {"SQ_VALU_MFMA_BUSY_CYCLES": 25.0},
        "VMEM Utilization": {"SQ_ACTIVE_INST_FLAT": 100.0, "SQ_ACTIVE_INST_VMEM": 100.0},
        "Branch Utilization": {"SQ_ACTIVE_INST_MISC": 100.0},
    }
    for name, numerator in shares.items():
        yield Metric(name, "%", numerator, clocks, 100.0)
    threads = {"SQ_THREAD_CYCLES_VALU": 1.0}
    wave = float(sysinfo.get("wave_size", _LANES))
    yield Metric("VALU Active Threads", "work-items", threads, {"SQ_ACTIVE_INST_VALU": 1.0}, wave)
    instructions = {"SQ_INSTS": 1.0}
    yield Metric(
        "IPC", "instructions/clock", instructions, {"SQ_BUSY_CU_CYCLES": 1.0}, float(_ISSUE_PEAK)
    )
    waves = "SQ_LEVEL_WAVES_ACCUM"
    peak = _product(sysinfo, 1.0, "max_waves_per_cu", "cu_per_gpu")
    yield Metric(
        "Wavefront Occupancy",
        "wavefronts",
        {waves: 1.0},
        {active: 1 / chiplets},
        **peak,
        run_of=waves,
    )


def _local_data_share(sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    active, conflicts = "SQ_LDS_IDX_ACTIVE", "SQ_LDS_BANK_CONFLICT"
    banks = 4.0 * sysinfo.get("lds_banks_per_cu", 32)
    peak = _product(sysinfo, LDS_BYTES / 1000, "max_sclk", "cu_per_gpu")
    moved = {active: banks, conflicts: -banks}
    yield Metric("Theoretical LDS Bandwidth", "GB/s", moved, {DURATION: 1}, **peak)
    accesses = {active: 1.0, conflicts: -1.0}
    yield Metric("LDS Bank Conflicts/Access", "conflicts/access", {conflicts: 1.0}, accesses, 32.0)


def _vector_caches(architecture: Architecture, sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    looked_up = "TCP_TOTAL_CACHE_ACCESSES_sum"
    to_l2 = ("READ_REQ", "WRITE_REQ", "ATOMIC_WITH_RET_REQ", "ATOMIC_WITHOUT_RET_REQ")
    hits = {looked_up: 100.0, **{f"TCP_TCC_{request}_sum": -100.0 for request in to_l2}}
    yield Metric("vL1D Cache Hit Rate", "%", hits, {looked_up: 1.0}, 100.0)
    line = float(architecture.l1_line_bytes)
    peak = _product(sysinfo, line / 1000, "max_sclk", "cu_per_gpu")
    yield Metric("vL1D Cache BW", "GB/s", {looked_up: line}, {DURATION: 1}, **peak)
    hit, miss = "TCC_HIT_sum", "TCC_MISS_sum"
    yield Metric("L2 Cache Hit Rate", "%", {hit: 100.0}, {hit: 1.0, miss: 1.0}, 100.0)
    peak = _product(sysinfo, architecture.l2_channel_bytes / 1000, "max_sclk", "total_l2_chan")
    yield Metric("L2 Cache BW", "GB/s", {"TCC_REQ_sum": 128.0}, {DURATION: 1}, **peak)


def fabric_reads(architecture: Architecture) -> Mapping[str, float]:
    """Return the bytes per request for each counter of reads through the fabric."""
    prefix = architecture.fabric
    requests, small = f"{prefix}_RDREQ_sum", f"{prefix}_RDREQ_32B_sum"
    if architecture.reads_by_size:
        return {f"{prefix}_RDREQ_128B_sum": 128.0, f"{prefix}_RDREQ_64B_sum": 64.0, small: 32.0}
    if prefix == "TCC_EA":
        return {requests: 64.0, small: -32.0}
    # TCC_BUBBLE counts the 128 B reads, which are 64 B larger than the other reads.
    return {requests: 64.0, "TCC_BUBBLE_sum": 64.0, small: -32.0}


def fabric_writes(architecture: Architecture) -> Mapping[str, float]:
    """Return the bytes per request for writes through the fabric: 32 bytes, or 64 bytes for a large
    request.
    """
    return {f"{architecture.fabric}_WRREQ_sum": 32.0, f"{architecture.fabric}_WRREQ_64B_sum": 32.0}


def _fabric(architecture: Architecture, sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    bandwidth = memory_bandwidth(sysinfo)
    peak: dict[str, Any] = {"peak": bandwidth}
    if bandwidth is None:
        peak = {"needs": "hbm_bw, or max_mclk and num_hbm_channels, in sysinfo (for the peak)"}
    yield Metric("L2-Fabric Read BW", "GB/s", fabric_reads(architecture), {DURATION: 1}, **peak)
    yield Metric("L2-Fabric Write BW", "GB/s", fabric_writes(architecture), {DURATION: 1}, **peak)
    for name, request in (("Read", "RDREQ"), ("Write", "WRREQ")):
        level, number = (
            f"{architecture.fabric}_{request}_LEVEL_sum",
            f"{architecture.fabric}_{request}_sum",
        )
        yield Metric(f"L2-Fabric {name} Latency", "clocks", {level: 1.0}, {number: 1.0})


def _scalar_caches(sysinfo: Mapping[str, Any]) -> Iterator[Metric]:
    peak = _product(sysinfo, SCALAR_CACHE_BYTES / 1000, "max_sclk", "sqc_per_gpu")
    for name, prefix in (("sL1D", "SQC_DCACHE"), ("L1I", "SQC_ICACHE")):
        hits, misses = f"{prefix}_HITS", f"{prefix}_MISSES"
        rate = "sL1D Cache Hit Rate" if name == "sL1D" else "L1I Hit Rate"
        yield Metric(rate, "%", {hits: 100.0}, {hits: 1.0, misses: 1.0}, 100.0)
        bandwidth = "sL1D Cache BW" if name == "sL1D" else "L1I BW"
        requests = {f"{prefix}_REQ": float(SCALAR_CACHE_BYTES)}
        yield Metric(bandwidth, "GB/s", requests, {DURATION: 1}, **peak)
    fetches = "SQ_IFETCH_LEVEL_ACCUM"
    yield Metric("L1I Fetch Latency", "clocks", {fetches: 1.0}, {"SQ_IFETCH": 1.0}, run_of=fetches)
