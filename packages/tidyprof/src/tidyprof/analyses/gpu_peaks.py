"""Peak rates of AMD Instinct GPUs, by architecture and by model. The numbers are in
`gpu_peaks.toml`.

The rates come from AMD's architecture pages
(https://rocm.docs.amd.com/en/latest/reference/gpu-arch/mi300.html, .../mi250.html, .../mi100.html)
and specification table (https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html).

The sizes of cache lines and requests come from the metric definitions of rocprof-compute
(ROCm/rocm-systems, projects/rocprofiler-compute, src/rocprof_compute_soc/analysis_configs). These
definitions specify 16834 FLOP per CU and clock cycle for F6F4, which is a typo for 16384. Up to
release 3.2.2, the definitions doubled the F8, F16, BF16 and INT8 rates of gfx942. The tables use
the published rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tidyprof.package_data import table_of
from tidyprof.tables.contract import Profile

VECTOR_RATE = 128
"""FLOP per CU and clock cycle of the vector units without packed instructions. The units have 64
lanes, and a fused multiply-add counts as two operations. rocprof-compute divides by the same rate.
For GPUs with packed instructions, AMD publishes twice this rate for FP32.
"""

LDS_BYTES = 128
"""Bytes per CU and clock cycle of the local data share (LDS). rocprof-compute assumes 32 banks of 4
bytes for all GPUs. A gfx950 has 64 banks (Triton, TritonGPU/IR/Dialect.cpp), so its ceiling may be
twice as high. Its LDS bandwidth hasn't been published.
"""

_PEAKS = table_of("analyses/gpu_peaks.toml")


@dataclass(frozen=True)
class Architecture:
    """A generation of compute units. `gpu_peaks.toml` describes the fields."""

    matrix: Mapping[str, int]
    vector_fp32: int
    l1_line_bytes: int
    l2_read_bytes: int
    l2_channel_bytes: int
    fabric: str
    fabric_reads: Mapping[str, float]


ARCHITECTURES: Mapping[str, Architecture] = {
    name: Architecture(**entry) for name, entry in _PEAKS["architectures"].items()
}
"""Architectures by gfx name."""

COMPUTE_UNITS: Mapping[str, Mapping[str, int]] = _PEAKS["compute_units"]
"""`lds_bytes` and `lds_block_bytes` of a compute unit by gfx name."""


def architecture_of(profile: Profile) -> Architecture:
    """Return the architecture that is named in the profile's sysinfo.

    Raises ValueError if sysinfo doesn't name a known architecture.
    """
    name = profile.meta.get("sysinfo", {}).get("gpu_arch")
    if name is None:
        raise ValueError(
            "the profile doesn't name its GPU because sysinfo.csv wasn't next to pmc_perf.csv"
        )
    if name not in ARCHITECTURES:
        raise ValueError(
            f"{name} has no peaks and formulas. Known architectures: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def model_of(sysinfo: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the GPU model in `gpu_peaks.toml` that sysinfo describes, or an empty mapping if the
    model isn't clear.

    The number of compute units identifies most models. Otherwise, the name in sysinfo determines
    the model.
    """
    stated = [sysinfo.get(key) for key in ("gpu_arch", "cu_per_gpu")]
    same = [
        one for one in _PEAKS["models"] if [one["architecture"], one["compute_units"]] == stated
    ]
    named = [one for one in same if one["name"] in str(sysinfo.get("gpu_model", ""))]
    return next((found[0] for found in (named, same) if len(found) == 1), {})


def memory_bandwidth(sysinfo: Mapping[str, Any]) -> float | None:
    """Return the peak memory bandwidth in GB/s, or None if it is unknown.

    If sysinfo doesn't state the bandwidth, it is computed as 32 B per channel and memory clock
    cycle.
    """
    if "hbm_bw" in sysinfo:
        return float(sysinfo["hbm_bw"])
    clock = sysinfo.get("max_mclk")
    channels = sysinfo.get("num_hbm_channels", sysinfo.get("num_memory_channels"))
    return None if clock is None or channels is None else clock / 1000 * 32 * channels


SIMDS, WAVES_PER_SIMD, REGISTERS, REGISTER_BLOCK = 4, 8, 512, 8
"""Number of SIMDs per CU, wavefronts per SIMD, registers per SIMD lane, and registers per allocated
block.

The numbers of SIMDs and wavefronts come from rocprof-compute's sysinfo.csv (`simd_per_cu` 4,
`max_waves_per_cu` 32). The registers are vector registers, including accumulation registers. The
number of registers is calculated from 512 KiB per CU in the specification table, 64 lanes and 4
bytes per register. The block size is `GRANULATED_WORKITEM_VGPR_COUNT` in LLVM's guide.
"""


def occupancy(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return how many wavefronts of each kernel a SIMD can hold at a time. The kernels come from
    `read_assembly`.

    The values are upper limits, not predictions of speed. Each row describes one kernel.
    `waves_by_registers` is the limit that the registers impose. If the workgroup size is known, the
    row contains three more values:

    - `waves_by_lds`: the limit that LDS imposes, or `<NA>` if the kernel doesn't use LDS.
    - `waves`: the overall limit, which is 0 if not even one workgroup fits.
    - `limited_by`: the limiting resource, which is `registers`, `LDS`, both, or `wave slots`. A
      SIMD has 8 wave slots.

    Only whole workgroups fit, so the values are multiples of a quarter. Unknown values and all
    values for unlisted GPUs are `<NA>`.
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
    # Even a kernel without vector registers gets one block of them.
    by_registers = min(WAVES_PER_SIMD, REGISTERS // _blocks(max(1, kernel.vgprs), REGISTER_BLOCK))
    waves = {"waves_by_registers": by_registers}
    if pd.isna(kernel.warps):
        return waves
    # Count in workgroups per compute unit because LDS is allocated per workgroup.
    slots = SIMDS * by_registers // kernel.warps
    groups = {"registers" if by_registers < WAVES_PER_SIMD else "wave slots": slots}
    if kernel.lds_bytes:
        groups["LDS"] = unit["lds_bytes"] // _blocks(kernel.lds_bytes, unit["lds_block_bytes"])
        waves["waves_by_lds"] = groups["LDS"] * kernel.warps / SIMDS
    least = min(groups.values())
    limits = [limit for limit, count in groups.items() if count == least]
    return waves | {"waves": least * kernel.warps / SIMDS, "limited_by": " and ".join(limits)}


def _blocks(amount: int, block: int) -> int:
    """Round the amount up to whole blocks."""
    return -(-amount // block) * block
