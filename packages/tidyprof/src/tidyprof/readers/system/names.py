"""Meanings of columns and keys in system monitor logs. Each quantity has one name and one unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidyprof.package_data import table_of

_TABLE: Mapping[str, Any] = table_of("readers/system/quantities.toml")

QUANTITIES: Mapping[str, tuple[str, float, float]] = {
    name: tuple(entry["range"]) for name, entry in _TABLE["quantities"].items()
}
"""Names of quantities with their unit and the range of possible values. All other quantities keep
the tool's name.
"""

ROLES: Mapping[str, Sequence[str]] = _TABLE["columns"]
"""Names of the columns with the time, device, partition and host."""

_ALIASES: Mapping[str, str] = {
    alias: name
    for name, entry in _TABLE["quantities"].items()
    for alias in (name, *entry["names"].split())
}
_UNITS: Mapping[str, tuple[str, float]] = _TABLE["units"]
_COUNTERS: Mapping[str, Any] = {
    entry["instead_of"]: (name, entry["columns"])
    for name, entry in _TABLE["quantities"].items()
    if "instead_of" in entry
}
_MEM = "mem"
_HOST_MEMORY = "host_memory_"
_MEMORY = ("memory_used", "memory_free", "memory_total")
_IDENTIFIER = re.compile(r"(^|_)(id|guid|uuid|bdf|serial_number|xcp|pid|rev|model|vendor)$")
_OMNISTAT = ("rocm_", "omnistat_", "amdsmi_")


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
    unit: str | None = None
    factor: float = 1.0
    stated: bool = True

    @property
    def is_memory(self) -> bool:
        """True if the quantity is an amount of GPU memory."""
        return self.name in _MEMORY

    def in_unit(self, unit: str | None) -> Meaning | None:
        """Return the same quantity with the unit from a cell. Return None if the quantity can't
        have that unit.
        """
        if not unit:
            return self
        common, factor = _UNITS.get(unit.lower(), (unit, 1.0))
        if self.name in QUANTITIES and common != QUANTITIES[self.name][0]:
            return None
        return Meaning(self.name, common, factor)

    def for_values(self, header: str, largest: float) -> Meaning:
        """Return the meaning of an activity column. In some tools, the column is a share. In other
        tools, the column is a running counter, whose values exceed 100.
        """
        counter, columns = _COUNTERS.get(self.name, ("", ()))
        return Meaning(counter, "count") if largest > 100 and stem_of(header) in columns else self


def meaning(header: str) -> Meaning | None:
    """Return the meaning of a column header or key, such as `Temperature (Sensor edge) (C)` or
    `vram_used_bytes`.

    Return None for a device identifier. Also return None if the quantity can't have the unit in the
    header.
    """
    stem, unit = _unit_in_suffix(stem_of(header))
    if not stem or _IDENTIFIER.search(stem):
        return None
    return _plain(_ALIASES.get(stem, stem)).in_unit(unit)


def _plain(name: str) -> Meaning:
    return Meaning(name, QUANTITIES[name][0] if name in QUANTITIES else None, stated=False)


def meanings(headers: Sequence[str], has_device: bool = True) -> dict[str, Meaning | None]:
    """Return the meaning of each column in a log. The column `mem` has two possible meanings, so
    its meaning is derived from the other columns.

    If the other columns don't determine the meaning, `mem` keeps its name and has no unit.
    """
    each = {header: meaning(header) for header in headers}
    stems = {stem_of(header) for header in headers}
    names = [name for name, columns in _TABLE["mem"].items() if stems & {*columns.split()}]
    mem = _plain(names[0] if len(names) == 1 else _MEM)
    each |= {header: mem for header in headers if stem_of(header) == _MEM}
    return each if has_device else each | _host_memory(headers)


def is_header(names: Sequence[str]) -> bool:
    """Return True if these column names are from a system monitor."""
    lower = [name.strip().lower() for name in names]
    if lower[:1] == ["metric"] and any(name.startswith(_OMNISTAT) for name in lower):
        return True
    if not lower or lower[0] not in (*ROLES["time"], *ROLES["device"]):
        return False
    roles = {name for names in ROLES.values() for name in names}
    values = [name for name in names if name.strip().lower() not in roles]
    known = (what.name for what in meanings(values, has_device=False).values() if what)
    return any(name in QUANTITIES or name.startswith(_HOST_MEMORY) for name in known)


def stem_of(text: str) -> str:
    """Return a header in lowercase, with an underscore for all other characters."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _host_memory(names: Iterable[str]) -> dict[str, Meaning]:
    """Return the meanings of columns that `free` writes about the host, such as total, used and
    available. Return an empty dictionary if there are no such columns.

    `free` uses powers of 2 or powers of 10, depending on its options. Therefore, the amounts keep
    the file's unit.
    """
    split = {name: _unit_in_suffix(stem_of(name)) for name in names}
    if not {stem for stem, _ in split.values()} >= {*_TABLE["host_memory"]["required"]}:
        return {}
    return {
        name: Meaning(
            f"{_HOST_MEMORY}{stem}", "%" if unit in ("percent", "pct") else unit and unit.upper()
        )
        for name, (stem, unit) in split.items()
        if stem in _TABLE["host_memory"]["columns"]
    }


def _unit_in_suffix(stem: str) -> tuple[str, str | None]:
    base, _, last = stem.rpartition("_")
    suffixes = _TABLE["suffixes"]
    is_unit = last in suffixes["long"] or (last in suffixes["short"] and base in _ALIASES)
    return (base, last) if base and is_unit and stem not in _ALIASES else (stem, None)
