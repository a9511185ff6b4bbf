"""What amd-smi shows of the devices, and the CSV file of its `monitor`.

Layout: amd-smi 26.2 (ROCm 7.2; ROCm/rocm-systems, projects/amdsmi/amdsmi_cli). A value that the
model does not know is N/A.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpumodel.run import Run
from gpumodel.writers.system.readings import NOT_AVAILABLE, Reading, csv_lines, readings, write_text
from tidyprof.errors import UserError

_MEBIBYTE, _GIBIBYTE = 2**20, 2**30
"""Bytes of MB and GB in AMD's tools."""

Cell = tuple[Any, str]
"""A value and its unit, which is empty for numbers of devices."""

_DEFAULT_COLUMNS = (
    *(
        "power_usage",
        "hotspot_temperature",
        "memory_temperature",
        "gfx_clk",
        "gfx",
        "mem",
        "encoder",
        "decoder",
    ),
    *("vram_used", "vram_total"),
)
_MONITOR_COLUMNS = {
    "p": ("power_usage", "max_power"),
    "t": ("hotspot_temperature", "memory_temperature"),
    "u": ("gfx_clk", "gfx"),
    "m": ("mem", "mem_clock"),
    "v": ("vram_used", "vram_free", "vram_total", "vram_percent"),
}
"""Option of monitor -> its columns."""


def write(
    run: Run, folder: Path, *, rank: int | None = None, flags: str = "", interval_s: float = 1
) -> list[Path]:
    """Write `amd-smi.csv`, as `amd-smi monitor --watch <interval> --csv --file amd-smi.csv` leaves
    it.

    rank       -- write only this rank's device.
    flags      -- letters of monitor's options, out of `p t u m v`; empty for its default columns.
    interval_s -- in whole seconds, as the tool accepts.

    Returns the file and its marker; raises UserError for options that the tool refuses.
    """
    if interval_s != int(interval_s):
        raise UserError(
            f"amd-smi samples every whole number of seconds, not every {interval_s:g} s; pass 1 or"
            " more"
        )
    unknown = sorted(set(flags) - set(_MONITOR_COLUMNS))
    if unknown:
        raise UserError(
            f"amd-smi monitor has no option {' '.join(unknown)}; it has p, t, u, m and v"
        )
    device = run.device
    rows = [
        monitor(row, flags, device.memory_bytes, device.power_watt)
        for row in readings(run, rank, interval_s)
    ]
    values = (
        [NOT_AVAILABLE if value is None else value for value, _ in row.values()] for row in rows
    )
    return write_text(run, folder, "amd-smi.csv", csv_lines([list(rows[0]), *values]))


def monitor(row: Reading, flags: str, memory: int, limit_watt: float) -> dict[str, Cell]:
    """The columns of `amd-smi monitor`; memory is in GB with one place by default, in MB with -v.

    memory, limit_watt -- the device's memory in bytes, and its power limit in W.
    """
    found: dict[str, Cell] = {
        "timestamp": (row.unix_ns // 10**9, ""),
        "gpu": (row.device, ""),
        "xcp": (0, ""),
    }
    used = row.values["memory_used"]
    if flags:
        available = _columns(row, memory, limit_watt)
        names = [
            name for flag, names in _MONITOR_COLUMNS.items() if flag in flags for name in names
        ]
        return found | {name: available[name] for name in names}
    available = _columns(row, memory, limit_watt) | {
        "vram_used": (None if used is None else round(used / _GIBIBYTE, 1), "GB"),
        "vram_total": (round(memory / _GIBIBYTE, 1), "GB"),
    }
    return found | {name: available[name] for name in _DEFAULT_COLUMNS}


def _columns(row: Reading, memory: int, limit_watt: float) -> dict[str, Cell]:
    used, total = row.whole("memory_used", _MEBIBYTE), memory // _MEBIBYTE
    return {
        "power_usage": (row.whole("power"), "W"),
        "max_power": (round(limit_watt), "W"),
        "hotspot_temperature": (row.whole("temperature"), "C"),
        "memory_temperature": (None, "C"),
        "gfx_clk": (row.whole("gfx_clock"), "MHz"),
        "gfx": (row.whole("gfx_activity"), "%"),
        "mem": (row.whole("memory_activity"), "%"),
        "mem_clock": (row.whole("memory_clock"), "MHz"),
        "encoder": (None, "%"),
        "decoder": (None, "%"),
        "vram_used": (used, "MB"),
        "vram_free": (None if used is None else total - used, "MB"),
        "vram_total": (total, "MB"),
        "vram_percent": (None if used is None else round(100 * used / total, 2), "%"),
    }


def metric(row: Reading, memory: int) -> dict[str, dict[str, Any]]:
    """The groups of `amd-smi metric`, each value with its unit. memory -- the device's, in
    bytes.
    """
    columns = _columns(row, memory, 0)
    return {
        "usage": {
            "gfx_activity": columns["gfx"],
            "umc_activity": columns["mem"],
            "mm_activity": (None, "%"),
        },
        "power": {"socket_power": columns["power_usage"]},
        "clock": {"gfx_0": {"clk": columns["gfx_clk"]}, "mem_0": {"clk": columns["mem_clock"]}},
        "temperature": {
            "edge": (None, "C"),
            "hotspot": columns["hotspot_temperature"],
            "mem": (None, "C"),
        },
        "mem_usage": {
            "total_vram": columns["vram_total"],
            "used_vram": columns["vram_used"],
            "free_vram": columns["vram_free"],
        },
    }


def with_units(cells: dict[str, Any]) -> dict[str, Any]:
    """The values as JSON has them: with their units, or N/A."""
    found: dict[str, Any] = {}
    for name, cell in cells.items():
        if isinstance(cell, dict):
            found[name] = with_units(cell)
        else:
            value, unit = cell
            found[name] = (
                NOT_AVAILABLE
                if value is None
                else {"value": value, "unit": unit}
                if unit
                else value
            )
    return found
