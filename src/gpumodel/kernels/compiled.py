"""Kernels that torch.compile writes in Triton: several operators in one, each tensor moved once."""

from __future__ import annotations

from gpumodel.kernels.launch import KernelLaunch, blocks, elements, nbytes, present, result
from gpumodel.recording.operators import Operator


def handles(name: str) -> bool:
    """Whether this is a kernel that a compiler made."""
    return name.startswith("triton_")


def launches(operator: Operator) -> tuple[KernelLaunch, ...]:
    """The one kernel. A reduction (triton_red, triton_per) runs workgroups of 512 work-items, all
    others run workgroups of 256, as in a public trace of a compiled layer on MI300X
    (https://github.com/AMD-AGI/TraceLens). How many values a workgroup takes is an assumption.
    """
    reduces = operator.name.startswith(("triton_red", "triton_per"))
    target = result(operator)
    largest = max(elements(tensor) for tensor in (*present(operator), target))
    group = 512 if reduces else 256
    rows = blocks(largest, 2048) if reduces else blocks(elements(target), 1024)
    return (
        KernelLaunch(
            name=operator.name,
            grid=(rows * group, 1, 1),
            workgroup=(group, 1, 1),
            vector_registers=32,
            scalar_registers=48,
            flops=operator.flops or float(largest),
            data_type=target.dtype,
            bytes_read=nbytes(*present(operator)),
            bytes_written=nbytes(*operator.outputs),
            runtime_call="hipModuleLaunchKernel",
            cost_class="compiled_reduction" if reduces else "compiled_pointwise",
        ),
    )
