"""One call of an operator, as it is recorded.

Conventions beyond aten's own schemas:
  aten::copy_                inputs are (destination, source); scalars["direction"] is HostToDevice,
                             DeviceToHost or DeviceToDevice where it is a plain memory copy (equal
                             type and order), and absent where a kernel converts or reorders;
                             scalars["non_blocking"] where the host goes on.
  aten::_local_scalar_dense  reads one number back: the host waits for the device, then 4 bytes go
                             from device to host.
  nccl:all_reduce, nccl:broadcast, nccl:_all_gather_base, nccl:_reduce_scatter_base
                             scalars["collective"] is torch's name for the collective; with one rank
                             nothing runs.
  scalars["joins"]           number of a collective of the step: before the operator the compute
                             stream waits for it.
  aten::_foreach_*, aten::_amp_foreach_*, aten::cat
                             lists are unrolled; scalars["lists"] gives their lengths.
  triton_poi_..., triton_red_...
                             several operators that a compiler fused into one kernel; inputs are
                             read once and outputs are written once.
  scalars["host_only"]       views, allocations and arithmetic on the host, which never launch a
                             kernel (`Operator.on_device`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Scalar = str | bool | int | float | tuple[Any, ...] | None
"""An argument that is not a tensor."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's shape, its type without the word torch ("float16"), and whether it lies in NHWC
    order.
    """

    shape: tuple[int, ...]
    dtype: str
    channels_last: bool = False


@dataclass(frozen=True)
class Operator:
    """One call of an operator. A step has its operators in the order of calls, parents before
    children.

    index, parent   -- place in the step, and the place of the operator that called it.
    name            -- as Kineto writes it: aten::addmm, autograd::engine::evaluate_function: ...
    inputs          -- tensors in the order of the arguments, lists of tensors unrolled; None where
                       one is absent.
    outputs         -- tensors that it returned.
    scalars         -- other arguments by name: stride, padding, groups, transposed, output_mask,
                       ...
    phase           -- data, forward, loss, backward or optimizer.
    module          -- path of the layer, "" outside of the model.
    sequence_number -- links a forward operator with its backward one.
    flops           -- FLOPs of matrix products and convolutions, else 0; a multiplication and an
                       addition are two.
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


READS_BACK = frozenset({"aten::_local_scalar_dense"})
"""Operators whose result is a number on the host."""

IGNORED = frozenset({"aten::lift_fresh", "aten::_nested_tensor_size"})
"""Operators that the recording itself makes, or that leave nothing in a trace."""

_VIEWS = (
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "t",
        "transpose",
        "permute",
        "expand",
        "as_strided",
    ),
    *(
        "as_strided_",
        "slice",
        "select",
        "squeeze",
        "unsqueeze",
        "split",
        "split_with_sizes",
        "unbind",
        "chunk",
    ),
    *("alias", "detach", "detach_", "narrow", "diagonal"),
)
_ALLOCATIONS = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
)
HOST_ONLY = frozenset(f"aten::{name}" for name in (*_VIEWS, *_ALLOCATIONS))
"""Views and allocations: they cost time on the host and launch nothing."""

_ABOVE: dict[str, tuple[str, ...]] = {
    "aten::convolution": (
        "aten::conv2d",
        "aten::convolution",
        "aten::_convolution",
        "aten::miopen_convolution",
    ),
    "aten::native_batch_norm_backward": ("aten::miopen_batch_norm_backward",),
    "aten::relu": ("aten::relu", "aten::clamp_min"),
    "aten::relu_": ("aten::relu_", "aten::clamp_min_"),
    "aten::_to_copy": ("aten::to", "aten::_to_copy", "aten::copy_"),
    "aten::clone": ("aten::clone", "aten::copy_"),
    "aten::max_pool2d_with_indices": ("aten::max_pool2d", "aten::max_pool2d_with_indices"),
    "aten::native_layer_norm": ("aten::layer_norm", "aten::native_layer_norm"),
    "aten::_softmax": ("aten::softmax", "aten::_softmax"),
    "aten::_log_softmax": ("aten::log_softmax", "aten::_log_softmax"),
    "aten::nll_loss_forward": (
        "aten::cross_entropy_loss",
        "aten::nll_loss_nd",
        "aten::nll_loss_forward",
    ),
    "aten::addmm": ("aten::linear", "aten::addmm"),
    "aten::bmm": ("aten::matmul", "aten::bmm"),
    "aten::ones_like": ("aten::ones_like", "aten::fill_"),
    "aten::full": ("aten::full", "aten::fill_"),
    "aten::zeros": ("aten::zeros", "aten::zero_", "aten::fill_"),
    "aten::zeros_like": ("aten::zeros_like", "aten::zero_", "aten::fill_"),
    "aten::new_zeros": ("aten::new_zeros", "aten::zero_", "aten::fill_"),
    "aten::scalar_tensor": ("aten::scalar_tensor", "aten::fill_"),
    "aten::_local_scalar_dense": ("aten::item", "aten::_local_scalar_dense"),
    "aten::_scaled_dot_product_flash_attention": (
        "aten::scaled_dot_product_attention",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_flash_attention_forward",
    ),
    "aten::_scaled_dot_product_efficient_attention": (
        "aten::scaled_dot_product_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_efficient_attention_forward",
    ),
    "aten::_scaled_dot_product_flash_attention_backward": (
        "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_flash_attention_backward",
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_efficient_attention_backward",
    ),
}
"""Dispatched operator -> the chain of names in a trace, outermost first; the last one launches the
work.

The chains of ResNet are those of a published torch.profiler trace of this workload on MI300X
(https://github.com/AMD-AGI/TraceLens, tests/traces/mi300); the others are PyTorch's own call order
(https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml).
"""


def parents_and_leaf(name: str, inputs: list[Any]) -> tuple[tuple[str, ...], str]:
    """The names of the operators above a dispatched one, and the name of the leaf. inputs -- its
    tensors.

    MIOpen normalises batches in NCHW order with float32 parameters; all else runs in PyTorch's own
    kernels (https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/Normalization.cpp).
    """
    if name == "aten::native_batch_norm":
        leaf = "aten::miopen_batch_norm" if _suits_miopen(inputs[0], inputs[1]) else name
        return ("aten::batch_norm", "aten::_batch_norm_impl_index"), leaf
    if name == "aten::native_batch_norm_backward" and not _suits_miopen(inputs[1], inputs[2]):
        return (), name
    chain = _ABOVE.get(name, (name,))
    return chain[:-1], chain[-1]


def _suits_miopen(values: Any, weight: Any) -> bool:
    half_or_full = str(values.dtype) in ("torch.float16", "torch.float32")
    return values.is_contiguous() and half_or_full and str(weight.dtype) == "torch.float32"
