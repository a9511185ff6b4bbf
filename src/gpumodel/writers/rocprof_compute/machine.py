"""What rocprof-compute writes of the machine: sysinfo.csv, and the ceilings of its benchmark in roofline.csv."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cifar_train.errors import UserError
from gpumodel.devices import Device
from gpumodel.run import Run
from gpumodel.writers.rocprof_compute.counters import MAXIMUM_WAVES_PER_SIMD

_SERIES = {"gfx908": "MI100", "gfx90a": "MI200", "gfx942": "MI300", "gfx950": "MI350"}
_HBM_CHANNEL_BYTES = 32
"""Bytes per channel and memory clock (projects/rocprofiler-compute, src/utils/specs.py)."""

_LDS_BANKS = 32
_LDS_BYTES = 128
"""Banks of the local data share, and what they deliver per compute unit and clock: 4 bytes each."""

_ROOFLINE_COLUMNS = (
    *("HBMBw", "MALLBw", "L2Bw", "L1Bw", "LDSBw", "FP8Flops", "FP16Flops", "BF16Flops", "FP32Flops", "FP64Flops"),
    *("I8Ops", "I32Ops", "I64Ops", "MFMAF8Flops", "MFMAF16Flops", "MFMABF16Flops", "MFMAF32Flops", "MFMAF64Flops"),
    "MFMAI8Ops",
)
_RATES = {
    **{f"{name}Flops": f"vector float{name.removeprefix('FP')}" for name in ("FP16", "FP32", "FP64")},
    "BF16Flops": "vector bfloat16",
    **{f"MFMAF{bits}Flops": f"matrix float{bits}" for bits in (8, 16, 32, 64)},
    "MFMABF16Flops": "matrix bfloat16",
    "MFMAI8Ops": "matrix int8",
}
"""Column -> entry of `Device.peak_flops`."""


def model_folder(device: Device) -> str:
    """What the tool calls the GPU, and the folder of a workload: `MI300X_A1`.

    Raises UserError for a device without an architecture of AMD Instinct.
    """
    if device.gfx not in _SERIES:
        raise UserError(f"rocprof-compute knows no {device.name}; it supports {', '.join(_SERIES)}")
    return f"{device.name}_A1" if device.gfx == "gfx942" else _SERIES[device.gfx]


def sysinfo(run: Run, name: str, rocm: str, blocks: str) -> dict[str, Any]:
    """The one row of sysinfo.csv; empty text where the model does not know. `Device.sysinfo` has the last word."""
    launched = datetime.fromtimestamp((run.start_ns + run.wall_clock_offset_ns) // 10**9, UTC)
    return {
        "workload_name": name,
        "command": " ".join(run.command),
        "ip_blocks": blocks,
        "timestamp": launched.strftime("%a %b %d %H:%M:%S %Y (UTC)"),
        "version": 3,
        "hostname": run.hostname,
        **dict.fromkeys(("cpu_model", "sbios", "linux_distro", "linux_kernel_version"), ""),
        **dict.fromkeys(("amd_gpu_kernel_version", "cpu_memory", "gpu_memory"), ""),
        "rocm_version": rocm,
        "vbios": "",
        "compute_partition": "SPX",
        "memory_partition": "NPS1",
        **_sizes(run.device),
        **run.device.sysinfo,
    }


def _sizes(device: Device) -> dict[str, Any]:
    return {
        "gpu_series": _SERIES[device.gfx],
        "gpu_model": model_folder(device),
        "gpu_arch": device.gfx,
        "gpu_l1": device.l1_bytes // 1024,
        "gpu_l2": device.l2_bytes_per_chiplet // 1024,
        "cu_per_gpu": device.compute_units,
        "simd_per_cu": device.simds_per_compute_unit,
        "se_per_gpu": device.shader_engines,
        "wave_size": device.wavefront_size,
        "workgroup_max_size": 1024,
        "max_waves_per_cu": MAXIMUM_WAVES_PER_SIMD * device.simds_per_compute_unit,
        "max_sclk": device.clock_mhz,
        "max_mclk": device.memory_clock_mhz,
        "cur_sclk": device.clock_mhz,
        "cur_mclk": device.memory_clock_mhz,
        "total_l2_chan": device.l2_channels,
        "lds_banks_per_cu": _LDS_BANKS,
        "pipes_per_gpu": 4,
        "hbm_bw": round(device.memory_bandwidth / 1e9, 1),
        "num_xcd": device.chiplets,
        "num_hbm_channels": round(device.memory_bandwidth / (device.memory_clock_mhz * 1e6 * _HBM_CHANNEL_BYTES)),
    }


def ceilings(device: Device) -> dict[str, Any]:
    """The row of roofline.csv in GB/s and GFLOP/s, each figure with its bounds: the peaks that the model computes with.

    0 stands for what it has no peak of. Rates per clock: tool's formulas (128 B per L1, L2 channel and LDS).
    """
    per_clock = device.clock_mhz / 1000
    line = 64 if device.gfx in ("gfx908", "gfx90a") else 128
    figures = {
        "HBMBw": device.memory_bandwidth / 1e9,
        "L2Bw": line * device.l2_channels * per_clock,
        "L1Bw": line * device.compute_units * per_clock,
        "LDSBw": _LDS_BYTES * device.compute_units * per_clock,
        **{column: device.peak_flops.get(peak, 0) / 1e9 for column, peak in _RATES.items()},
    }
    row: dict[str, Any] = {"device": 0}
    for column in _ROOFLINE_COLUMNS:
        # The tool itself writes this one name in lower case.
        high = "hbmBwHigh" if column == "HBMBw" else f"{column}High"
        row |= dict.fromkeys((column, f"{column}Low", high), round(figures.get(column, 0), 3))
    return row
