"""One launch on the device, before it has a time, and what it needs to know of tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpumodel.recording.operators import Operator, TensorInfo

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel, copy, fill or collective that an operator puts on a stream.

    name             -- as Kineto writes it, demangled, in full ("Memcpy DtoD (Device -> Device)"
                        for a copy).
    kind             -- kernel, copy, fill or collective.
    grid             -- work-items (not workgroups) in x, y, z; (0, 0, 0) for copies and fills.
    workgroup        -- work-items of one workgroup in x, y, z.
    vector_registers, accumulation_registers, scalar_registers -- per work-item (vector,
                        accumulation) and per wavefront (scalar), typical of the kernel's class,
                        not read from a binary.
    lds_bytes, scratch_bytes -- per workgroup and per work-item.
    flops            -- floating-point operations of the operation that it implements. Matrix
                        products, convolutions and attention have formulas; the count per value of
                        all other kernels is an estimate.
    data_type        -- float16, bfloat16, float32, int64, ...; of the arithmetic.
    matrix_cores     -- whether it uses MFMA instructions.
    bytes_read, bytes_written -- traffic to memory, in bytes, each tensor counted once.
    copy_bytes       -- bytes of a copy or fill, else None.
    copy_direction   -- HostToDevice, DeviceToHost, DeviceToDevice, or "".
    collective       -- allreduce, broadcast, ... or "".
    runtime_call     -- the HIP call that launches it.
    cost_class       -- row of data/efficiencies.toml that its duration comes from.
    serial_steps     -- length of the longest chain of dependent steps in one workgroup (a loop over
                        channels, pixels or the inner dimension), for classes whose time depends on
                        it.
    parallelism      -- mean share of the compute units that have work; above 0, up to 1.
    """

    name: str
    kind: str = "kernel"
    grid: Grid = (0, 0, 0)
    workgroup: Grid = (0, 0, 0)
    vector_registers: int = 0
    accumulation_registers: int = 0
    scalar_registers: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    flops: float = 0.0
    data_type: str = "float32"
    matrix_cores: bool = False
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    copy_bytes: int | None = None
    copy_direction: str = ""
    collective: str = ""
    runtime_call: str = "hipLaunchKernel"
    cost_class: str = "elementwise"
    serial_steps: float = 0.0
    parallelism: float = 1.0


ITEM_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one value of a torch type."""

CPP_NAMES = {
    "float64": "double",
    "int64": "long",
    "uint64": "unsigned long",
    "float32": "float",
    "int32": "int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}
"""How ATen's kernel names spell a torch type."""


def elements(tensor: TensorInfo) -> int:
    """Number of values in a tensor."""
    return math.prod(tensor.shape)


def nbytes(*tensors: TensorInfo | None) -> float:
    """Bytes of all tensors, each counted once; None counts nothing."""
    return float(
        sum(elements(tensor) * ITEM_BYTES[tensor.dtype] for tensor in tensors if tensor is not None)
    )


def present(operator: Operator) -> list[TensorInfo]:
    """The inputs that are not None."""
    return [tensor for tensor in operator.inputs if tensor is not None]


def result(operator: Operator) -> TensorInfo:
    """The tensor that decides an operator's size and type: its first output, else (in place) its
    first input. Raises ValueError for an operator without tensors.
    """
    for tensor in (*operator.outputs, *operator.inputs):
        if tensor is not None:
            return tensor
    raise ValueError(f"{operator.name} has neither inputs nor outputs")


def cpp(dtype: str) -> str:
    """C++ name of a torch type."""
    return CPP_NAMES[dtype]


def accumulator(dtype: str) -> str:
    """C++ name of the type that ATen computes in: float for the 16-bit types, else the type
    itself.
    """
    return "float" if dtype in ("float16", "bfloat16") else CPP_NAMES[dtype]


def blocks(count: float, per_block: int) -> int:
    """Workgroups that `count` values need, at least one."""
    return max(1, math.ceil(count / per_block))
