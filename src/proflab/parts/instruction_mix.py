"""What kinds of instructions kernels issue, per wavefront: table 10.1 of rocprof-compute, from raw counters.

Formulas: ROCm/rocm-systems, projects/rocprofiler-compute, src/rocprof_compute_soc/analysis_configs/gfx942
(1000_compute_units_instruction_mix.yaml), restated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tidyprof.analyses.hardware_counters import DispatchCounters

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

KINDS: Mapping[str, Mapping[str, float]] = {
    "VALU": {"SQ_INSTS_VALU": 1, "SQ_INSTS_MFMA": -1},
    "MFMA": {"SQ_INSTS_MFMA": 1},
    "VMEM": {"SQ_INSTS_VMEM": 1},
    "LDS": {"SQ_INSTS_LDS": 1},
    "SALU": {"SQ_INSTS_SALU": 1},
    "SMEM": {"SQ_INSTS_SMEM": 1},
    "Branch": {"SQ_INSTS_BRANCH": 1},
}
"""Kind -> counter -> weight."""

MEANINGS = {
    "VALU": "arithmetic on vectors",
    "MFMA": "matrix units",
    "VMEM": "loads and stores of memory",
    "LDS": "local data share, memory within a compute unit",
    "SALU": "arithmetic on single values",
    "SMEM": "loads of single values",
    "Branch": "jumps",
}
"""Kind -> what it does."""


def instructions_per_wave(profile: Profile, kernel: str | None = None) -> pd.Series:
    """Kind -> instructions per wavefront, the mean over dispatches as in the tool; <NA> where they were not counted.

    kernel -- only kernels with this text in their name. Raises ValueError as `tidyprof.speed_of_light` does, and for
    a profile that did not count wavefronts.
    """
    names = {name for weights in KINDS.values() for name in weights}
    counters = DispatchCounters(profile, names | {"SQ_WAVES"}, kernel)
    if counters.missing(["SQ_WAVES"]):
        raise ValueError("the profile did not count wavefronts (SQ_WAVES): profile block 10 too (-b 10)")
    waves = counters.column("SQ_WAVES")
    found = {
        kind: None if counters.missing(weights) else float(np.nanmean(counters.weighted_sum(weights) / waves))
        for kind, weights in KINDS.items()
    }
    return pd.Series(found, dtype="Float64")


def mix_table(columns: Mapping[str, Mapping[str, float] | pd.Series], origin: object) -> pd.DataFrame:
    """One row per kind: `kind`, `meaning`, and one column per workload. origin -- where the columns come from."""
    table = pd.DataFrame({"kind": list(KINDS), "meaning": [MEANINGS[kind] for kind in KINDS]})
    for name, values in columns.items():
        table[name] = pd.array([values[kind] for kind in KINDS], dtype="Float64")
    table.attrs["origin"] = origin
    return table
