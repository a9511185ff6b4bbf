"""One call of an operator, as it is recorded.

Conventions beyond aten's own schemas:
  aten::copy_                inputs are (destination, source); scalars["direction"] is HostToDevice, DeviceToHost
                             or DeviceToDevice where it is a plain memory copy (equal type and order), and absent
                             where a kernel converts or reorders; scalars["non_blocking"] where the host goes on.
  aten::_local_scalar_dense  reads one number back: the host waits for the device, then 4 bytes DeviceToHost.
  nccl:all_reduce, nccl:broadcast  scalars["collective"] is allreduce or broadcast; nothing runs with one rank.
  aten::_foreach_*, aten::_amp_foreach_*, aten::cat   lists are unrolled; scalars["lists"] gives their lengths.
  triton_poi_..., triton_red_...   several operators that a compiler fused into one kernel; inputs are read once
                             and outputs written once.
  scalars["host_only"]       views, allocations and arithmetic on the host: never a kernel (`Operator.on_device`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Scalar = str | bool | int | float | tuple[Any, ...] | None
"""An argument that is no tensor."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's shape, its type without the word torch ("float16"), and whether it lies in NHWC order."""

    shape: tuple[int, ...]
    dtype: str
    channels_last: bool = False


@dataclass(frozen=True)
class Operator:
    """One call of an operator, parents before children, in the order of calls.

    index, parent   -- place in the step, and that of the operator that called it.
    name            -- as Kineto writes it: aten::addmm, autograd::engine::evaluate_function: ...
    inputs          -- tensors in the order of the arguments, lists of tensors unrolled; None where one is absent.
    outputs         -- tensors that came back.
    scalars         -- other arguments by name: stride, padding, groups, transposed, output_mask, ...
    phase           -- data, forward, loss, backward or optimizer.
    module          -- path of the layer, "" outside of the model.
    sequence_number -- links a forward operator with its backward one.
    flops           -- of matrix products and convolutions; a multiplication and an addition are two.
    """

    index: int
    parent: int | None
    name: str
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    scalars: dict[str, Scalar] = field(default_factory=dict)
    phase: str = ""
    module: str = ""
    sequence_number: int | None = None
    flops: float = 0.0

    @property
    def on_device(self) -> bool:
        """Whether it may launch device work if it has no children."""
        return "host_only" not in self.scalars
