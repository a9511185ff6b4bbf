"""Meanings of columns and keys in system monitor logs. Each quantity has one name and one unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_PERCENT = ("%", 0.0, 100.0)
_CELSIUS = ("°C", -60.0, 250.0)
_WATT = ("W", 0.0, 10_000.0)
_MEGAHERTZ = ("MHz", 0.0, 20_000.0)
_BYTES = ("bytes", 0.0, 2.0**42)

QUANTITIES: Mapping[str, tuple[str, float, float]] = {
    "power": _WATT,
    "power_cap": _WATT,
    "temperature": _CELSIUS,
    "temperature_edge": _CELSIUS,
    "temperature_junction": _CELSIUS,
    "temperature_memory": _CELSIUS,
    "gpu_busy": _PERCENT,
    "memory_busy": _PERCENT,
    "encoder_busy": _PERCENT,
    "decoder_busy": _PERCENT,
    "clock_graphics": _MEGAHERTZ,
    "clock_memory": _MEGAHERTZ,
    "memory_used": _BYTES,
    "memory_free": _BYTES,
    "memory_total": _BYTES,
    "memory_used_percent": _PERCENT,
    "gpu_activity_counter": ("count", 0.0, 2.0**64),
    "memory_activity_counter": ("count", 0.0, 2.0**64),
    "cpu_user": _PERCENT,
    "cpu_system": _PERCENT,
    "cpu_idle": _PERCENT,
}
"""Names of quantities with their unit and the range of possible values. All other quantities keep
the tool's name.
"""

_ALIASES: Mapping[str, str] = {
    alias: name
    for name, aliases in {
        "power": (
            "power_usage socket_power average_socket_power current_socket_power power_socket_power"
            " power_average_socket_power current_socket_graphics_package_power"
            " average_graphics_package_power rocm_average_socket_power"
        ),
        "power_cap": "max_power max_graphics_package_power rocm_power_cap",
        "temperature": "rocm_temperature",
        "temperature_edge": "temp_edge edge edge_temperature temperature_sensor_edge",
        "temperature_junction": (
            "temp_junction junction hotspot hotspot_temperature "
            "temperature_hotspot temperature_sensor_junction"
        ),
        "temperature_memory": (
            "temp_memory memory_temperature temperature_mem "
            "temperature_sensor_memory rocm_temperature_memory"
        ),
        "gpu_busy": (
            "gpu_use gpu_utilization gfx gfx_util gfx_activity usage_gfx_activity rocm_utilization"
        ),
        "memory_busy": (
            "mem mem_util umc_activity usage_umc_activity memory_activity "
            "gpu_memory_read_write_activity rocm_vram_busy"
        ),
        "encoder_busy": "encoder enc_util",
        "decoder_busy": "decoder dec_util",
        "clock_graphics": (
            "gfx_clk gfx_clock gfx_0_clk clock_gfx_0_clk sclk sclk_clock_speed rocm_sclk_clock"
        ),
        "clock_memory": (
            "mem_clk mem_clock mem_0_clk clock_mem_0_clk mclk mclk_clock_speed rocm_mclk_clock"
        ),
        "memory_used": "vram_used used_vram mem_usage_used_vram vram_total_used_memory",
        "memory_free": "vram_free free_vram mem_usage_free_vram",
        "memory_total": (
            "vram_total total_vram mem_usage_total_vram vram_total_memory rocm_vram_total"
        ),
        "memory_used_percent": (
            "vram vram_percent gpu_memory_allocated gpu_memory_allocated_vram "
            "gpu_memory_use rocm_vram_used"
        ),
    }.items()
    for alias in (name, *aliases.split())
} | {name: name for name in ("cpu_user", "cpu_system", "cpu_idle")}

_MEM = "mem"
_LAYOUTS = {
    "memory_busy": (
        "power_usage max_power hotspot_temperature memory_temperature gfx gfx_clk gfx_clock mem_clk"
        " mem_clock encoder decoder vram_percent"
    ),
    "temperature_memory": (
        "gfx_activity umc_activity mm_activity socket_power gfx_0_clk mem_0_clk edge hotspot"
    ),
}
"""Other columns of the layout in which `mem` has each meaning. The layouts come from
`amd-smi monitor` and `amd-smi metric` (amdsmi_cli/amdsmi_commands.py in
https://github.com/ROCm/amdsmi).
"""

_COUNTER_OF = {"gpu_busy": "gpu_activity_counter", "memory_busy": "memory_activity_counter"}
"""Running counters that some tools write to the same column as a busy share. The values of these
counters exceed 100.
"""

_COUNTER_ALIASES = frozenset({"gfx_activity", "memory_activity", "umc_activity"})

_UNITS: Mapping[str, tuple[str, float]] = {
    written: (unit, factor)
    for unit, spellings in {
        "W": {"w": 1.0, "watts": 1.0, "mw": 1e-3, "uw": 1e-6},
        "°C": dict.fromkeys(("c", "°c", "celsius"), 1.0),
        "%": dict.fromkeys(("%", "percent", "percentage", "pct"), 1.0),
        "MHz": {"mhz": 1.0, "ghz": 1e3},
        "bytes": (
            {"b": 1.0, "bytes": 1.0}
            | {
                name: 2.0**power
                for power, names in ((10, "kb kib"), (20, "mb mib"), (30, "gb gib"))
                for name in names.split()
            }
        ),
        "mV": {"mv": 1.0, "v": 1e3},
        "rpm": {"rpm": 1.0},
        "Mb/s": {"mb/s": 1.0},
        "GB/s": {"gb/s": 1.0},
        "GT/s": {"gt/s": 1.0},
        "count": {"count": 1.0},
    }.items()
    for written, factor in spellings.items()
}
"""tidyprof's unit and the conversion factor for each lowercase unit in a log. AMD's tools divide by
2^20 and call the result MB (amdsmi_cli, `vram_used // (1024 * 1024)`).
"""

_SHORT_SUFFIXES = ("w", "c", "b", "v", "mv", "mw", "uw")
_LONG_SUFFIXES = (
    *("watts", "celsius", "percentage", "percent", "pct", "bytes"),
    *("mhz", "ghz", "kb", "mb", "gb", "mib", "gib"),
)
_MEMORY = ("memory_used", "memory_free", "memory_total")
_HOST_MEMORY = {"total", "used", "available"}
_IDENTIFIER = re.compile(r"(^|_)(id|guid|uuid|bdf|serial_number|xcp|pid|rev|model|vendor)$")


@dataclass(frozen=True)
class Meaning:
    """The meaning of a column.

    - name: one of QUANTITIES, or the tool's name in lowercase
    - unit: unit of the quantity, or None if it is unknown
    - factor: conversion factor from the file's unit to this unit
    - stated: True if the file contains the unit, so the unit doesn't have to be derived from the
      values
    """

    name: str
    unit: str | None
    factor: float
    stated: bool

    @property
    def known(self) -> bool:
        """True if the quantity is one of QUANTITIES."""
        return self.name in QUANTITIES

    def in_unit(self, unit: str | None) -> Meaning | None:
        """Return the same quantity with the unit from a cell. Return None if the quantity can't
        have that unit.
        """
        if not unit:
            return self
        if unit.lower() not in _UNITS:
            return None if self.known else Meaning(self.name, unit, 1.0, True)
        common, factor = _UNITS[unit.lower()]
        if self.known and common != QUANTITIES[self.name][0]:
            return None
        return Meaning(self.name, common, factor, True)


def meaning(header: str) -> Meaning | None:
    """Return the meaning of a column header or key, such as `Temperature (Sensor edge) (C)` or
    `vram_used_bytes`.

    Return None for a device identifier. Also return None if the quantity can't have the unit in the
    header.
    """
    text, unit = _unit_in_brackets(header.strip())
    stem = _stem(text)
    if not stem or _IDENTIFIER.search(stem):
        return None
    if unit is None:
        stem, unit = _unit_in_suffix(stem)
    name = _ALIASES.get(stem, stem)
    plain = Meaning(name, QUANTITIES[name][0] if name in QUANTITIES else None, 1.0, False)
    # busy_or_counter handles counters. The size of a memory unit may depend on the values.
    return plain if unit is None else plain.in_unit(unit)


def meanings(headers: Sequence[str]) -> dict[str, Meaning | None]:
    """Return the meaning of each column in a CSV file. The column `mem` has two possible meanings,
    so its meaning is derived from the other columns.

    If the other columns don't determine the meaning, `mem` keeps its name and has no unit.
    """
    each = {header: meaning(header) for header in headers}
    stems = {_stem(header) for header in headers}
    names = [name for name, columns in _LAYOUTS.items() if stems & set(columns.split())]
    name = names[0] if len(names) == 1 else _MEM
    what = Meaning(name, QUANTITIES[name][0] if name in QUANTITIES else None, 1.0, False)
    return each | {header: what for header in headers if _stem(header) == _MEM}


def own_name(header: str, unit: str | None) -> Meaning:
    """Return the meaning of a column under the tool's own name."""
    return Meaning(_stem(header), unit, 1.0, True)


def busy_or_counter(header: str, what: Meaning, numbers: np.ndarray) -> Meaning:
    """Return the meaning of an activity column. In some tools, the column is a share. In other
    tools, the column is a running counter.
    """
    is_activity = _stem(header) in _COUNTER_ALIASES and what.name in _COUNTER_OF
    is_counter = is_activity and np.nanmax(numbers, initial=0) > 100
    return Meaning(_COUNTER_OF[what.name], "count", 1.0, True) if is_counter else what


def _stem(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def is_memory(meaning: Meaning) -> bool:
    """Return True if the column is an amount of GPU memory."""
    return meaning.name in _MEMORY


def host_memory(names: Sequence[str]) -> dict[str, Meaning]:
    """Return the meanings of columns that `free` writes about the host, such as total, used and
    available. Return an empty dictionary if there are no such columns.

    `free` uses powers of 2 or powers of 10, depending on its options. Therefore, the amounts keep
    the file's unit.
    """
    split = {name: _unit_in_suffix(_stem(name)) for name in names}
    if not {stem for stem, _ in split.values()} >= _HOST_MEMORY:
        return {}
    columns = {*_HOST_MEMORY, "free", "cached", "buffers", "shared", "usage", "buff_cache"}
    return {
        name: Meaning(
            f"host_memory_{stem}",
            "%" if unit in ("percent", "pct") else unit and unit.upper(),
            1.0,
            True,
        )
        for name, (stem, unit) in split.items()
        if stem in columns
    }


def _unit_in_brackets(header: str) -> tuple[str, str | None]:
    match = re.fullmatch(r"(.*?)\s*\(([^()]*)\)\s*:?", header, re.DOTALL)
    if not match:
        return header.rstrip(": "), None
    if match[2].lower() in _UNITS:
        return match[1], match[2]
    if match[2].endswith("%"):
        return f"{match[1]} {match[2][:-1]}", "%"
    return header, None


def _unit_in_suffix(stem: str) -> tuple[str, str | None]:
    base, _, last = stem.rpartition("_")
    if not base or stem in _ALIASES:
        return stem, None
    if last in _LONG_SUFFIXES or (last in _SHORT_SUFFIXES and base in _ALIASES):
        return base, last
    return stem, None
