"""Copies, conversions and collectives.

A plain copy within the device has the name that Kineto gives it; rocprofv3 shows the same copy as
the kernel __amd_rocclr_copyBuffer. Which HIP call starts which copy follows the 4-rank trace.
"""

from __future__ import annotations

from gpumodel.kernels.elementwise import fill, strided
from gpumodel.kernels.launch import KernelLaunch, blocks, elements, nbytes, result
from gpumodel.recording.operators import Operator, TensorInfo

COPY_NAMES = {
    "HostToDevice": "Memcpy HtoD (Host -> Device)",
    "DeviceToHost": "Memcpy DtoH (Device -> Host)",
    "DeviceToDevice": "Memcpy DtoD (Device -> Device)",
}
"""Kineto's names by direction."""

_COPY_CLASSES = {
    "HostToDevice": "copy_host_to_device",
    "DeviceToHost": "copy_device_to_host",
    "DeviceToDevice": "copy_device_to_device",
}

COPY_FUNCTOR = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const"
    "::{lambda()#%C}::operator()() const::{lambda(%T)#1}"
)

COLLECTIVE_NAME = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
"""RCCL's kernel in the 4-rank trace; older releases named it rccl_main_kernel, and in newer ones it
takes other arguments.
"""

CHANNEL_WORKGROUPS = 24
"""Workgroups of a large all-reduce in the 4-rank trace. That a smaller message takes one for each
24 KiB is an assumption.
"""


def copy_bytes(direction: str, size: float) -> KernelLaunch:
    """A plain copy of `size` bytes in one of the directions of COPY_NAMES."""
    return KernelLaunch(
        name=COPY_NAMES[direction],
        kind="copy",
        data_type="uint8",
        bytes_read=size if direction != "HostToDevice" else 0.0,
        bytes_written=size if direction != "DeviceToHost" else 0.0,
        copy_bytes=int(size),
        copy_direction=direction,
        runtime_call="hipMemcpyAsync" if direction == "DeviceToDevice" else "hipMemcpyWithStream",
        cost_class=_COPY_CLASSES[direction],
    )


def copy(operator: Operator) -> tuple[KernelLaunch, ...]:
    """aten::copy_ (destination, source), aten::clone and aten::_to_copy (source): a plain copy, or
    a kernel that converts or reorders.
    """
    direction = operator.scalars.get("direction")
    target = result(operator)
    if direction is not None:
        return (copy_bytes(direction, nbytes(target)),)
    source = next((tensor for tensor in reversed(operator.inputs) if tensor is not None), target)
    return (converting_copy(source, target),)


def converting_copy(source: TensorInfo, target: TensorInfo) -> KernelLaunch:
    """The kernel that changes type or memory order; ATen names it after the target's type."""
    cast = source.dtype != target.dtype
    name, group, per_group = strided(fill(COPY_FUNCTOR, target.dtype), cast=cast)
    return KernelLaunch(
        name=name,
        grid=(blocks(elements(target), per_group) * group, 1, 1),
        workgroup=(group, 1, 1),
        vector_registers=20,
        scalar_registers=80,
        data_type=target.dtype,
        bytes_read=nbytes(source),
        bytes_written=nbytes(target),
        cost_class="copy_converting" if cast else "elementwise_strided",
    )


def read_back(operator: Operator) -> tuple[KernelLaunch, ...]:
    """aten::_local_scalar_dense: a copy of four bytes that the host waits for."""
    return (copy_bytes("DeviceToHost", 4),)


def collective(operator: Operator) -> tuple[KernelLaunch, ...]:
    """nccl:all_reduce and the other collectives: RCCL's kernel. It lasts as long as an all-reduce
    of the same data among four ranks; gpumodel.play.waits corrects that by `transfer_factor`.

    The data are the larger side: what was gathered, or what is to be scattered.
    """
    tensor = max(*operator.inputs, *operator.outputs, key=nbytes)
    size = nbytes(tensor)
    groups = max(1, min(CHANNEL_WORKGROUPS, blocks(size, 24576)))
    return (
        KernelLaunch(
            name=COLLECTIVE_NAME,
            kind="collective",
            grid=(groups * 256, 1, 1),
            workgroup=(256, 1, 1),
            vector_registers=92,
            scalar_registers=112,
            lds_bytes=37664,
            data_type=tensor.dtype,
            bytes_read=size,
            bytes_written=size,
            collective=operator.scalars.get(
                "collective", operator.name.partition(":")[2].replace("_", "")
            ),
            runtime_call="hipExtLaunchKernel",
            cost_class="collective",
        ),
    )
