"""Sizes and C++ names of tensors, as kernel names and traffic need them."""

from __future__ import annotations

import math

from gpumodel.recording.operators import Operator, TensorInfo

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
    """Number of values."""
    return math.prod(tensor.shape)


def nbytes(*tensors: TensorInfo | None) -> float:
    """Bytes of all tensors, each counted once; None counts nothing."""
    return float(sum(elements(tensor) * ITEM_BYTES[tensor.dtype] for tensor in tensors if tensor is not None))


def present(operator: Operator) -> list[TensorInfo]:
    """The inputs that were given."""
    return [tensor for tensor in operator.inputs if tensor is not None]


def result(operator: Operator) -> TensorInfo:
    """What the operator is about: its first output, else its first input (in place). Raises ValueError."""
    for tensor in (*operator.outputs, *operator.inputs):
        if tensor is not None:
            return tensor
    raise ValueError(f"{operator.name} has neither inputs nor outputs")


def cpp(dtype: str) -> str:
    """C++ name of a torch type."""
    return CPP_NAMES[dtype]


def accumulator(dtype: str) -> str:
    """C++ name of the type that ATen computes in: float for the 16-bit types, else the type itself."""
    return "float" if dtype in ("float16", "bfloat16") else CPP_NAMES[dtype]


def blocks(count: float, per_block: int) -> int:
    """Workgroups that `count` values need, at least one."""
    return max(1, math.ceil(count / per_block))
