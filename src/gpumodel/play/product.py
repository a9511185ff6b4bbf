"""Programs other than the trainer, operator by operator.

The matrix product is `python -m cifar_train.matmul`: two matrices go to the device, are multiplied,
and their product comes back. The sharded step is that of a Llama, in the order in which FSDP2 works
on the host (https://github.com/pytorch/pytorch/tree/main/torch/distributed/fsdp/_fully_shard).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpumodel.play.waits import GATHER, SCATTER
from gpumodel.recording.operators import Operator, TensorInfo
from gpumodel.workload import MatrixProduct, ShardedStep


def operators_of_product(workload: MatrixProduct) -> tuple[Operator, ...]:
    """Two copies from pageable memory, one matrix product in float32, one copy back."""
    left = TensorInfo((workload.rows, workload.inner), "float32")
    right = TensorInfo((workload.inner, workload.columns), "float32")
    product = TensorInfo((workload.rows, workload.columns), "float32")
    flops = 2.0 * workload.rows * workload.inner * workload.columns
    host_only = {"host_only": True}
    operators: list[Operator] = []

    def add(
        name: str,
        parent: int | None,
        inputs: tuple[TensorInfo, ...],
        output: TensorInfo,
        **values: Any,
    ) -> int:
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


def operators_of_sharded_step(workload: ShardedStep) -> tuple[Operator, ...]:
    """A step's forward and backward pass, with its collectives; names of ranges are FSDP's own."""
    return tuple(_Sharded(workload).whole())


OUTER = -1
"""The unit of embedding and head, which is gathered once per step."""


@dataclass
class _Sharded:
    """Writes down the operators of one step. gathered -- unit -> number of its last gather."""

    workload: ShardedStep
    operators: list[Operator] = field(default_factory=list)
    phase: str = "forward"
    collectives: int = 0
    gathered: dict[int, int] = field(default_factory=dict)

    def whole(self) -> list[Operator]:
        work = self.workload
        head = (work.width, work.vocabulary)
        for unit in (OUTER, *range(work.layers)):
            self._gather(unit)
            self._use(unit)
            if unit != OUTER:
                self._forward(work.weights)
        self._multiply(head)
        self.phase = "backward"
        self._backward((head,))
        freed = set(range(work.layers - 1)) if work.reshard else set()
        # With `prefetch` the next layer's gather overlaps with the computation of this one.
        for unit in reversed(range(work.layers)):
            below = [unit - 1] if unit - 1 in freed else []
            self._use(unit)
            for ahead in below if work.prefetch else ():
                self._gather(ahead)
            if work.recompute:
                self._forward(work.weights[:-1])
            self._attend("backward")
            self._backward(work.weights)
            self._reduce(unit)
            for behind in () if work.prefetch else below:
                self._gather(behind)
        self._reduce(OUTER)
        return self.operators

    def _add(
        self,
        name: str,
        inputs: list[TensorInfo],
        output: TensorInfo,
        parent: int | None = None,
        **more: Any,
    ) -> int:
        number = len(self.operators)
        self.operators.append(
            Operator(number, parent, name, tuple(inputs), (output,), phase=self.phase, **more)
        )
        return number

    def _gather(self, unit: int) -> None:
        whole = self._of_unit(unit, "bfloat16")
        self.gathered[unit] = self._exchange("FSDP::all_gather", GATHER, self._share(whole), whole)

    def _reduce(self, unit: int) -> None:
        gradients, summed = self._of_unit(unit, "bfloat16"), self._of_unit(unit, "float32")
        self._add("aten::copy_", [summed, gradients], summed)
        self._exchange("FSDP::post_backward_reduce", SCATTER, summed, self._share(summed))

    def _use(self, unit: int) -> None:
        """Copy the parameters out of the buffer in which they were gathered, once it is full."""
        whole = self._of_unit(unit, "bfloat16")
        scalars = {"host_only": True, "joins": self.gathered[unit]}
        above = self._add("FSDP::all_gather_copy_out", [whole], whole, scalars=scalars)
        self._add(
            "aten::copy_", [whole, whole], whole, above, scalars={"direction": "DeviceToDevice"}
        )

    def _exchange(self, range_name: str, kind: str, sent: TensorInfo, received: TensorInfo) -> int:
        above: int | None = None
        for name in (range_name, f"c10d::{kind}_", "record_param_comms"):
            above = self._add(name, [sent], received, above, scalars={"host_only": True})
        leaf = "nccl:_all_gather_base" if kind == GATHER else "nccl:_reduce_scatter_base"
        self._add(leaf, [sent], received, above, scalars={"collective": kind})
        self.collectives += 1
        return self.collectives - 1

    def _of_unit(self, unit: int, dtype: str) -> TensorInfo:
        work = self.workload
        return TensorInfo(
            (work.outer_parameters if unit == OUTER else work.layer_parameters,), dtype
        )

    def _share(self, whole: TensorInfo) -> TensorInfo:
        """One rank's part; all parts are padded to equal sizes."""
        return TensorInfo((-(-whole.shape[0] // self.workload.ranks),), whole.dtype)

    def _forward(self, weights: tuple[tuple[int, int], ...]) -> None:
        for number, weight in enumerate(weights):
            self._multiply(weight)
            if number == 0:
                self._attend("forward")

    def _multiply(self, weight: tuple[int, int]) -> None:
        self._mm((self.workload.tokens, weight[0]), weight)

    def _backward(self, weights: tuple[tuple[int, int], ...]) -> None:
        """For each weight, in reverse order: the gradient of its input, and its own."""
        tokens = self.workload.tokens
        for inputs, outputs in reversed(weights):
            self._mm((tokens, outputs), (outputs, inputs))
            self._mm((outputs, tokens), (tokens, inputs))

    def _mm(self, left: tuple[int, int], right: tuple[int, int]) -> None:
        factors = [TensorInfo(left, "bfloat16"), TensorInfo(right, "bfloat16")]
        flops = 2.0 * left[0] * left[1] * right[1]
        self._add("aten::mm", factors, TensorInfo((left[0], right[1]), "bfloat16"), flops=flops)

    def _attend(self, direction: str) -> None:
        work = self.workload
        shape = (work.tokens // work.sequence, work.heads, work.sequence, work.width // work.heads)
        heads = TensorInfo(shape, "bfloat16")
        inputs = [heads] * (3 if direction == "forward" else 4)
        self._add(f"aten::_flash_attention_{direction}", inputs, heads, scalars={"is_causal": True})
