"""GPUs through the Python library of AMD SMI.

Calls and units: ROCm documentation, "AMD SMI Python API" and the C structures behind it
(https://rocm.docs.amd.com/projects/amdsmi): power in W, power caps in µW, memory in MB of 2^20 bytes, temperatures in
°C, clocks in MHz as averages over a second. Seen in amdsmi 7.0.2; older releases lack the key `socket_power`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from proflab.sampling.gpus import GpuSource
from proflab.sampling.readings import SourceUnavailable, known, scaled

MEBIBYTE = 2**20
POWER_KEYS = ("socket_power", "current_socket_power", "average_socket_power")
"""Where the power stands, the best first: which of them is known depends on GPU and release."""


def open_amdsmi() -> GpuSource:
    """All GPUs that AMD SMI sees. Raises SourceUnavailable if there is no library, no driver or no GPU."""
    library = _library()
    try:
        library.amdsmi_init()
        devices = library.amdsmi_get_processor_handles()
    except library.AmdSmiException as error:
        raise SourceUnavailable(f"amdsmi: {' '.join(str(error).split())}") from error
    if not devices:
        library.amdsmi_shut_down()
        raise SourceUnavailable("amdsmi sees no GPU")
    return source_of(library, devices)


def source_of(library: Any, devices: list[Any]) -> GpuSource:
    """The source for an initialised library."""
    asked = _Calls(library)
    return GpuSource(
        name=f"amdsmi {getattr(library, '__version__', 'of unknown version')}",
        devices=devices,
        calls={
            "activity": asked.activity,
            "power": asked.power,
            "junction temperature": asked.junction,
            "memory temperature": asked.memory_temperature,
            "graphics clock": asked.graphics_clock,
            "memory clock": asked.memory_clock,
            "memory": asked.memory,
        },
        once={"power cap": asked.power_cap, "memory size": asked.memory_size},
        # A release that lacks a key or a name can't tell that quantity; the others still count.
        errors=(library.AmdSmiException, KeyError, AttributeError),
        shut_down=library.amdsmi_shut_down,
    )


class _Calls:
    """The library's calls, in this package's names and units."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def activity(self, device: Any) -> Mapping[str, object]:
        found = self._library.amdsmi_get_gpu_activity(device)
        return {"gpu_busy": found["gfx_activity"], "memory_busy": found["umc_activity"]}

    def power(self, device: Any) -> Mapping[str, object]:
        found = self._library.amdsmi_get_power_info(device)
        values = (found.get(key) for key in POWER_KEYS)
        # Some releases give 0 for the kind of power that the GPU does not report; a GPU under power never draws 0.
        return {"power": next((value for value in values if known(value)), None)}

    def power_cap(self, device: Any) -> Mapping[str, object]:
        return {"power_cap": scaled(self._library.amdsmi_get_power_cap_info(device)["power_cap"], 1e-6)}

    def junction(self, device: Any) -> Mapping[str, object]:
        return {"temperature_junction": self._temperature(device, "HOTSPOT")}

    def memory_temperature(self, device: Any) -> Mapping[str, object]:
        return {"temperature_memory": self._temperature(device, "VRAM")}

    def graphics_clock(self, device: Any) -> Mapping[str, object]:
        return {"clock_graphics": self._clock(device, "GFX")}

    def memory_clock(self, device: Any) -> Mapping[str, object]:
        return {"clock_memory": self._clock(device, "MEM")}

    def memory(self, device: Any) -> Mapping[str, object]:
        return {"memory_used": self._vram(device, "vram_used")}

    def memory_size(self, device: Any) -> Mapping[str, object]:
        return {"memory_total": self._vram(device, "vram_total")}

    def _vram(self, device: Any, key: str) -> float | None:
        # 65535 MB is an amount that a GPU can hold, so only the 32-bit value means "not available".
        return scaled(self._library.amdsmi_get_gpu_vram_usage(device)[key], MEBIBYTE, absent={0xFFFFFFFF})

    def _temperature(self, device: Any, sensor: str) -> object:
        library = self._library
        kind = getattr(library.AmdSmiTemperatureType, sensor)
        return library.amdsmi_get_temp_metric(device, kind, library.AmdSmiTemperatureMetric.CURRENT)

    def _clock(self, device: Any, clock: str) -> object:
        found = self._library.amdsmi_get_clock_info(device, getattr(self._library.AmdSmiClkType, clock))
        return found["clk"]


def _library() -> ModuleType:
    """The library from Python's own path, else from the ROCm installation, which ships it unpacked."""
    shipped = Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "share" / "amd_smi"
    if shipped.is_dir() and str(shipped) not in sys.path:
        sys.path.append(str(shipped))
    try:
        # Without the C library the import prints advice and fails with whatever it stumbles over first.
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except ModuleNotFoundError as error:
        if error.name == "amdsmi":
            raise SourceUnavailable("the Python library amdsmi is not installed") from None
        raise SourceUnavailable(f"amdsmi can't be imported ({error})") from None
    except Exception as error:
        raise SourceUnavailable(f"amdsmi can't be imported ({type(error).__name__}: {error})") from None
