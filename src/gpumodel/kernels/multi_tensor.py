"""Operators on lists of tensors: the optimizer's foreach and fused kernels, and gradient unscaling.

ATen splits the tensors into chunks and packs as many chunks into a launch as its kernel arguments
hold. The limits and the packing are those of ATen's MultiTensorApply.cuh. They give exactly the
numbers of launches and blocks in the 4-rank trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumodel.kernels.launch import ITEM_BYTES, KernelLaunch, cpp, elements, present
from gpumodel.recording.operators import Operator

CHUNK = 65536
BLOCK_LIMIT = 320
GROUP = 512
"""Values of a chunk, blocks of a launch (a block works on one chunk), and work-items of a block."""

_LIMITS = {
    "list": {1: 110, 2: 64, 3: 48, 4: 36, 5: 30},
    "scalar list": {1: 96, 2: 64, 3: 48, 4: 36, 5: 30},
    "fused": {4: 36, 5: 30},
}
"""Tensors per launch by depth, which is the number of lists that take part: depth_to_max_tensors
and depth_to_max_tensors_scalarlist of MultiTensorApply.cuh.
"""

_SPACE = "at::native::(anonymous namespace)::"

_FUNCTORS: dict[str, tuple[int, str, str, float, int, int]] = {
    "_foreach_lerp_": (
        2,
        "list",
        "TernaryOpScalarFunctor<%T, 2, 2, 0>, at::native::LerpFunctor<%T>, %T",
        3,
        2,
        1,
    ),
    "_foreach_mul_": (
        1,
        "list",
        "BinaryOpScalarFunctor<%T, 1, 1, 0>, std::multiplies<%T>, %T",
        1,
        1,
        1,
    ),
    "_foreach_add_": (1, "list", "BinaryOpScalarFunctor<%T, 1, 1, 0>, std::plus<%T>, %T", 1, 1, 1),
    "_foreach_sub_": (
        2,
        "list",
        "BinaryOpListAlphaFunctor<%T, 2, 2, 0>, std::minus<%T>, %T",
        1,
        2,
        1,
    ),
    "_foreach_addcmul_": (
        3,
        "list",
        "PointwiseOpScalarFunctor<%T, 3, 3, 0>, std::multiplies<%T>, %T",
        3,
        3,
        1,
    ),
    "_foreach_sqrt": (2, "list", "UnaryOpFunctor<%T, 2, 1, 1>, at::native::Sqrt<%T>", 1, 1, 1),
    "_foreach_div_": (
        1,
        "scalar list",
        "BinaryOpScalarListFunctor<%T, 1, 1, 0>, std::divides<%T>",
        1,
        1,
        1,
    ),
    "_foreach_addcdiv_": (
        3,
        "scalar list",
        "PointwiseOpScalarListFunctor<%T, 3, 3, 0>, std::divides<%T>",
        3,
        3,
        1,
    ),
    "_fused_adam_": (
        4,
        "fused",
        "FusedAdamMathFunctor<%T, 4, (at::native::ADAM_MODE)0, false>",
        16,
        4,
        3,
    ),
    "_amp_foreach_non_finite_check_and_unscale_": (
        1,
        "list",
        (
            "UnaryOpFunctor<%T, 1, 1, 0>,"
            " at::native::_amp_foreach_non_finite_check_and_unscale_cuda_"
            "(c10::ArrayRef<at::Tensor>, at::Tensor&,"
            " at::Tensor const&)::{lambda()#1}::operator()()"
            " const::{lambda()#2}::operator()() const::{lambda(%T)#1}"
        ),
        1,
        1,
        1,
    ),
}
"""Operator -> depth, kind of metadata, functor with its arguments, and FLOPs, reads and writes per
value of the first list.
"""


def handles(name: str) -> bool:
    """Whether this operator works on lists of tensors."""
    return name.removeprefix("aten::") in _FUNCTORS


def packed(sizes: Sequence[int], tensor_limit: int) -> list[tuple[int, int]]:
    """(blocks, values) of each launch, for tensors of these numbers of values, none of which is
    0.
    """
    launches: list[tuple[int, int]] = []
    tensors = count = values = 0
    for index, size in enumerate(sizes):
        chunks = -(-size // CHUNK)
        tensors += 1
        for chunk in range(chunks):
            count += 1
            values += min(CHUNK, size - chunk * CHUNK)
            last_of_tensor = chunk == chunks - 1
            finished = last_of_tensor and index == len(sizes) - 1
            if (tensors == tensor_limit and last_of_tensor) or count == BLOCK_LIMIT or finished:
                launches.append((count, values))
                count = values = 0
                # A tensor that is cut in two counts in the next launch as well.
                tensors = 0 if last_of_tensor else 1
    return launches


def launches(operator: Operator) -> tuple[KernelLaunch, ...]:
    """The launches of one operator on lists; its first list says how large they are."""
    name = operator.name.removeprefix("aten::")
    depth, kind, arguments, flops, reads, writes = _FUNCTORS[name]
    lists = operator.scalars.get("lists") or [len(operator.inputs) // (4 if kind == "fused" else 1)]
    first = [tensor for tensor in operator.inputs[: lists[0]] if tensor is not None]
    dtype = first[0].dtype
    width = ITEM_BYTES[dtype]
    largest_chunk = min(CHUNK, max(elements(tensor) for tensor in first))
    return tuple(
        KernelLaunch(
            name=_name(kind, depth, arguments, dtype),
            grid=(block_count * GROUP, 1, 1),
            workgroup=(GROUP, 1, 1),
            vector_registers=40 if kind == "fused" else 12,
            scalar_registers=32,
            flops=flops * values,
            data_type=dtype,
            bytes_read=float(reads * values * width),
            bytes_written=float(writes * values * width),
            cost_class="multi_tensor",
            # One workgroup works through a whole chunk.
            serial_steps=float(largest_chunk),
        )
        for block_count, values in packed(
            [elements(tensor) for tensor in first], _LIMITS[kind][depth]
        )
    )


def update_scale(operator: Operator) -> tuple[KernelLaunch, ...]:
    """aten::_amp_update_scale_: one work-item adjusts the gradient scale."""
    return (
        KernelLaunch(
            name=(
                "at::native::amp_update_scale_cuda_kernel(float*, int*, float const*, double,"
                " double, int)"
            ),
            grid=(1, 1, 1),
            workgroup=(1, 1, 1),
            vector_registers=8,
            scalar_registers=24,
            flops=2.0,
            bytes_read=12.0 * len(present(operator)[:1]),
            bytes_written=8.0,
            cost_class="elementwise",
        ),
    )


def _name(kind: str, depth: int, arguments: str, dtype: str) -> str:
    metadata = {
        "list": f"{_SPACE}TensorListMetadata<{depth}>",
        "scalar list": f"{_SPACE}TensorListScalarListMetadata<{cpp(dtype)}, {depth}>",
        "fused": f"{_SPACE}FusedOptimizerTensorListMetadata<{depth}>",
    }[kind]
    parameters = _SPACE + arguments.replace("%T", cpp(dtype))
    if kind == "fused":
        parameters = f"at::native::{arguments.replace('%T', cpp(dtype))}"
        values = (
            "float const*, double, double, double, double, double, bool, float const*, float const*"
        )
        parameters = f"{parameters}, {values}"
    # Demangled names keep a space between two closing brackets.
    close = " >" if parameters.endswith(">") else ">"
    return (
        f"void {_SPACE}multi_tensor_apply_kernel<{metadata}, {parameters}{close}({metadata},"
        f" {parameters})"
    )
