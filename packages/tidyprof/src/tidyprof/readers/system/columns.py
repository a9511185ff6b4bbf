"""Columns of strings as readings: times, devices, and quantities in tidyprof's units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import ROLES, Meaning, meaning, meanings, own_name
from tidyprof.readers.system.readings import Readings, Times, cell_value, device_number

_Columns = dict[str, tuple[Meaning, np.ndarray]]
_OMNISTAT_LEVELS = ("metric", "instance", "card")


def add_rows(readings: Readings, table: pd.DataFrame, zone: tzinfo | None) -> None:
    """Add the readings in a table of strings, whose columns are named after what they contain."""
    if table.empty:
        return
    lower = {name.strip().lower(): name for name in table}
    time, device, partition, host = (
        next((lower[name] for name in names if name in lower), None) for names in ROLES.values()
    )
    values = [name for name in table if name not in (time, device, partition, host)]
    is_empty = np.all([np.ones(len(table), bool), *(table[name] == "" for name in values)], axis=0)
    readings.rows, readings.empty_rows = len(table), int(is_empty.sum())
    table = table[~is_empty]
    places = pd.DataFrame({"time_ns": _times(readings, table, time, zone)})
    places["device"] = _numbers(readings, table, device, "device")
    places["partition"] = _numbers(readings, table, partition, "partition")
    places["host"] = _each(table[host], lambda text: text or None, object) if host else None
    known = meanings(values, has_device=device is not None)
    # A column's meaning can depend on its values and on other columns: the unit of a size depends
    # on the total, and the values show whether a column is a share or a counter. Columns with the
    # same quantity can be found only after that.
    columns: _Columns = {}
    for name in values:
        column = _column(readings, known[name], name, table[name])
        if column is not None:
            columns[name] = column
    for what, numbers in _each_once(readings, _sized(readings, columns)):
        readings.add(what, numbers, places)
    if not time:
        readings.refuse_several_snapshots()


def add_omnistat(
    readings: Readings, table: pd.DataFrame, labels: dict[str, list[str]], zone: tzinfo | None
) -> None:
    """Add the readings in a table from omnistat, whose columns have one label in each header row.
    The first column contains the times.
    """
    time, *names = table
    readings.rows = len(table)
    # omnistat converts Unix times to dates without a zone (omnistat/query.py), so they are UTC.
    places = pd.DataFrame({"time_ns": _times(readings, table, time, zone or UTC)})
    for name, *cells in zip(names, *labels.values(), strict=True):
        of = dict(zip(labels, cells, strict=True))
        column = _column(readings, meaning(of["metric"]), of["metric"], table[name])
        if column is None:
            continue
        what, numbers = column
        for label, cell in of.items():
            if label not in _OMNISTAT_LEVELS and cell:
                what = replace(what, name=f"{what.name}[{cell}]", stated=True)
        card = device_number(of.get("card", ""))
        host = of.get("instance") or None
        device = pd.array([pd.NA if card is None else card] * len(table), "Int32")
        readings.add(what, numbers, places.assign(device=device, partition=pd.NA, host=host))


def _times(
    readings: Readings, table: pd.DataFrame, name: str | None, zone: tzinfo | None
) -> np.ndarray:
    if name is None:
        readings.facts["times"] = "absent"
        return np.zeros(len(table), np.int64)
    # Parse each distinct string once, in sorted order, so an error always names the same string.
    column = table[name]
    texts = sorted(_used(column))
    is_ns = name.strip().lower().endswith("_ns")
    times = Times(texts, readings.path, zone, already_ns=is_ns)
    readings.facts["time_unit"] = times.unit
    if times.zone:
        readings.facts["time_zone"] = times.zone
        if zone is None:
            readings.warnings.append(
                f"{readings.path.name}: the times have no time zone and were read as UTC. If they"
                " are local times, pass time_zone."
            )
    return _each(column, times.nanoseconds.__getitem__, np.int64)


def _numbers(readings: Readings, table: pd.DataFrame, name: str | None, what: str) -> Any:
    """Return the numbers of devices or partitions. Cells such as N/A become `<NA>`."""
    if name is None:
        return pd.array([pd.NA] * len(table), "Int32")

    def number(text: str) -> int | None:
        found = device_number(text)
        if found is None and text.strip() not in ABSENT_TEXTS:
            raise ProfileReadError(
                readings.path,
                f"{text[:40]!r} isn't a {what} number",
                "the log identifies devices by bus address or UUID, or the columns are shifted",
                "log the GPU number, as amd-smi and rocm-smi do",
            )
        return found

    return pd.array(_each(table[name], number, object), "Int32")


def _used(column: pd.Series) -> list[str]:
    """Return the distinct strings of a categorical column."""
    return column.cat.remove_unused_categories().cat.categories.tolist()


def _each(column: pd.Series, function: Callable[[str], Any], dtype: Any) -> np.ndarray:
    """Apply a function once to each distinct string of a categorical column."""
    used = column.cat.remove_unused_categories().cat
    return np.array([*map(function, used.categories)], dtype)[used.codes]


def _column(
    readings: Readings, what: Meaning | None, header: str, column: pd.Series
) -> tuple[Meaning, np.ndarray] | None:
    """Return the numbers in a column and the column's meaning, which includes the unit from its
    cells. Return None if the column contains no numbers.
    """
    cells = {
        text: cell_value(text) for text in column.cat.remove_unused_categories().cat.categories
    }
    # A column with only strings is a text column. If it also has numbers, strings are damage.
    is_number = [cell is not None for cell in cells.values()]
    if not all(is_number) and all(cell is None or np.isnan(cell[0]) for cell in cells.values()):
        readings.text_columns.add(header)
        return None
    if what is None:
        return None
    numbers, wrong = {}, set()
    for text, cell in cells.items():
        in_unit = None if cell is None else what.in_unit(cell[1])
        if cell is None or in_unit is None:
            wrong.add(text)
        else:
            numbers[text] = cell[0] * in_unit.factor
            what = in_unit if cell[1] else what
    lost = int(column.isin(wrong).sum())
    readings.dropped += Counter({f"invalid {what.name} values": lost})
    values = _each(column, lambda text: numbers.get(text, np.nan), float)
    return what.for_values(header, np.nanmax(values, initial=0)), values


def _sized(readings: Readings, columns: _Columns) -> _Columns:
    """Convert memory columns to bytes. If the header contains no unit, the size of the total shows
    whether the unit is GB, MB or bytes.
    """
    unsized = [name for name, (what, _) in columns.items() if what.is_memory and not what.stated]
    largest = max(
        (
            float(np.nanmax(numbers, initial=0))
            for what, numbers in columns.values()
            if what.name == "memory_total"
        ),
        default=0.0,
    )
    if unsized and not largest:
        readings.warnings.append(
            f"{readings.path.name}: the unit of {', '.join(unsized)} is unknown."
        )
    # AMD Instinct GPUs have at least 16 GB and less than 2,000 GB of memory.
    factor = 2.0**30 if largest < 2000 else 2.0**20 if largest < 2e6 else 1.0
    for name in unsized:
        what, numbers = columns[name]
        columns[name] = (what, numbers * factor) if largest else (replace(what, unit=None), numbers)
    return columns


def _each_once(readings: Readings, columns: _Columns) -> Sequence[tuple[Meaning, np.ndarray]]:
    """Return the columns with unique names. If several columns contain the same quantity, only the
    first column with numbers gets the quantity's name. The other columns keep the tool's names.
    """
    first: dict[str, str] = {}
    found = []
    name_of = readings.path.name
    for name, (what, numbers) in columns.items():
        if np.isfinite(numbers).any() and first.setdefault(what.name, name) != name:
            readings.warnings.append(
                f"{name_of}: the columns {first[what.name]} and {name} both mean {what.name}, so"
                f" {name} keeps its name."
            )
            what = own_name(name, what)
        if what.name == "mem":
            readings.warnings.append(
                f"{name_of}: the meaning of {name} is unknown. The column keeps its name."
            )
        found.append((what, numbers))
    return found
