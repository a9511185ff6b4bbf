"""GPUs through rocm-smi's C library, where AMD SMI's Python library is not.

Functions and units: rocm_smi.h (https://github.com/ROCm/rocm_smi_lib): power in µW, temperatures in thousandths of a
degree, memory in bytes, shares in %. Clocks are left out: the structure that holds them has changed its layout
between releases, and a wrong layout would give wrong numbers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proflab.sampling.gpus import GpuSource
from proflab.sampling.readings import SourceUnavailable, known, scaled

VRAM = 0
"""RSMI_MEM_TYPE_VRAM."""

EDGE, JUNCTION, MEMORY = 0, 1, 2
"""rsmi_temperature_type_t."""

CURRENT = 0
"""RSMI_TEMP_CURRENT."""

FIRST_SENSOR = 0


class RocmSmiError(Exception):
    """A call gave another status than RSMI_STATUS_SUCCESS."""


def open_rocm_smi() -> GpuSource:
    """All GPUs that rocm-smi's library sees. Raises SourceUnavailable if it is not here or sees none."""
    return source_of(_library())


def source_of(library: Any) -> GpuSource:
    """The source for a loaded library."""
    calls = _Calls(library)
    try:
        calls.begin()
        count = calls.ask("rsmi_num_monitor_devices", kind=ctypes.c_uint32)
    except (RocmSmiError, AttributeError) as error:
        raise SourceUnavailable(f"rocm-smi's library: {error}") from error
    if not count:
        library.rsmi_shut_down()
        raise SourceUnavailable("rocm-smi's library sees no GPU")
    return GpuSource(
        name="rocm-smi library",
        devices=range(int(count)),
        calls={
            "busy": calls.busy,
            "memory busy": calls.memory_busy,
            "power": calls.power,
            "edge temperature": lambda device: {"temperature_edge": calls.temperature(device, EDGE)},
            "junction temperature": lambda device: {"temperature_junction": calls.temperature(device, JUNCTION)},
            "memory temperature": lambda device: {"temperature_memory": calls.temperature(device, MEMORY)},
            "memory": calls.memory,
        },
        once={"power cap": calls.power_cap, "memory size": calls.memory_size},
        errors=(RocmSmiError, AttributeError),
        shut_down=library.rsmi_shut_down,
    )


class _Calls:
    """The library's functions, in this package's names and units."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def begin(self) -> None:
        status = self._library.rsmi_init(ctypes.c_uint64(0))
        if status:
            raise RocmSmiError(f"rsmi_init gives status {status}")

    def ask(self, function: str, *arguments: Any, kind: type) -> int | None:
        """The number that a function writes behind its last argument."""
        found = kind()
        status = getattr(self._library, function)(*arguments, ctypes.byref(found))
        if status:
            raise RocmSmiError(f"{function} gives status {status}")
        value = known(found.value)
        return None if value is None else int(value)

    def busy(self, device: int) -> Mapping[str, object]:
        return {"gpu_busy": self._of("rsmi_dev_busy_percent_get", device, kind=ctypes.c_uint32)}

    def memory_busy(self, device: int) -> Mapping[str, object]:
        return {"memory_busy": self._of("rsmi_dev_memory_busy_percent_get", device, kind=ctypes.c_uint32)}

    def power(self, device: int) -> Mapping[str, object]:
        """Current or average power, whichever the GPU reports; releases before 6.0 know the average only."""
        try:
            found, kind = ctypes.c_uint64(), ctypes.c_int()
            status = self._library.rsmi_dev_power_get(ctypes.c_uint32(device), ctypes.byref(found), ctypes.byref(kind))
            value = None if status else known(found.value)
        except AttributeError:
            value = None
        if value is None:
            value = self._of("rsmi_dev_power_ave_get", device, ctypes.c_uint32(FIRST_SENSOR), kind=ctypes.c_uint64)
        return {"power": scaled(value, 1e-6)}

    def power_cap(self, device: int) -> Mapping[str, object]:
        value = self._of("rsmi_dev_power_cap_get", device, ctypes.c_uint32(FIRST_SENSOR), kind=ctypes.c_uint64)
        return {"power_cap": scaled(value, 1e-6)}

    def temperature(self, device: int, sensor: int) -> float | None:
        value = self._of(
            "rsmi_dev_temp_metric_get", device, ctypes.c_uint32(sensor), ctypes.c_int(CURRENT), kind=ctypes.c_int64
        )
        return scaled(value, 1e-3)

    def memory(self, device: int) -> Mapping[str, object]:
        return {"memory_used": self._of("rsmi_dev_memory_usage_get", device, ctypes.c_int(VRAM), kind=ctypes.c_uint64)}

    def memory_size(self, device: int) -> Mapping[str, object]:
        return {"memory_total": self._of("rsmi_dev_memory_total_get", device, ctypes.c_int(VRAM), kind=ctypes.c_uint64)}

    def _of(self, function: str, device: int, *arguments: Any, kind: type) -> int | None:
        return self.ask(function, ctypes.c_uint32(device), *arguments, kind=kind)


def _library() -> ctypes.CDLL:
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib"
    for name in (os.environ.get("ROCM_SMI_LIB_PATH"), str(rocm / "librocm_smi64.so"), "librocm_smi64.so"):
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    raise SourceUnavailable("rocm-smi's library librocm_smi64.so is not here")
