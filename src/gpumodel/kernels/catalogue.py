"""Which kernels an operator launches: a table from names to the modules that know them."""

from __future__ import annotations

from collections.abc import Callable

from gpumodel.devices import Device
from gpumodel.kernels import (
    attention,
    compiled,
    convolutions,
    elementwise,
    matrix_products,
    multi_tensor,
    normalization,
    rearranging,
    reductions,
    transfers,
)
from gpumodel.kernels.launch import KernelLaunch
from gpumodel.recording.operators import Operator
from tidyprof.errors import UserError

_BY_NAME: dict[str, Callable[[Operator], tuple[KernelLaunch, ...]]] = {
    "aten::miopen_batch_norm": normalization.batch_norm,
    "aten::miopen_batch_norm_backward": normalization.batch_norm,
    "aten::native_batch_norm": normalization.native_batch_norm,
    "aten::native_batch_norm_backward": normalization.native_batch_norm_backward,
    "aten::native_layer_norm": normalization.layer_norm,
    "aten::native_layer_norm_backward": normalization.layer_norm_backward,
    "aten::_softmax": reductions.softmax,
    "aten::_safe_softmax": reductions.softmax,
    "aten::_log_softmax": reductions.softmax,
    "aten::_softmax_backward_data": reductions.softmax,
    "aten::_log_softmax_backward_data": reductions.softmax,
    "aten::nll_loss_forward": reductions.loss,
    "aten::nll_loss_backward": reductions.loss,
    "aten::sum": reductions.reduce,
    "aten::mean": reductions.reduce,
    "aten::argmax": reductions.reduce,
    "aten::linalg_vector_norm": reductions.reduce,
    "aten::max_pool2d_with_indices": rearranging.max_pool,
    "aten::max_pool2d_with_indices_backward": rearranging.max_pool,
    "aten::cat": rearranging.concatenate,
    "aten::stack": rearranging.concatenate,
    "aten::copy_": transfers.copy,
    "aten::clone": transfers.copy,
    "aten::_to_copy": transfers.copy,
    "aten::_local_scalar_dense": transfers.read_back,
    "aten::_amp_update_scale_": multi_tensor.update_scale,
    "nccl:all_reduce": transfers.collective,
    "nccl:broadcast": transfers.collective,
    "nccl:_all_gather_base": transfers.collective,
    "nccl:_reduce_scatter_base": transfers.collective,
}

_BY_NAME_AND_DEVICE: dict[str, Callable[[Operator, Device], tuple[KernelLaunch, ...]]] = {
    "aten::addmm": matrix_products.addmm,
    "aten::mm": matrix_products.mm,
    "aten::bmm": matrix_products.bmm,
    "aten::baddbmm": matrix_products.bmm,
    "aten::_flash_attention_forward": attention.launches,
    "aten::_flash_attention_backward": attention.launches,
    "aten::_efficient_attention_forward": attention.launches,
    "aten::_efficient_attention_backward": attention.launches,
}

_CONVOLUTIONS = frozenset({"aten::miopen_convolution", "aten::convolution_backward"})

_FAMILIES = (
    (elementwise.handles, elementwise.launches),
    (multi_tensor.handles, multi_tensor.launches),
    (rearranging.handles, rearranging.launches),
    (compiled.handles, compiled.launches),
)


def launches_of(operator: Operator, device: Device, solutions: str) -> tuple[KernelLaunch, ...]:
    """The device work of one leaf operator, in order of launch; empty for an operator that stays on
    the host, and for tensors without values.

    solutions -- one of gpumodel.workload.SOLUTIONS.

    Raises UserError for a device without ROCm and for an operator that is not known.
    """
    if not device.gfx:
        raise UserError(
            f"{device.name} does not run ROCm, so its kernels are not modelled; take an AMD device"
        )
    if operator.scalars.get("host_only") or _is_empty(operator):
        return ()
    if operator.name in _CONVOLUTIONS:
        return convolutions.launches(operator, device, solutions)
    if operator.name in _BY_NAME:
        return _BY_NAME[operator.name](operator)
    if operator.name in _BY_NAME_AND_DEVICE:
        return _BY_NAME_AND_DEVICE[operator.name](operator, device)
    for handles, launches in _FAMILIES:
        if handles(operator.name):
            return launches(operator)
    raise UserError(
        f"no kernel is known for the operator {operator.name}; add it to"
        " gpumodel/data/elementwise.toml or to a module of gpumodel.kernels"
    )


def _is_empty(operator: Operator) -> bool:
    tensors = [tensor for tensor in (*operator.outputs, *operator.inputs) if tensor is not None]
    return not tensors or any(0 in tensor.shape for tensor in operator.outputs)
