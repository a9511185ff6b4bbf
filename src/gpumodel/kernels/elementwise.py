"""Element-wise operators: one value out for each value in, bound by memory or too small to matter.

Names, block sizes and the choice among ATen's three kernel templates follow public MI300X traces of
torch 2.x (https://github.com/amd/HPCTrainingExamples, MLExamples/TraceLens) and ATen's Loops.cuh
and CUDALoops.cuh.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from gpumodel.kernels.launch import (
    KernelLaunch,
    accumulator,
    blocks,
    cpp,
    elements,
    nbytes,
    present,
    result,
)
from gpumodel.recording.operators import Operator, TensorInfo

VECTOR_BLOCK = 256
VALUES_PER_VECTOR_BLOCK = 1024
"""vectorized_elementwise_kernel: 256 work-items of four values each; a recorded grid has 4096
blocks for 4,194,304 values.
"""

_ALL_TYPES = {"uint8": 1, "int8": 2, "int32": 3, "int64": 4, "int16": 5, "float64": 6, "float32": 7}
_DISPATCH = {
    "floating": {"float64": 1, "float32": 2, "float16": 3, "bfloat16": 4},
    "all": {**_ALL_TYPES, "float16": 8, "bfloat16": 9},
    "copy": {**_ALL_TYPES, "float16": 10, "bool": 11, "bfloat16": 12},
}
"""Number of the lambda that a dispatch macro of ATen makes for a type, in the order of the keys:
AT_DISPATCH_FLOATING_TYPES_AND2, AT_DISPATCH_ALL_TYPES_AND2, and
AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND4 (where 8 and 9 are complex types).
"""


@cache
def functors() -> dict[str, dict[str, str | float]]:
    """Table of data/elementwise.toml: functor templates by operator."""
    return tomllib.loads((files("gpumodel") / "data" / "elementwise.toml").read_text())


def handles(name: str) -> bool:
    """Whether this operator is element-wise."""
    return name in functors()


def launches(operator: Operator) -> tuple[KernelLaunch, ...]:
    """The one kernel of an element-wise operator."""
    entry = functors()[operator.name]
    output = result(operator)
    inputs = _arrays(operator)
    arity = len(inputs)
    # Tensors of one value stand for scalars; with several of them at least one array remains.
    template = (
        entry["binary"]
        if arity > 1 and "binary" in entry
        else entry.get("unary", entry.get("binary"))
    )
    functor = fill(str(template), inputs[0].dtype if inputs else output.dtype)
    same_type = (
        all(tensor.dtype == output.dtype for tensor in inputs) or entry.get("result") == "bool"
    )
    same_shape = all(tensor.shape == output.shape for tensor in inputs)
    name, group, per_group = _template(functor, arity + 1, same_shape, same_type)
    return (
        KernelLaunch(
            name=name,
            grid=(blocks(elements(output), per_group) * group, 1, 1),
            workgroup=(group, 1, 1),
            vector_registers=12 if same_shape else 28,
            scalar_registers=32 if same_shape else 64,
            flops=float(entry.get("flops", 1)) * elements(output),
            data_type=output.dtype,
            bytes_read=nbytes(*inputs),
            bytes_written=nbytes(output),
            cost_class="elementwise" if same_shape and same_type else "elementwise_strided",
        ),
    )


def fill(template: str, dtype: str) -> str:
    """A functor's template with names and dispatch numbers of the type `dtype` put in."""
    for mark, text in {
        "%T": cpp(dtype),
        "%A": accumulator(dtype),
        "%F": str(_DISPATCH["floating"].get(dtype, 2)),
        "%D": str(_DISPATCH["all"].get(dtype, 7)),
        "%C": str(_DISPATCH["copy"].get(dtype, 7)),
    }.items():
        template = template.replace(mark, text)
    return template


def vectorized(functor: str, arrays: int) -> str:
    """Name of ATen's kernel for contiguous tensors of one type; `arrays` counts the output too."""
    array = f"at::detail::Array<char*, {arrays}>"
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, {array} >(int, {functor},"
        f" {array})"
    )


def strided(functor: str, cast: bool) -> tuple[str, int, int]:
    """Name of ATen's kernel for broadcast, strided or converting operators, its work-items per
    workgroup, and its values per workgroup.
    """
    implementation, sizes, group = (
        ("gpu_kernel_impl", "512, 1", 512) if cast else ("gpu_kernel_impl_nocast", "128, 4", 128)
    )
    inner = (
        f"at::native::{implementation}<{functor}>(at::TensorIteratorBase&, {functor} const&)"
        + "::{lambda(int)#1}"
    )
    return f"void at::native::elementwise_kernel<{sizes}, {inner}>(int, {inner})", group, 512


def _template(functor: str, arrays: int, same_shape: bool, same_type: bool) -> tuple[str, int, int]:
    if same_shape and same_type:
        return vectorized(functor, arrays), VECTOR_BLOCK, VALUES_PER_VECTOR_BLOCK
    return strided(functor, cast=not same_type)


def _arrays(operator: Operator) -> list[TensorInfo]:
    """The inputs that are read as arrays; a single value beside an array is passed as an
    argument.
    """
    tensors = present(operator)
    if operator.name in ("aten::fill_", "aten::zero_"):
        return []
    large = [tensor for tensor in tensors if elements(tensor) > 1]
    return large or tensors
