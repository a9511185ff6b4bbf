"""The CPUs and GPUs of the node as ROCm numbers them: CPUs first, then the GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpumodel.run import Run

CPU_NAME = "AMD EPYC 9654 96-Core Processor"
CPU_CORES = 192
"""Of a two-socket MI300X platform, in threads per socket (https://www.amd.com/en/products/processors/server/epyc)."""


@dataclass(frozen=True)
class Agent:
    """One CPU socket or GPU.

    number -- ROCm's agent number, of both kinds together; index -- among the agents of its kind.
    """

    number: int
    index: int
    is_gpu: bool


def agents_of(run: Run) -> list[Agent]:
    """All agents that the run's ranks use or pass by: the CPUs, and the GPUs up to the last one used."""
    cpus = min(rank.agent - rank.device for rank in run.ranks)
    gpus = max(rank.device for rank in run.ranks) + 1
    return [Agent(number, number, False) for number in range(cpus)] + [
        Agent(cpus + index, index, True) for index in range(gpus)
    ]


def first_cpu(run: Run) -> int:
    """Number of the agent that stands for the host in copies."""
    return next((agent.number for agent in agents_of(run) if not agent.is_gpu), 0)


def properties(agent: Agent, run: Run) -> dict[str, Any]:
    """What is known of an agent, under the names of rocprofiler-sdk's `rocprofiler_agent_t`."""
    if not agent.is_gpu:
        names = {"name": CPU_NAME, "vendor_name": "CPU", "product_name": CPU_NAME, "model_name": ""}
        return {"cpu_cores_count": CPU_CORES, "cu_count": CPU_CORES, "num_xcc": 1, **names}
    device = run.device
    per_engine = max(1, device.compute_units // device.shader_engines)
    return {
        "simd_count": device.compute_units * device.simds_per_compute_unit,
        "lds_size_in_kb": device.lds_bytes // 1024,
        "wave_front_size": device.wavefront_size,
        "num_xcc": device.chiplets,
        "cu_count": device.compute_units,
        "array_count": device.shader_engines,
        "num_shader_banks": device.shader_engines,
        "simd_arrays_per_engine": 1,
        "cu_per_simd_array": per_engine,
        "cu_per_engine": per_engine,
        "simd_per_cu": device.simds_per_compute_unit,
        "max_engine_clk_fcompute": device.clock_mhz,
        "gfx_target_version": gfx_target_version(device.gfx),
        "workgroup_max_size": 1024,
        "vendor_id": 4098,
        "name": device.gfx,
        "vendor_name": "AMD",
        "product_name": device.marketing_name,
        "model_name": "",
    }


def gfx_target_version(gfx: str) -> int:
    """The kernel driver's number of an architecture: gfx942 is 90402, major * 10000 + minor * 100 + stepping."""
    digits = gfx.removeprefix("gfx")
    if len(digits) < 3:
        return 0
    return int(digits[:-2]) * 10_000 + int(digits[-2], 16) * 100 + int(digits[-1], 16)
