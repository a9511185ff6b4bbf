"""Peak rates of AMD Instinct GPUs, by architecture and by model.

Rates come from AMD's architecture pages
(https://rocm.docs.amd.com/en/latest/reference/gpu-arch/mi300.html,
.../mi250.html, .../mi100.html) and specification table
(https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html), sizes of cache lines and requests
from the metric definitions of rocprof-compute (ROCm/rocm-systems, projects/rocprofiler-compute,
src/rocprof_compute_soc/analysis_configs). Those definitions count F6F4 with 16834 FLOP per CU and
clock, a typing error for 16384, and up to release 3.2.2 doubled the F8, F16, BF16 and INT8 rates of
gfx942; here they are as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tidyprof.tables.contract import Profile

VECTOR_RATE = 128
"""FLOP per CU and clock of the vector units without packing: 64 lanes, a fused multiply-add counts
as two. This is what rocprof-compute divides by; AMD's figure for FP32 is twice that where packed
instructions exist.
"""

LDS_BYTES = 128
"""Bytes per CU and clock of the local data share: 32 banks of 4 bytes, which rocprof-compute takes
for all. A gfx950 has 64 banks (Triton, TritonGPU/IR/Dialect.cpp), so its roof may be twice that:
the bytes that it hands out are not published.
"""

L1_ACCESS_BYTES = 64
"""Bytes that an access to the vector L1 hands out at most, however long the line. In public
recordings a copy of 4 bytes a lane takes four accesses of a wavefront both on MI200 (lines of 64 B)
and on MI300X (128 B), and the benchmark of rocprof-compute reaches 33.4 TB/s on an MI300X: 82 % of
this per compute unit and clock.
"""

SCALAR_CACHE_BYTES = 64
"""Bytes per cache and clock of the instruction cache and of the scalar data cache."""


@dataclass(frozen=True)
class Architecture:
    """One generation of compute unit.

    matrix            -- data type -> FLOP (for int8: operations) per CU and clock of the matrix
        cores, dense.
    vector_fp32       -- FLOP per CU and clock of the vector units with packed FP32 instructions.
    l1_line_bytes     -- cache line of the vector L1, also what it can hand out per CU and clock.
    l2_read_bytes     -- bytes of a read request from L1 to L2 (writes and atomics: 64).
    l2_channel_bytes  -- bytes per L2 channel and clock.
    fabric            -- prefix of the counters between L2 and memory.
    reads_by_size     -- whether reads of 128 B have a counter of their own there (and TCC_BUBBLE
        stays 0).
    """

    matrix: Mapping[str, int]
    vector_fp32: int
    l1_line_bytes: int
    l2_read_bytes: int
    l2_channel_bytes: int
    fabric: str
    reads_by_size: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    "gfx908": Architecture(
        {"bf16": 512, "fp16": 1024, "fp32": 256, "int8": 1024}, VECTOR_RATE, 64, 64, 64, "TCC_EA"
    ),
    "gfx90a": Architecture(
        {"bf16": 1024, "fp16": 1024, "fp32": 256, "fp64": 256, "int8": 1024},
        2 * VECTOR_RATE,
        64,
        64,
        64,
        "TCC_EA",
    ),
    "gfx942": Architecture(
        {"fp8": 4096, "bf16": 2048, "fp16": 2048, "fp32": 256, "fp64": 256, "int8": 4096},
        2 * VECTOR_RATE,
        128,
        128,
        128,
        "TCC_EA0",
    ),
    "gfx950": Architecture(
        {
            "fp8": 8192,
            "bf16": 4096,
            "fp16": 4096,
            "fp32": 256,
            "fp64": 128,
            "fp6/fp4": 16384,
            "int8": 8192,
        },
        2 * VECTOR_RATE,
        128,
        128,
        128,
        "TCC_EA0",
        reads_by_size=True,
    ),
}
"""gfx name -> architecture."""


@dataclass(frozen=True)
class Model:
    """A product: compute units, peak engine clock in MHz, peak memory bandwidth in GB/s of one
    device.
    """

    name: str
    architecture: str
    compute_units: int
    clock_mhz: int
    memory_gb_per_second: float


MODELS = (
    Model("MI100", "gfx908", 120, 1502, 1228.8),
    Model("MI210 or one die of MI250", "gfx90a", 104, 1700, 1638.4),
    Model("one die of MI250X", "gfx90a", 110, 1700, 1638.4),
    Model("MI300A", "gfx942", 228, 2100, 5324.8),
    Model("MI300X", "gfx942", 304, 2100, 5324.8),
    Model("MI325X", "gfx942", 304, 2100, 6000.0),
    Model("MI350X", "gfx950", 256, 2200, 8000.0),
    Model("MI355X", "gfx950", 256, 2400, 8000.0),
)
"""Products with the figures that AMD publishes."""


def architecture_of(profile: Profile) -> Architecture:
    """The architecture that the profile's sysinfo names. Raises ValueError if there are no figures
    for it.
    """
    name = profile.meta.get("sysinfo", {}).get("gpu_arch")
    if name is None:
        raise ValueError(
            "the profile does not say which GPU it is from: sysinfo.csv was not beside pmc_perf.csv"
        )
    if name not in ARCHITECTURES:
        raise ValueError(f"no peaks and formulas for {name}, only for {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def model_of(sysinfo: Mapping[str, Any]) -> Model | None:
    """The product that sysinfo describes, None if that is not clear.

    The number of compute units distinguishes most products; where it does not, the stated model has
    to.
    """
    same = [
        model
        for model in MODELS
        if model.architecture == sysinfo.get("gpu_arch")
        and model.compute_units == sysinfo.get("cu_per_gpu")
    ]
    named = [model for model in same if model.name in str(sysinfo.get("gpu_model", ""))]
    if len(named) == 1:
        return named[0]
    return same[0] if len(same) == 1 else None


def memory_bandwidth(sysinfo: Mapping[str, Any]) -> float | None:
    """Peak memory bandwidth in GB/s: as stated, or 32 B per channel and memory clock; None if both
    are unknown.
    """
    if "hbm_bw" in sysinfo:
        return float(sysinfo["hbm_bw"])
    clock, channels = (
        sysinfo.get("max_mclk"),
        sysinfo.get("num_hbm_channels", sysinfo.get("num_memory_channels")),
    )
    return None if clock is None or channels is None else clock / 1000 * 32 * channels


@dataclass(frozen=True)
class ComputeUnit:
    """What the wavefronts on one compute unit share: LDS, given out in blocks, both in bytes."""

    lds_bytes: int
    lds_block_bytes: int


COMPUTE_UNITS: Mapping[str, ComputeUnit] = {
    "gfx90a": ComputeUnit(64 * 1024, 512),
    "gfx942": ComputeUnit(64 * 1024, 512),
    "gfx950": ComputeUnit(160 * 1024, 1280),
}
"""gfx name -> its compute unit. LDS from AMD's specification table, blocks from LLVM's "User Guide
for AMDGPU Backend" (https://llvm.org/docs/AMDGPUUsage.html, GRANULATED_LDS_SIZE).
"""

SIMDS, WAVES_PER_SIMD, REGISTERS, REGISTER_BLOCK = 4, 8, 512, 8
"""A CU's SIMDs, and wavefronts on a SIMD (sysinfo.csv of rocprof-compute: simd_per_cu 4,
max_waves_per_cu 32); vector registers for each lane of a SIMD, accumulation registers included (512
KiB a CU by the specification table, for 64 lanes and 4 bytes), and how many of them are given out
at once (GRANULATED_WORKITEM_VGPR_COUNT in LLVM's guide). gfx908 is left out: its accumulation
registers are apart.
"""


def occupancy(kernels: pd.DataFrame) -> pd.DataFrame:
    """How many wavefronts of each kernel of `read_assembly` a SIMD can hold at a time: an upper
    limit, and no speed.

    A row is one kernel: `waves_by_registers`, and if the size of a workgroup is known,
    `waves_by_lds` (<NA> without LDS), `waves` (0 where not even one workgroup fits) and
    `limited_by`: `registers`, `LDS`, both, or `wave slots`, of which there are 8. Workgroups are
    whole, so waves are in quarters. <NA> is what is not known, as for other GPUs.
    """
    rows = [_waves(kernel) for kernel in kernels.itertuples()]
    columns = dict.fromkeys(("waves_by_registers", "waves_by_lds", "waves"), "Float64") | {
        "limited_by": "string"
    }
    return pd.DataFrame(rows, columns=list(columns), index=kernels.index).astype(columns)


def _waves(kernel: Any) -> dict[str, Any]:
    unit = COMPUTE_UNITS.get(kernel.target)
    if unit is None or pd.isna(kernel.vgprs):
        return {}
    # A kernel without vector registers gets a block of them all the same.
    by_registers = min(WAVES_PER_SIMD, REGISTERS // _blocks(max(1, kernel.vgprs), REGISTER_BLOCK))
    waves = {"waves_by_registers": by_registers}
    if pd.isna(kernel.warps):
        return waves
    # In workgroups of a compute unit, since LDS is given to these.
    slots = SIMDS * by_registers // kernel.warps
    groups = {"registers" if by_registers < WAVES_PER_SIMD else "wave slots": slots}
    if kernel.lds_bytes:
        groups["LDS"] = unit.lds_bytes // _blocks(kernel.lds_bytes, unit.lds_block_bytes)
        waves["waves_by_lds"] = groups["LDS"] * kernel.warps / SIMDS
    least = min(groups.values())
    limits = [limit for limit, count in groups.items() if count == least]
    return waves | {"waves": least * kernel.warps / SIMDS, "limited_by": " and ".join(limits)}


def _blocks(amount: int, block: int) -> int:
    """The amount rounded up to whole blocks, as it is given out."""
    return -(-amount // block) * block
