"""The Speed-of-Light table and the instruction mix that AMD published for this workload, as printed."""

from __future__ import annotations

import pandas as pd

from tidyprof.tables.contract import Origin

SOURCE = (
    "https://github.com/amd/HPCTrainingExamples/blob/982d29d9e99c58e2781ef1434030bb93cbe5814d/"
    "MLExamples/PyTorch_Profiling/rocm-compute-profiler/README.md"
)
"""The page with all tables; the repository is under the MIT licence."""

ORIGIN = Origin(
    "recorded",
    "AMD Instinct MI300A (its peaks say so), ROCm release not stated, published by AMD in amd/HPCTrainingExamples "
    "(PyTorch_Profiling)",
)

PRINTED = (
    ("VALU FLOPs", 145.35, "Gflop", 61_286.4, 0.24),
    ("VALU IOPs", 563.01, "Giop", 61_286.4, 0.92),
    ("MFMA FLOPs (BF16)", 0.0, "Gflop", 1_961_164.8, 0.0),
    ("MFMA FLOPs (F16)", 4303.42, "Gflop", 1_961_164.8, 0.22),
    ("MFMA FLOPs (F32)", 0.0, "Gflop", 122_572.8, 0.0),
    ("MFMA FLOPs (F64)", 0.0, "Gflop", 122_572.8, 0.0),
    ("MFMA IOPs (INT8)", 0.0, "Giop", 3_922_329.6, 0.0),
)
"""Metric, average, unit, peak and percent of table 11.1. The units stand for 10^9 operations per second."""

INSTRUCTIONS_PER_WAVE = {
    "VALU": 180.31,
    "VMEM": 17.68,
    "LDS": 28.19,
    "MFMA": 8.42,
    "SALU": 77.24,
    "SMEM": 3.58,
    "Branch": 11.79,
}
"""Averages of table 10.1."""

CLOCK_MHZ = 2100
"""Engine clock of MI300A and MI300X: https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html."""


def published_speed_of_light() -> pd.DataFrame:
    """One row per metric as printed: metric, value, unit, peak (both in `unit` per second), pct_of_peak (0-100)."""
    table = pd.DataFrame(PRINTED, columns=["metric", "value", "unit", "peak", "pct_of_peak"])
    table.attrs["origin"] = ORIGIN
    return table


def compute_units(table: pd.DataFrame) -> float:
    """Compute units of the GPU whose peak of the vector units was printed: 128 FLOP per unit and clock."""
    from tidyprof.analyses.gpu_peaks import VECTOR_RATE

    return float(_peak(table, "VALU FLOPs") * 1e3 / (VECTOR_RATE * CLOCK_MHZ))


def true_peak(table: pd.DataFrame, data_type: str = "fp16") -> float:
    """Peak in GFLOP/s of the matrix units of that GPU, from AMD's rate per compute unit and clock."""
    from tidyprof.analyses.gpu_peaks import ARCHITECTURES

    return ARCHITECTURES["gfx942"].matrix[data_type] * compute_units(table) * CLOCK_MHZ / 1e3


def _peak(table: pd.DataFrame, metric: str) -> float:
    return float(table.set_index("metric").at[metric, "peak"])
