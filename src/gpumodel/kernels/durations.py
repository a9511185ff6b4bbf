"""How long a launch takes: a floor plus the slowest of arithmetic, memory and a chain of dependent
steps.

    duration = floor + max(FLOPs / (peak x compute efficiency x parallelism),
                           bytes / (bandwidth x memory efficiency),
                           serial steps x time of a step / share of the peak clock)

The coefficients of each class of kernels stand in data/efficiencies.toml with their source;
scripts/dev/fit_gpumodel.py fits them to measured durations. They were measured on MI300X. For
another device they are scaled by its peaks and bandwidth, while floors and times of a step stay the
same: an assumption that nobody has checked. Below its peak clock a device takes longer for a step,
too, since a step is instructions that wait for the ones before; floors stay the same.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gpumodel.devices import Device
from gpumodel.kernels.launch import ITEM_BYTES, KernelLaunch


@dataclass(frozen=True)
class CostClass:
    """Coefficients of one class of kernels.

    floor_ns           -- time of the smallest launch, in ns.
    step_ns            -- time of one dependent step, in ns; 0 if the class has none.
    compute_efficiency -- share of the peak FLOP/s that it reaches, memory_efficiency -- share of
        the peak bandwidth; 0 where that does not limit it.
    measured           -- how many measured mean durations the fit used; error -- median of
        |modelled/measured - 1| over them; source -- where they come from.
    """

    floor_ns: float
    compute_efficiency: float = 0.0
    memory_efficiency: float = 0.0
    step_ns: float = 0.0
    measured: int = 0
    error: float = 0.0
    source: str = ""


@cache
def cost_classes() -> dict[str, CostClass]:
    """All classes of kernels by name."""
    table = tomllib.loads((files("gpumodel") / "data" / "efficiencies.toml").read_text())
    return {name: CostClass(**values) for name, values in table.items()}


def duration_ns(launch: KernelLaunch, device: Device) -> tuple[float, str]:
    """Mean duration in ns, without jitter, and what bounds it: compute, memory or floor.

    A chain of dependent steps counts as compute, since the kernel waits for its own instructions.
    """
    return duration_in(launch, device, cost_classes()[launch.cost_class])


def duration_in(launch: KernelLaunch, device: Device, costs: CostClass) -> tuple[float, str]:
    """`duration_ns` with these coefficients."""
    compute, memory, serial = drivers_ns(launch, device)
    arithmetic = compute / costs.compute_efficiency if costs.compute_efficiency else 0.0
    arithmetic = max(arithmetic, serial * costs.step_ns / device.clock_share)
    traffic = memory / costs.memory_efficiency if costs.memory_efficiency else 0.0
    slowest = max(arithmetic, traffic)
    if slowest <= costs.floor_ns:
        return costs.floor_ns + slowest, "floor"
    return costs.floor_ns + slowest, "compute" if arithmetic >= traffic else "memory"


def drivers_ns(launch: KernelLaunch, device: Device) -> tuple[float, float, float]:
    """Time of the arithmetic at the peak rate, in ns, time of the traffic at the peak bandwidth, in
    ns, and number of dependent steps.
    """
    compute = launch.flops / (peak_flops(launch, device) * launch.parallelism) * 1e9
    memory = (launch.bytes_read + launch.bytes_written) / device.memory_bandwidth * 1e9
    return compute, memory, launch.serial_steps


def peak_flops(launch: KernelLaunch, device: Device) -> float:
    """Peak FLOP/s of the units that the kernel uses; vector arithmetic on 16-bit values or integers
    counts as float32.

    Implicit-GEMM kernels reach a few percent of the matrix peak, since they wait for operands. In a
    wider type they are taken to be slower in proportion to its width, not to its peak. That is an
    assumption: only 16-bit types are measured.
    """
    if launch.cost_class.startswith("igemm"):
        return device.peak_flops["matrix float16"] * 2 / ITEM_BYTES[launch.data_type]
    if launch.matrix_cores and f"matrix {launch.data_type}" in device.peak_flops:
        return device.peak_flops[f"matrix {launch.data_type}"]
    kind = "float64" if launch.data_type == "float64" else "float32"
    return device.peak_flops[f"vector {kind}"]
