"""What rocm-smi prints of a device (projects/rocm-smi-lib/python_smi_tools/rocm_smi.py of ROCm/rocm-systems)."""

from __future__ import annotations

from gpumodel.writers.system.readings import NOT_AVAILABLE, Reading


def card(row: Reading, memory: int) -> dict[str, str]:
    """What rocm-smi prints of one device, all as text."""
    used, values = row.whole("memory_used"), row.values
    return {
        "GPU use (%)": _text(row.whole("gfx_activity")),
        "GPU Memory Allocated (VRAM%)": _text(None if used is None else round(100 * used / memory)),
        "GPU Memory Read/Write Activity (%)": _text(row.whole("memory_activity")),
        "Current Socket Graphics Package Power (W)": _text(_tenth(values["power"])),
        "Temperature (Sensor edge) (C)": NOT_AVAILABLE,
        "Temperature (Sensor junction) (C)": _text(_tenth(values["temperature"])),
        "Temperature (Sensor memory) (C)": NOT_AVAILABLE,
        "sclk clock speed:": _clock(row.whole("gfx_clock")),
        "mclk clock speed:": _clock(row.whole("memory_clock")),
        "VRAM Total Memory (B)": str(memory),
        "VRAM Total Used Memory (B)": _text(used),
    }


def _tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _clock(megahertz: int | None) -> str:
    return NOT_AVAILABLE if megahertz is None else f"({megahertz}Mhz)"


def _text(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else str(value)
