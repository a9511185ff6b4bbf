"""Fused attention: AOTriton's kernels, as PyTorch calls them on ROCm.

Names from public recordings: attn_fwd on MI300X and MI350X; the backward pass is one kernel,
bwd_kernel_fuse, in the MI350X recording of torch 2.x. FLOPs: 4 B H S_q S_k D forward, 10 B H S_q
S_k D backward (scores are computed again), as in https://arxiv.org/abs/2205.14135; half of it with
a causal mask.
"""

from __future__ import annotations

from gpumodel.devices import Device
from gpumodel.kernels.launch import KernelLaunch, blocks, nbytes, present
from gpumodel.kernels.matrix_products import parallelism
from gpumodel.recording.operators import Operator

_ROWS_PER_WORKGROUP = 64
"""Query rows of one workgroup: recorded grid of 64 for a sequence of 4096."""


def launches(operator: Operator, device: Device) -> tuple[KernelLaunch, ...]:
    """The one kernel of attention in either direction; its tensors are [batch, heads, sequence,
    width].
    """
    backward = "backward" in operator.name
    tensors = [tensor for tensor in present(operator) if len(tensor.shape) == 4]
    query, key = (tensors[1], tensors[2]) if backward else (tensors[0], tensors[1])
    batch, heads, rows, width = query.shape
    flops = (10.0 if backward else 4.0) * batch * heads * rows * key.shape[2] * width
    flops *= 0.5 if operator.scalars.get("is_causal") else 1.0
    groups = blocks(rows, _ROWS_PER_WORKGROUP) * batch * heads
    return (
        KernelLaunch(
            name="bwd_kernel_fuse" if backward else "attn_fwd",
            grid=(blocks(rows, _ROWS_PER_WORKGROUP) * 128, heads, batch),
            workgroup=(128, 1, 1),
            vector_registers=88 if backward else 44,
            scalar_registers=112 if backward else 80,
            flops=flops,
            data_type=query.dtype,
            matrix_cores=True,
            bytes_read=nbytes(*present(operator)),
            bytes_written=nbytes(*operator.outputs),
            runtime_call="hipModuleLaunchKernel",
            cost_class="attention",
            parallelism=parallelism(groups, device.compute_units),
        ),
    )
