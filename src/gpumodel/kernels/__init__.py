"""From an operator to the kernels that ROCm's libraries launch for it, and how long each takes.

launches_of(operator, device, solutions) -> tuple of KernelLaunch
duration_ns(launch, device) -> (mean duration in ns, what bounds it)
"""

from __future__ import annotations

from gpumodel.kernels.catalogue import launches_of
from gpumodel.kernels.durations import duration_ns
from gpumodel.kernels.launch import KernelLaunch

__all__ = ["KernelLaunch", "duration_ns", "launches_of"]
