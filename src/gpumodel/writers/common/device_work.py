"""Device work beside the host calls that launched it, and as tools see it that record what the hardware executes.

The ROCm runtime copies within a device and fills memory with kernels of its own, so rocprofv3 lists
them as kernels; only copies between host and device are memory copies there. Names, workgroup sizes
and registers are those of https://github.com/ROCm/clr in recordings of MI300-class devices.
"""

from __future__ import annotations

import re

import pandas as pd

from gpumodel.run import RankRun

COPY_KINDS = {"HostToDevice": 1, "DeviceToHost": 2, "DeviceToDevice": 3}
"""hipMemcpyKind of the directions of a copy (HIP API reference)."""

WORK_ITEM_LAUNCHES = frozenset({"hipExtModuleLaunchKernel"})
"""Calls whose grid counts work-items; all other launches count workgroups (HIP API reference, module management)."""


def work_with_launches(rank: RankRun) -> pd.DataFrame:
    """`rank.device_work` with the columns call_name, call_start_ns and thread_id of the launching call.

    Work whose call is not in the table gets the rank's main thread, an empty name and <NA> as start.
    """
    calls = rank.calls[["correlation_id", "name", "start_ns", "thread_id"]]
    calls = calls.rename(columns={"name": "call_name", "start_ns": "call_start_ns"})
    work = rank.device_work.merge(calls, on="correlation_id", how="left", validate="many_to_one")
    work["call_name"] = work["call_name"].fillna("")
    work["thread_id"] = work["thread_id"].fillna(rank.main_thread_id).astype("int64")
    work["call_start_ns"] = work["call_start_ns"].astype("Int64")
    return work


def grid_of_call(work: pd.DataFrame) -> pd.DataFrame:
    """The grid as the launching call received it, columns x, y, z: workgroups, or work-items for some calls."""
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
"""Copies that stay copies, by direction, and what rocprofv3 calls them."""


def dispatches_and_copies(work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Device work as kernel dispatches and memory copies, both in the given columns and order."""
    is_copy = (work["kind"] == "copy") & work["copy_direction"].isin(list(MEMORY_COPY_NAMES))
    copies = work[is_copy].copy()
    copies["name"] = copies["copy_direction"].map(MEMORY_COPY_NAMES)
    dispatches = work[~is_copy].copy()
    for kind, kernel in (("copy", COPY_KERNEL), ("fill", FILL_KERNEL)):
        _become_kernel(dispatches, dispatches["kind"] == kind, kernel)
    return dispatches.reset_index(drop=True), copies.reset_index(drop=True)


def _become_kernel(dispatches: pd.DataFrame, rows: pd.Series, kernel: str) -> None:
    """Give these rows the name and shape of the runtime's kernel; what has a grid keeps it."""
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
    shape |= {"scalar_registers": scalar, "grid_y": 1, "grid_z": 1, "workgroup_y": 1, "workgroup_z": 1}
    for column, value in shape.items():
        dispatches.loc[rows, column] = value


_SYMBOL = ["name", "vector_registers", "accumulation_registers", "scalar_registers"]


def kernel_symbols(dispatches: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """The distinct kernels and, for each dispatch, the number of its kernel.

    The table has kernel_id (1, 2, ... in order of first use), name, the three kinds of registers, and
    the largest lds_bytes and scratch_bytes of its dispatches.
    """
    numbers = dispatches.groupby(_SYMBOL, sort=False).ngroup() + 1
    table = dispatches.assign(kernel_id=numbers).groupby("kernel_id", sort=True)
    first = table[_SYMBOL].first()
    largest = table[["lds_bytes", "scratch_bytes"]].max()
    return pd.concat([first, largest], axis=1).reset_index(), numbers


def truncated_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template and call arguments, as `--truncate-kernels` gives.

    Text that is no C++ name, such as `Cijk_...`, comes back unchanged.
    """
    text, previous = name.replace("(anonymous namespace)", ""), None
    while text != previous:
        previous, text = text, re.sub(r"<[^<>()]*>|\([^()<>]*\)|\{[^{}()<>]*\}", "", text)
    words = re.split(r"[<(]", text, maxsplit=1)[0].split()
    short = words[-1].rpartition("::")[2] if words else ""
    return short or name
