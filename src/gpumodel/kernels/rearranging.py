"""Operators that move values without arithmetic: joining, indexing, shifting, padding, pooling,
random numbers.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from gpumodel.kernels.elementwise import fill, strided, vectorized
from gpumodel.kernels.launch import (
    ITEM_BYTES,
    KernelLaunch,
    accumulator,
    blocks,
    cpp,
    elements,
    nbytes,
    present,
    result,
)
from gpumodel.kernels.transfers import COPY_FUNCTOR
from gpumodel.recording.operators import Operator, TensorInfo

_SPACE = "at::native::(anonymous namespace)::"

_CAT_TENSORS = 128
"""Most tensors that one CatArrayBatchedCopy takes (ATen's Shape.cu)."""


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("gpumodel") / "data" / "rearranging.toml").read_text())


def handles(name: str) -> bool:
    """Whether this operator is one of those that only move values."""
    return name in _table()


def launches(operator: Operator) -> tuple[KernelLaunch, ...]:
    """The kernel that moves the values, after a fill where the result must be cleared first."""
    target = result(operator)
    sources = present(operator)
    entry = _table()[operator.name]
    clears = entry.get("clears", False)
    name, group, per_group = _name(entry, target.dtype)
    moved = nbytes(sources[0]) if sources else 0.0
    move = KernelLaunch(
        name=name,
        grid=(blocks(elements(target), per_group) * group, 1, 1),
        workgroup=(group, 1, 1),
        vector_registers=20,
        scalar_registers=64,
        data_type=target.dtype,
        bytes_read=min(nbytes(*sources), nbytes(target) + moved),
        bytes_written=min(nbytes(target), moved) if clears else nbytes(target),
        cost_class="elementwise_strided",
    )
    if not clears:
        return (move,)
    return clear(target), move


def _name(entry: dict[str, Any], dtype: str) -> tuple[str, int, int]:
    if "name" in entry:
        return _filled(entry["name"], dtype), 256, 1024
    functor = COPY_FUNCTOR if entry["functor"] == "copy" else entry["functor"]
    return strided(_filled(functor, dtype), cast=False)


def _filled(template: str, dtype: str) -> str:
    return fill(template, dtype).replace("%W", str(ITEM_BYTES[dtype]))


def clear(target: TensorInfo) -> KernelLaunch:
    """Fill a tensor with zeros."""
    return KernelLaunch(
        name=vectorized(fill("at::native::FillFunctor<%T>", target.dtype), 1),
        grid=(blocks(elements(target), 1024) * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=4,
        scalar_registers=32,
        data_type=target.dtype,
        bytes_written=nbytes(target),
    )


def concatenate(operator: Operator) -> tuple[KernelLaunch, ...]:
    """aten::cat: one launch for up to 128 tensors."""
    tensors, target = present(operator), result(operator)
    width = f"{_SPACE}OpaqueType<{ITEM_BYTES[target.dtype]}u>"
    dimensions = max(1, len(target.shape))
    return tuple(
        KernelLaunch(
            name=(
                f"void {_SPACE}CatArrayBatchedCopy_contig<{width}, unsigned int, {dimensions}, 128,"
                f" 1>({width}*, {_SPACE}CatArrInputTensorMetadata<{width}, unsigned int, 128, 1>,"
                f" {_SPACE}TensorSizeStride<unsigned int, 4u>, int, unsigned int)"
            ),
            grid=(256 * blocks(max(elements(tensor) for tensor in part), 65536), len(part), 1),
            workgroup=(256, 1, 1),
            vector_registers=4,
            scalar_registers=32,
            data_type=target.dtype,
            bytes_read=nbytes(*part),
            bytes_written=nbytes(*part),
            cost_class="elementwise",
        )
        for part in (
            tensors[start : start + _CAT_TENSORS] for start in range(0, len(tensors), _CAT_TENSORS)
        )
    )


def max_pool(operator: Operator) -> tuple[KernelLaunch, ...]:
    """Max pooling in either direction; the backward pass first clears the gradient."""
    backward = operator.name.endswith("backward")
    target = operator.outputs[0] if operator.outputs else result(operator)
    kind, wide = cpp(target.dtype), accumulator(target.dtype)
    order = "nhwc" if target.channels_last else "nchw"
    numbers = ", ".join(["int"] * 10)
    if backward:
        arguments = f"{kind} const*, long const*, int, long, long, long, {numbers}, {kind}*"
        name = f"max_pool_backward_{order}<{kind}, {wide}>({arguments})"
    else:
        name = (
            f"max_pool_forward_{order}<{kind}>(int, {kind} const*, long, long, long, {numbers},"
            f" {kind}*, long*)"
        )
    pool = KernelLaunch(
        name=f"void {_SPACE}{name}",
        grid=(blocks(elements(target), 256) * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=32,
        scalar_registers=80,
        flops=9.0 * elements(target),
        data_type=target.dtype,
        bytes_read=nbytes(*present(operator)),
        bytes_written=nbytes(*operator.outputs),
        cost_class="max_pool_backward" if backward else "max_pool_forward",
    )
    if not backward:
        return (pool,)
    return clear(target), pool
