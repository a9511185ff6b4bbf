"""What a played workload is: the tables of each rank, which are the truth about it.

All times are int64 nanoseconds of the node's CLOCK_BOOTTIME; add `Run.wall_clock_offset_ns` for the
time since 1970. Writers take a Run and never draw random numbers, so that all formats agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpumodel.workload import Workload

if TYPE_CHECKING:
    from gpumodel.play.engine import PlayedStep

DEVICE_WORK: dict[str, str] = {
    "dispatch_id": "int64",
    "correlation_id": "int64",
    "kind": "object",
    "name": "object",
    "stream": "int64",
    "queue": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "step": "Int64",
    "phase": "object",
    "operator_id": "Int64",
    "grid_x": "int64",
    "grid_y": "int64",
    "grid_z": "int64",
    "workgroup_x": "int64",
    "workgroup_y": "int64",
    "workgroup_z": "int64",
    "vector_registers": "int64",
    "accumulation_registers": "int64",
    "scalar_registers": "int64",
    "lds_bytes": "int64",
    "scratch_bytes": "int64",
    "flops": "float64",
    "data_type": "object",
    "matrix_cores": "bool",
    "bytes_read": "float64",
    "bytes_written": "float64",
    "copy_bytes": "Int64",
    "copy_direction": "object",
    "collective": "object",
    "bound_by": "object",
}
"""One row per kernel, copy, fill or collective, sorted by start_ns.

dispatch_id      -- 1, 2, ... in the order of launch, over all kinds; unique in a rank.
correlation_id   -- of the runtime call that launched it; unique in a rank.
kind             -- kernel, copy, fill or collective (a collective is an RCCL kernel).
name             -- as the library writes it, demangled, in full.
stream           -- HIP stream: 0 for compute, others for RCCL; queue -- HSA queue number from 1.
step             -- training step, <NA> outside of steps. phase -- data, forward, loss, backward,
                    optimizer or "".
operator_id      -- the operator that launched it, see OPERATORS; <NA> if none did.
grid_*           -- in work-items (not in workgroups); 0 for copies and fills without a kernel.
workgroup_*      -- work-items of one workgroup; 0 where the grid is 0.
*_registers, lds_bytes, scratch_bytes, matrix_cores -- as in gpumodel.kernels.KernelLaunch.
flops            -- floating-point operations; bytes_* -- traffic to memory (HBM), in bytes.
data_type        -- float16, bfloat16, float32, int64, ...; of the arithmetic.
copy_bytes       -- bytes of a copy or fill, else <NA>; copy_direction -- HostToDevice,
                    DeviceToHost, DeviceToDevice, or "" for anything but a copy.
collective       -- allreduce, broadcast, ... or "".
bound_by         -- what limits it: compute, memory, floor (too small for either) or
                    waiting (a collective that waits for other ranks).
"""

CALLS: dict[str, str] = {
    "correlation_id": "int64",
    "name": "object",
    "thread_id": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "operator_id": "Int64",
}
"""One row per HIP runtime call (hipLaunchKernel, hipMemcpyWithStream, ...), sorted by start_ns.

correlation_id -- unique in a rank; a call without device work (hipDeviceSynchronize) has one, too.
operator_id    -- the operator that made the call, see OPERATORS; <NA> if none did.
"""

OPERATORS: dict[str, str] = {
    "operator_id": "int64",
    "parent_id": "Int64",
    "name": "object",
    "thread_id": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "step": "Int64",
    "phase": "object",
    "module": "object",
    "input_shapes": "object",
    "input_types": "object",
    "sequence_number": "Int64",
    "flops": "float64",
}
"""One row per operator (aten::addmm, autograd::engine::evaluate_function: ...,
Optimizer.step#Adam.step), sorted by start_ns, parents before children. Children lie within their
parent on the same thread.

operator_id     -- 1, 2, ...; unique in a rank. parent_id -- that of its parent, <NA> without one.
module          -- path of the layer, "" outside of the model.
input_shapes    -- tuple of tuples of int; input_types -- tuple of str as Kineto writes them
                   ("c10::Half").
sequence_number -- links a forward operator with its backward one; <NA> where autograd has none.
flops           -- FLOPs of matrix products and convolutions, 0 for all others.
"""

ANNOTATIONS: dict[str, str] = {
    "name": "object",
    "thread_id": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "step": "Int64",
}
"""One row per named range of the trainer: ProfilerStep#N, data, forward, loss, backward,
optimizer.
"""

COUNTERS: dict[str, str] = {
    "time_ns": "int64",
    "name": "object",
    "value": "float64",
    "unit": "object",
}
"""One row per sample and quantity of the rank's device, sorted by time_ns.

Names and units: gfx_activity (percent), memory_activity (percent), power (watt), gfx_clock
(megahertz), memory_clock (megahertz), temperature (degree Celsius), memory_used (byte).
"""

SAMPLES: dict[str, str] = {
    "time_ns": "int64",
    "thread_id": "int64",
    "stack": "object",
}
"""One row per sample of a host call stack: stack is a tuple of function names, outermost first."""

TABLES = {
    "device_work": DEVICE_WORK,
    "calls": CALLS,
    "operators": OPERATORS,
    "annotations": ANNOTATIONS,
    "counters": COUNTERS,
    "samples": SAMPLES,
}


def empty(table: str) -> pd.DataFrame:
    """A table of TABLES without rows."""
    return pd.DataFrame({column: pd.Series(dtype=dtype) for column, dtype in TABLES[table].items()})


@dataclass
class RankRun:
    """One process and its device: the tables of TABLES, each with exactly its columns and types.

    Raises ValueError for a table that has others.

    process_id  -- made up, unique on the node. main_thread_id equals it; autograd_thread_id is
                   another.
    device      -- index of the device on the node; agent -- ROCm's agent number (the CPUs come
                   first).
    images_per_second -- what the trainer prints, one number per step, or empty.
    """

    rank: int
    process_id: int
    autograd_thread_id: int
    device: int
    agent: int
    device_work: pd.DataFrame = field(default_factory=lambda: empty("device_work"))
    calls: pd.DataFrame = field(default_factory=lambda: empty("calls"))
    operators: pd.DataFrame = field(default_factory=lambda: empty("operators"))
    annotations: pd.DataFrame = field(default_factory=lambda: empty("annotations"))
    counters: pd.DataFrame = field(default_factory=lambda: empty("counters"))
    samples: pd.DataFrame = field(default_factory=lambda: empty("samples"))
    images_per_second: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, columns in TABLES.items():
            found = {column: str(dtype) for column, dtype in getattr(self, name).dtypes.items()}
            if found != columns:
                wrong = sorted(set(found.items()) ^ set(columns.items()))
                raise ValueError(f"rank {self.rank}: table {name} is not as documented: {wrong}")

    @property
    def main_thread_id(self) -> int:
        """Linux gives the first thread the number of its process."""
        return self.process_id


@dataclass
class Run:
    """A played workload.

    ranks     -- one RankRun per process, in order of rank.
    device    -- the device's data (see gpumodel.devices): name, gfx, compute units, peaks, ...
    hostname  -- name of the node, made up.
    start_ns, end_ns -- of the processes, CLOCK_BOOTTIME; every event lies between them.
    wall_clock_offset_ns -- what to add for the time since 1970.
    command   -- the workload as a command line, e.g. ("python", "-m", "cifar_train", ...).
    steps     -- what the engine played, one entry per step.
    error     -- one clause with the model's known error, for the corner of figures.
    """

    workload: Workload
    ranks: tuple[RankRun, ...]
    device: Any
    hostname: str
    start_ns: int
    end_ns: int
    wall_clock_offset_ns: int
    command: tuple[str, ...]
    steps: Sequence[PlayedStep] = ()
    error: str = ""
