"""Operators that reduce many values to few: sums, means, norms, softmax and the loss.

Names follow public MI300X traces of torch 2.x; see elementwise.py.
"""

from __future__ import annotations

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

WARP_SOFTMAX_LIMIT = 1024
"""Rows up to this length go to softmax_warp_forward (ATen's PersistentSoftmax.cuh); longer rows get
a block each.
"""

_OPERATIONS = {
    "aten::mean": "at::native::MeanOps<%T, %A, %A, %T>",
    "aten::argmax": "at::native::ArgMaxOps<%A>",
    "aten::linalg_vector_norm": "at::native::NormTwoOps<%T, %A, %T>",
    "aten::sum": (
        "at::native::func_wrapper_t<%T, at::native::sum_functor<%T, %A, %T>"
        "::operator()(at::TensorIterator&)::{lambda(%A, %A)#1}>"
    ),
}


def reduce(operator: Operator) -> tuple[KernelLaunch, ...]:
    """One reduce_kernel. ATen reduces across rows with 128 work-items of four values each, and
    along rows with 512; which of the two it is, is guessed from the result's size and the type.
    """
    source, target = present(operator)[0], result(operator)
    result_type = "long" if operator.name == "aten::argmax" else cpp(target.dtype)
    operation = (
        _OPERATIONS[operator.name]
        .replace("%T", cpp(source.dtype))
        .replace("%A", accumulator(source.dtype))
    )
    sizes, group = (
        ("128, 4", 128) if elements(target) >= 128 or source.dtype == "float16" else ("512, 1", 512)
    )
    if operator.name == "aten::argmax":
        sizes, group = "512, 1", 512
    inner = (
        f"at::native::ReduceOp<{cpp(source.dtype)}, {operation}, unsigned int, {result_type}, 4>"
    )
    return (
        KernelLaunch(
            name=f"void at::native::reduce_kernel<{sizes}, {inner} >({inner})",
            grid=(blocks(elements(target), 4) * group, 1, 1),
            workgroup=(group, 1, 1),
            vector_registers=28,
            scalar_registers=80,
            lds_bytes=group * 4 if group == 512 else 0,
            flops=float(elements(source)),
            data_type=source.dtype,
            bytes_read=nbytes(source),
            bytes_written=nbytes(target),
            cost_class="reduce",
        ),
    )


def softmax(operator: Operator) -> tuple[KernelLaunch, ...]:
    """Softmax and its logarithm along the last dimension, forward or backward."""
    backward = "backward" in operator.name
    tensor = result(operator)
    length = max(1, tensor.shape[-1]) if tensor.shape else 1
    return (
        KernelLaunch(
            name=_softmax_name(tensor, length, backward, is_log="log_softmax" in operator.name),
            grid=(blocks(elements(tensor) / length, 4) * 64, 2, 1),
            workgroup=(64, 2, 1),
            vector_registers=24,
            scalar_registers=48,
            flops=5.0 * elements(tensor),
            data_type=tensor.dtype,
            bytes_read=nbytes(*present(operator)),
            bytes_written=nbytes(tensor),
            cost_class="softmax",
        ),
    )


def _softmax_name(tensor: TensorInfo, length: int, backward: bool, is_log: bool) -> str:
    kind, wide = cpp(tensor.dtype), accumulator(tensor.dtype)
    log = str(is_log).lower()
    direction = "backward" if backward else "forward"
    if length > WARP_SOFTMAX_LIMIT:
        epilogue = f"{'Log' if is_log else ''}SoftMax{direction.capitalize()}"
        return (
            f"void at::native::(anonymous namespace)::cunn_SoftMax{direction.capitalize()}<4,"
            f" {kind}, {wide}, {kind}, at::native::(anonymous"
            f" namespace)::{epilogue}Epilogue>({kind}*, {kind} const*, long)"
        )
    # The kernel is compiled for rows of up to 2^exponent values.
    exponent = (length - 1).bit_length()
    arguments = (
        f"{kind}*, {kind} const*, "
        + (f"{kind} const*, " if backward else "")
        + "int, int, int, bool const*"
    )
    arguments += "" if backward else ", int, bool"
    return (
        f"void (anonymous namespace)::softmax_warp_{direction}<{kind}, {kind}, {wide}, {exponent},"
        f" {log}, false>({arguments})"
    )


def loss(operator: Operator) -> tuple[KernelLaunch, ...]:
    """Negative log likelihood: one workgroup reduces the batch. In the backward pass the fill with
    zeros before it is an operator of its own.
    """
    backward = "backward" in operator.name
    scores = next(
        (tensor for tensor in present(operator) if len(tensor.shape) == 2), result(operator)
    )
    kind, wide = cpp(scores.dtype), accumulator(scores.dtype)
    batch = scores.shape[0] if scores.shape else 1
    if backward:
        types, numbers = f"{kind}, long", "bool, int, int, long, long"
        arguments = f"{kind}*, {kind} const*, long const*, {kind} const*, {kind} const*"
    else:
        types, numbers = f"{kind}, {wide}, long", "bool, long, long, long, long"
        arguments = f"{kind}*, {kind}*, {kind} const*, long const*, {kind} const*"
    direction = "backward" if backward else "forward"
    kernel = f"nll_loss_{direction}_reduce_cuda_kernel_2d"
    return (
        KernelLaunch(
            name=(
                f"void at::native::(anonymous namespace)::{kernel}<{types}>({arguments}, {numbers})"
            ),
            grid=(32, 1, 1),
            workgroup=(32, 1, 1),
            vector_registers=20,
            scalar_registers=48,
            flops=float(batch),
            data_type=scores.dtype,
            bytes_read=batch * 12.0,
            bytes_written=batch * 4.0,
            cost_class="loss",
        ),
    )
