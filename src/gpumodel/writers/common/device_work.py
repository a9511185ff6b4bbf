"""Device work together with the host calls that launched it, and device work as the hardware
executes it, which some tools record.

The ROCm runtime copies within a device, and fills memory, with kernels of its own. So rocprofv3
lists these as kernels; only copies between host and device are memory copies there. Names,
workgroup sizes and registers are those of https://github.com/ROCm/clr in recordings of MI300-class
devices.

Agents are the CPUs and GPUs of the node as ROCm numbers them: CPUs first, then the GPUs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gpumodel.run import RankRun, Run

COPY_KINDS = {"HostToDevice": 1, "DeviceToHost": 2, "DeviceToDevice": 3}
"""Direction of a copy -> its hipMemcpyKind (HIP API reference)."""

WORK_ITEM_LAUNCHES = frozenset({"hipExtModuleLaunchKernel"})
"""Calls whose grid counts work-items; that of all other launches counts workgroups (HIP API
reference, module management).
"""


def work_with_launches(rank: RankRun) -> pd.DataFrame:
    """`rank.device_work` with the columns call_name, call_start_ns and thread_id of the launching
    call.

    Work whose call is not in the table gets the rank's main thread, an empty name and <NA> as
    start.
    """
    calls = rank.calls[["correlation_id", "name", "start_ns", "thread_id"]]
    calls = calls.rename(columns={"name": "call_name", "start_ns": "call_start_ns"})
    work = rank.device_work.merge(calls, on="correlation_id", how="left", validate="many_to_one")
    work["call_name"] = work["call_name"].fillna("")
    work["thread_id"] = work["thread_id"].fillna(rank.main_thread_id).astype("int64")
    work["call_start_ns"] = work["call_start_ns"].astype("Int64")
    return work


def grid_of_call(work: pd.DataFrame) -> pd.DataFrame:
    """The grid as the launching call received it, columns x, y, z: in workgroups, or in work-items
    for WORK_ITEM_LAUNCHES.
    """
    in_items = work["call_name"].isin(WORK_ITEM_LAUNCHES)
    columns = {}
    for axis in "xyz":
        items, size = work[f"grid_{axis}"], work[f"workgroup_{axis}"].clip(lower=1)
        columns[axis] = items.where(in_items, (items + size - 1) // size)
    return pd.DataFrame(columns)


COPY_KERNEL = "__amd_rocclr_copyBuffer"
FILL_KERNEL = "__amd_rocclr_fillBufferAligned"

_WORKGROUP = {COPY_KERNEL: 512, FILL_KERNEL: 256}
_REGISTERS = {COPY_KERNEL: (8, 32), FILL_KERNEL: (8, 48)}
_LARGEST_GRID = {COPY_KERNEL: 131_072, FILL_KERNEL: 65_536}
_BYTES_PER_WORK_ITEM = 16

MEMORY_COPY_NAMES = {
    "HostToDevice": "MEMORY_COPY_HOST_TO_DEVICE",
    "DeviceToHost": "MEMORY_COPY_DEVICE_TO_HOST",
}
"""Direction of a copy that is not done by a kernel -> what rocprofv3 calls it."""


def dispatches_and_copies(work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Device work split into kernel dispatches and memory copies; both keep its columns and its
    order.
    """
    is_copy = (work["kind"] == "copy") & work["copy_direction"].isin(list(MEMORY_COPY_NAMES))
    copies = work[is_copy].copy()
    copies["name"] = copies["copy_direction"].map(MEMORY_COPY_NAMES)
    dispatches = work[~is_copy].copy()
    for kind, kernel in (("copy", COPY_KERNEL), ("fill", FILL_KERNEL)):
        _become_kernel(dispatches, dispatches["kind"] == kind, kernel)
    return dispatches.reset_index(drop=True), copies.reset_index(drop=True)


def _become_kernel(dispatches: pd.DataFrame, rows: pd.Series, kernel: str) -> None:
    """Give these rows the name and the grid of the runtime's kernel; a row with a grid keeps it."""
    dispatches.loc[rows, "name"] = kernel
    rows = rows & (dispatches["grid_x"] == 0)
    if not rows.any():
        return
    workgroup = _WORKGROUP[kernel]
    size = dispatches.loc[rows, "copy_bytes"].fillna(1).astype("int64")
    items = (size + _BYTES_PER_WORK_ITEM - 1) // _BYTES_PER_WORK_ITEM
    groups = (items.clip(1, _LARGEST_GRID[kernel]) + workgroup - 1) // workgroup
    vector, scalar = _REGISTERS[kernel]
    shape = {"grid_x": groups * workgroup, "workgroup_x": workgroup, "vector_registers": vector}
    shape |= {
        "scalar_registers": scalar,
        "grid_y": 1,
        "grid_z": 1,
        "workgroup_y": 1,
        "workgroup_z": 1,
    }
    for column, value in shape.items():
        dispatches.loc[rows, column] = value


_SYMBOL = ["name", "vector_registers", "accumulation_registers", "scalar_registers"]


def kernel_symbols(dispatches: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """The distinct kernels, and for each dispatch the number of its kernel.

    The table has kernel_id (1, 2, ... in order of first use), name, the three kinds of registers,
    and the largest lds_bytes and scratch_bytes of its dispatches.
    """
    numbers = dispatches.groupby(_SYMBOL, sort=False).ngroup() + 1
    table = dispatches.assign(kernel_id=numbers).groupby("kernel_id", sort=True)
    first = table[_SYMBOL].first()
    largest = table[["lds_bytes", "scratch_bytes"]].max()
    return pd.concat([first, largest], axis=1).reset_index(), numbers


def truncated_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template arguments and parameters, as
    `--truncate-kernels` gives it.

    Text that is not a C++ name, such as `Cijk_...`, comes back unchanged.
    """
    # Brackets are nested, so the innermost ones are removed again and again.
    text, previous = name.replace("(anonymous namespace)", ""), None
    while text != previous:
        previous, text = text, re.sub(r"<[^<>()]*>|\([^()<>]*\)|\{[^{}()<>]*\}", "", text)
    words = re.split(r"[<(]", text, maxsplit=1)[0].split()
    short = words[-1].rpartition("::")[2] if words else ""
    return short or name


CPU_NAME = "AMD EPYC 9654 96-Core Processor"
CPU_CORES = 192
"""Made up: a processor that a node with MI300X may have, and its threads per socket
(https://www.amd.com/en/products/processors/server/epyc).
"""


@dataclass(frozen=True)
class Agent:
    """One CPU socket or GPU.

    number -- ROCm's number of the agent, over both kinds. index -- its number among its kind.
    """

    number: int
    index: int
    is_gpu: bool


def agents_of(run: Run) -> list[Agent]:
    """The node's agents: its CPUs, then its GPUs up to the last one that a rank uses."""
    cpus = min(rank.agent - rank.device for rank in run.ranks)
    gpus = max(rank.device for rank in run.ranks) + 1
    return [Agent(number, number, False) for number in range(cpus)] + [
        Agent(cpus + index, index, True) for index in range(gpus)
    ]


def first_cpu(run: Run) -> int:
    """Number of the agent that stands for the host in copies."""
    return next((agent.number for agent in agents_of(run) if not agent.is_gpu), 0)


def properties(agent: Agent, run: Run) -> dict[str, Any]:
    """What the model knows of an agent, by the names in rocprofiler-sdk's `rocprofiler_agent_t`."""
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
    """The kernel driver's number of an architecture: gfx942 is 90402, major * 10000 + minor * 100 +
    stepping.
    """
    digits = gfx.removeprefix("gfx")
    if len(digits) < 3:
        return 0
    return int(digits[:-2]) * 10_000 + int(digits[-2], 16) * 100 + int(digits[-1], 16)
