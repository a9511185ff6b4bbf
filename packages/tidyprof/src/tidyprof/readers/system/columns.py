"""Columns of strings as readings: times, devices, and quantities in tidyprof's units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import QUANTITIES, ROLES, Meaning, meanings, stem_of
from tidyprof.readers.system.readings import Readings, cell_value, device_number, nanoseconds

_Columns = dict[str, tuple[Meaning, np.ndarray]]


def add_rows(readings: Readings, table: pd.DataFrame, zone: tzinfo | None) -> None:
    """Add the readings in a table of strings, whose columns are named after what they contain."""
    lower = {name.strip().lower(): name for name in table}
    time, device, partition, host = (
        next((lower[name] for name in names if name in lower), None) for names in ROLES.values()
    )
    values = [name for name in table if name not in (time, device, partition, host)]
    is_empty = np.all([np.ones(len(table), bool), *(table[name] == "" for name in values)], axis=0)
    readings.empty_rows += int(is_empty.sum())
    table = table[~is_empty]
    if table.empty:
        return
    places = pd.DataFrame({"time_ns": np.zeros(len(table), np.int64)})
    if time is None:
        readings.facts["times"] = "absent"
    else:
        places["time_ns"] = _times(readings, table[time], zone)
    places["device"] = _numbers(readings, table, device, "device")
    places["partition"] = _numbers(readings, table, partition, "partition")
    places["host"] = _each(table[host], lambda text: text or None, object) if host else None
    known = meanings(values, has_device=device is not None)
    # A column's meaning can depend on its values and on other columns: the unit of a size depends
    # on the total, and the values show whether a column is a share or a counter. Columns with the
    # same quantity can be found only after that.
    columns: _Columns = {}
    for name in values:
        what = known[name]
        if what is not None and (column := _column(readings, what, name, table[name])):
            columns[name] = column
    _add_sizes(readings, columns)
    first: dict[str, str] = {}
    for name, (what, numbers) in columns.items():
        if np.isfinite(numbers).any() and first.setdefault(what.name, name) != name:
            readings.warnings.append(
                f"{readings.path.name}: the columns {first[what.name]} and {name} both mean"
                f" {what.name}, so {name} keeps its name."
            )
            what = replace(what, name=stem_of(name))
        if what.name == "mem":
            readings.warnings.append(
                f"{readings.path.name}: the meaning of {name} is unknown. The column keeps its"
                " name."
            )
        readings.add(what, numbers, places)


def _times(readings: Readings, column: pd.Series, zone: tzinfo | None) -> np.ndarray:
    # Parse each distinct string once, in sorted order, so an error always names the same string.
    times, assumed = nanoseconds(_used(column), readings.path, zone)
    if assumed:
        readings.facts["time_zone"] = assumed
        if zone is None:
            readings.warnings.append(
                f"{readings.path.name}: the times have no time zone and were read as UTC. If they"
                " are local times, pass time_zone."
            )
    return _each(column, times.__getitem__, np.int64)


def _numbers(readings: Readings, table: pd.DataFrame, name: str | None, what: str) -> Any:
    """Return the numbers of devices or partitions. A missing partition becomes `<NA>`, but without
    the device, a reading would look like a reading of the machine.
    """
    if name is None:
        return pd.array([pd.NA] * len(table), "Int32")

    def number(text: str) -> int | None:
        found = device_number(text)
        if found is None and (what == "device" or text.strip() not in ABSENT_TEXTS):
            raise ProfileReadError(
                readings.path,
                f"{text[:40]!r} isn't a {what} number",
                "the log identifies devices by bus address or UUID, or the columns are shifted",
                "log the GPU number, as amd-smi and rocm-smi do",
            )
        return found

    return pd.array(_each(table[name], number, object), "Int32")


def _used(column: pd.Series) -> list[str]:
    """Return the distinct strings of a categorical column in order."""
    return column.cat.remove_unused_categories().cat.categories.tolist()


def _each(column: pd.Series, function: Callable[[str], Any], dtype: Any) -> np.ndarray:
    """Apply a function once to each distinct string of a categorical column."""
    used = column.cat.remove_unused_categories().cat
    return np.array([*map(function, used.categories)], dtype)[used.codes]


def _column(
    readings: Readings, what: Meaning, header: str, column: pd.Series
) -> tuple[Meaning, np.ndarray] | None:
    """Return the numbers in a column and the column's meaning, which includes the unit from its
    cells. Return None if the column contains no numbers.
    """
    cells = {text: cell_value(text) for text in _used(column)}
    # An unknown column with only strings is a text column. In all others, strings are damage.
    is_number = [cell is not None and not np.isnan(cell[0]) for cell in cells.values()]
    if what.name not in QUANTITIES and None in cells.values() and not any(is_number):
        return None
    numbers: dict[str, float] = {}
    for text, cell in cells.items():
        in_unit = None if cell is None else what.in_unit(cell[1])
        if cell is not None and in_unit is not None:
            numbers[text] = cell[0] * in_unit.factor
            what = in_unit if cell[1] else what
    lost = int((~column.isin(list(numbers))).sum())
    readings.dropped += Counter({f"invalid {what.name} values": lost})
    values = _each(column, lambda text: numbers.get(text, np.nan), float)
    return what.for_values(header, np.nanmax(values, initial=0)), values


def _add_sizes(readings: Readings, columns: _Columns) -> None:
    """Convert memory columns to bytes. If the header contains no unit, the size of the total shows
    whether the unit is GB, MB or bytes.
    """
    unsized = [name for name, (what, _) in columns.items() if what.is_memory and not what.stated]
    totals = [numbers for what, numbers in columns.values() if what.name == "memory_total"]
    largest = max((float(np.nanmax(numbers, initial=0)) for numbers in totals), default=0.0)
    if unsized and not largest:
        readings.warnings.append(
            f"{readings.path.name}: the unit of {', '.join(unsized)} is unknown."
        )
    # AMD Instinct GPUs have at least 16 GB and less than 2,000 GB of memory.
    factor = 2.0**30 if largest < 2000 else 2.0**20 if largest < 2e6 else 1.0
    for name in unsized:
        what, numbers = columns[name]
        columns[name] = (what, numbers * factor) if largest else (replace(what, unit=None), numbers)
