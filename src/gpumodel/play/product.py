"""The operators of one repeat of `python -m cifar_train.matmul`: two matrices up, their product, the result down."""

from __future__ import annotations

from gpumodel.recording.operators import Operator, TensorInfo
from gpumodel.workload import MatrixProduct


def operators_of_product(workload: MatrixProduct) -> tuple[Operator, ...]:
    """Two copies from pageable memory, one matrix product in float32, one copy back."""
    left = TensorInfo((workload.rows, workload.inner), "float32")
    right = TensorInfo((workload.inner, workload.columns), "float32")
    product = TensorInfo((workload.rows, workload.columns), "float32")
    flops = 2.0 * workload.rows * workload.inner * workload.columns
    host_only = {"host_only": True}
    operators: list[Operator] = []

    def add(name: str, parent: int | None, inputs: tuple[TensorInfo, ...], output: TensorInfo, **values) -> int:
        operators.append(Operator(len(operators), parent, name, inputs, (output,), **values))
        return len(operators) - 1

    def copy(tensor: TensorInfo, outer: str, direction: str) -> None:
        first = add(outer, None, (tensor,), tensor, scalars=host_only)
        second = add("aten::_to_copy", first, (tensor,), tensor, scalars=host_only)
        add("aten::copy_", second, (tensor, tensor), tensor, scalars={"direction": direction})

    copy(left, "aten::to", "HostToDevice")
    copy(right, "aten::to", "HostToDevice")
    above = add("aten::matmul", None, (left, right), product, scalars=host_only)
    add("aten::mm", above, (left, right), product, flops=flops)
    copy(product, "aten::to", "DeviceToHost")
    return tuple(operators)
