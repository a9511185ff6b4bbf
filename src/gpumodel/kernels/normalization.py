"""Batch and layer normalisation.

Batches of float16 or float32 in NCHW order with float32 parameters go to MIOpen, all others to
ATen's own kernels, as public traces of MI300X show (float16: amd/HPCTrainingExamples; bfloat16:
AMD-AGI/TraceLens test data). Layer normalisation follows a public MI350X recording of torch 2.x.
"""

from __future__ import annotations

from typing import Any

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

_SPACE = "at::native::(anonymous namespace)::"


def batch_norm(operator: Operator) -> tuple[KernelLaunch, ...]:
    """aten::miopen_batch_norm and its backward: one MIOpen kernel, one workgroup for each
    channel.
    """
    backward = operator.name.endswith("backward")
    values = present(operator)[0]
    channels, per_channel = _channels(values)
    group = min(1024, max(64, per_channel // 64))
    return (
        KernelLaunch(
            name="MIOpenBatchNormBwdSpatial" if backward else "MIOpenBatchNormFwdTrainSpatial",
            grid=(channels * group, 1, 1),
            workgroup=(group, 1, 1),
            vector_registers=48,
            scalar_registers=48,
            lds_bytes=group * 8,
            flops=(11.0 if backward else 8.0) * elements(values),
            data_type=values.dtype,
            bytes_read=nbytes(*present(operator)),
            bytes_written=nbytes(*operator.outputs),
            runtime_call="hipExtModuleLaunchKernel",
            cost_class="batch_norm_backward" if backward else "batch_norm_forward",
            serial_steps=float(per_channel),
        ),
    )


def native_batch_norm(operator: Operator) -> tuple[KernelLaunch, ...]:
    """ATen's batch norm: statistics, running averages and the transform."""
    values, types, common = _native(operator)
    channels, per_channel = _channels(values)
    size = nbytes(values)
    statistics = KernelLaunch(
        name=(
            "void at::native::batch_norm_collect_statistics_kernel<at::native::Var,"
            f" {', '.join(types)}, int>"
        ),
        flops=4.0 * elements(values),
        bytes_read=size,
        bytes_written=8.0 * channels,
        vector_registers=32,
        cost_class="native_batch_norm_statistics",
        serial_steps=float(per_channel),
        **common,
    )
    transform = KernelLaunch(
        name=f"void at::native::batch_norm_transform_input_kernel<{', '.join(types)}, true, int>",
        flops=4.0 * elements(values),
        bytes_read=size,
        bytes_written=size,
        vector_registers=24,
        cost_class="elementwise",
        **common,
    )
    return statistics, _update_statistics(channels), transform


def native_batch_norm_backward(operator: Operator) -> tuple[KernelLaunch, ...]:
    """ATen's batch norm backward: one kernel, one workgroup for each channel."""
    values, types, common = _native(operator)
    return (
        KernelLaunch(
            name=f"void at::native::batch_norm_backward_kernel<{', '.join(types)}, int>",
            flops=11.0 * elements(values),
            bytes_read=2 * nbytes(values),
            bytes_written=nbytes(values),
            vector_registers=40,
            cost_class="native_batch_norm_backward",
            serial_steps=float(_channels(values)[1]),
            **common,
        ),
    )


def _native(operator: Operator) -> tuple[TensorInfo, tuple[str, str, str], dict[str, Any]]:
    """The normalised tensor, the types in the kernels' names, and what all its kernels have in
    common.
    """
    tensors = present(operator)
    values, weight = (
        tensors[0],
        next((tensor for tensor in tensors if len(tensor.shape) == 1), tensors[0]),
    )
    common = {
        "data_type": values.dtype,
        "workgroup": (256, 1, 1),
        "grid": (_channels(values)[0] * 256, 1, 1),
        "scalar_registers": 64,
    }
    return values, (cpp(values.dtype), cpp(weight.dtype), accumulator(values.dtype)), common


def _update_statistics(channels: int) -> KernelLaunch:
    return KernelLaunch(
        name=(
            f"void {_SPACE}unrolled_elementwise_kernel_for_multi_outputs<3, "
            f"{_SPACE}batch_norm_update_stats_and_invert("
            f"{', '.join(['at::Tensor const&'] * 4)}, double, double, long)"
        )
        + "::{lambda()#1}>",
        grid=(blocks(channels, 1024) * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=20,
        scalar_registers=48,
        bytes_read=16.0 * channels,
        bytes_written=12.0 * channels,
        cost_class="elementwise_strided",
    )


def layer_norm(operator: Operator) -> tuple[KernelLaunch, ...]:
    """aten::native_layer_norm: one pass over each row."""
    values = present(operator)[0]
    kind, wide, rows = cpp(values.dtype), accumulator(values.dtype), _rows(operator, values)
    pointers = f"{kind} const*, {kind} const*, {kind} const*, {wide}*, {wide}*, {kind}*"
    return (
        KernelLaunch(
            name=(
                f"void {_SPACE}vectorized_layer_norm_kernel<{kind}, {wide}, false>(int, {wide},"
                f" {pointers})"
            ),
            grid=(rows * 64, 4, 1),
            workgroup=(64, 4, 1),
            vector_registers=12,
            scalar_registers=48,
            flops=8.0 * elements(values),
            data_type=values.dtype,
            bytes_read=nbytes(values),
            bytes_written=nbytes(*operator.outputs),
            cost_class="layer_norm",
        ),
    )


def layer_norm_backward(operator: Operator) -> tuple[KernelLaunch, ...]:
    """Gradient of the input, then the gradients of the parameters in two kernels."""
    values = present(operator)[0]
    kind, wide, rows = cpp(values.dtype), accumulator(values.dtype), _rows(operator, values)
    size = nbytes(values)
    pointers = (
        f"{kind} const*, {kind} const*, {wide} const*, {wide} const*, {kind} const*, {kind}*, int"
    )
    of_input = KernelLaunch(
        name=f"void {_SPACE}layer_norm_grad_input_kernel<{kind}, {wide}, false>({pointers})",
        grid=(rows * 256, 1, 1),
        workgroup=(256, 1, 1),
        vector_registers=12,
        scalar_registers=48,
        flops=11.0 * elements(values),
        data_type=values.dtype,
        bytes_read=2 * size,
        bytes_written=size,
        cost_class="layer_norm",
    )
    return of_input, *_parameter_gradients(values, rows)


def _parameter_gradients(values: TensorInfo, rows: int) -> tuple[KernelLaunch, KernelLaunch]:
    """Partial sums over 64 parts of the rows, then their sum."""
    kind, wide, width = cpp(values.dtype), accumulator(values.dtype), elements(values) // rows
    partial = (
        f"{kind} const*, {kind} const*, long, long, {wide} const*, {wide} const*, {wide}*, {wide}*"
    )
    final = f"{wide} const*, {wide} const*, int, long, {kind}*, {kind}*"
    common = {"data_type": values.dtype, "scalar_registers": 48, "cost_class": "layer_norm"}
    return (
        KernelLaunch(
            name=f"void {_SPACE}cuComputePartGradGammaBeta<{kind}, {wide}, false>({partial})",
            grid=(blocks(width, 64) * 64, 256, 1),
            workgroup=(64, 4, 1),
            vector_registers=20,
            flops=4.0 * elements(values),
            bytes_read=2 * nbytes(values),
            bytes_written=64.0 * width * 4,
            **common,
        ),
        KernelLaunch(
            name=f"void {_SPACE}cuComputeGradGammaBeta<{kind}, {wide}, false>({final})",
            grid=(blocks(width, 64) * 64, 8, 1),
            workgroup=(64, 8, 1),
            vector_registers=8,
            flops=64.0 * width,
            bytes_read=64.0 * width * 4,
            bytes_written=8.0 * width,
            **common,
        ),
    )


def _channels(values: TensorInfo) -> tuple[int, int]:
    """Number of channels, and values per channel, of a tensor [N, C, ...]."""
    channels = values.shape[1] if len(values.shape) > 1 else 1
    return channels, max(1, elements(values) // max(1, channels))


def _rows(operator: Operator, values: TensorInfo) -> int:
    """How many vectors are normalised. The normalised dimensions are the last one if they are not
    stated.
    """
    normalised = operator.scalars.get("normalized_shape") or values.shape[-1:]
    width = 1
    for size in normalised:
        width *= int(size)
    return max(1, elements(result(operator)) // max(1, width))
