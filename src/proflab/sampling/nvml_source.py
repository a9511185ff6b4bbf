"""GPUs through NVML, for a machine with NVIDIA's instead of AMD's.

Calls and units: the Python package nvidia-ml-py (module `pynvml`) and NVIDIA's NVML API reference
(https://docs.nvidia.com/deploy/nvml-api): power in mW, memory in bytes, temperature in °C, clocks in MHz.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from proflab.sampling.gpus import GpuSource
from proflab.sampling.readings import SourceUnavailable


def open_nvml() -> GpuSource:
    """All GPUs that NVML sees. Raises SourceUnavailable if there is no library, no driver or no GPU."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise SourceUnavailable("the Python library nvidia-ml-py is not installed") from None
    return source_of(library)


def source_of(library: Any) -> GpuSource:
    """The source for an imported library."""
    try:
        library.nvmlInit()
        devices = [library.nvmlDeviceGetHandleByIndex(number) for number in range(library.nvmlDeviceGetCount())]
    except library.NVMLError as error:
        raise SourceUnavailable(f"NVML: {error}") from error
    if not devices:
        library.nvmlShutdown()
        raise SourceUnavailable("NVML sees no GPU")

    return GpuSource(
        name=f"NVML through pynvml {getattr(library, '__version__', 'of unknown version')}",
        devices=devices,
        calls={
            "activity": lambda device: _activity(library.nvmlDeviceGetUtilizationRates(device)),
            "power": lambda device: {"power": library.nvmlDeviceGetPowerUsage(device) * 1e-3},
            "temperature": lambda device: {
                "temperature": library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU)
            },
            "graphics clock": lambda device: {
                "clock_graphics": library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_GRAPHICS)
            },
            "memory clock": lambda device: {
                "clock_memory": library.nvmlDeviceGetClockInfo(device, library.NVML_CLOCK_MEM)
            },
            "memory": lambda device: {"memory_used": library.nvmlDeviceGetMemoryInfo(device).used},
        },
        once={
            "power cap": lambda device: {"power_cap": library.nvmlDeviceGetEnforcedPowerLimit(device) * 1e-3},
            "memory size": lambda device: {"memory_total": library.nvmlDeviceGetMemoryInfo(device).total},
        },
        errors=(library.NVMLError,),
        shut_down=library.nvmlShutdown,
    )


def _activity(found: Any) -> Mapping[str, object]:
    return {"gpu_busy": found.gpu, "memory_busy": found.memory}
