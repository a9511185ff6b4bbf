"""CSV logs from amd-smi, rocm-smi, omnistat's export, and scripts."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import (
    Meaning,
    busy_or_counter,
    host_memory,
    is_memory,
    meaning,
    meanings,
    own_name,
)
from tidyprof.readers.system.readings import Readings, TextColumn, Times, cell_value, device_number

_TIME = (
    "timestamp",
    "time",
    "time_ns",
    "epoch",
    "datetime",
    "date",
    "timestamp_ns",
    "timestamp_ms",
    "time_s",
)
_DEVICE = ("gpu", "device", "card", "gpu_id", "gpu_index")
_PARTITION = ("xcp", "partition")
_HOST = ("host", "hostname", "node", "instance")
_UNREADABLE, _RARE = -1, 20
_OMNISTAT_LEVELS = ("metric", "instance", "card")


def csv_header(text: bytes) -> list[str] | None:
    """Return a system monitor's CSV header from the first lines of the text, or None if there is no
    such header.
    """
    for line in text[:4096].splitlines()[:6]:
        names = _cells(line.decode("utf-8", "replace"))
        if is_header(names):
            return names
    return None


def is_header(names: Sequence[str]) -> bool:
    """Return True if these column names are from a system monitor."""
    lower = [name.strip().lower() for name in names]
    if lower[:1] == ["metric"] and any(
        name.startswith(("rocm_", "omnistat_", "amdsmi_")) for name in lower
    ):
        return True
    first = {*_TIME, *_DEVICE}
    if not lower or lower[0] not in first:
        return False
    values = [name for name in names if name.strip().lower() not in {*first, *_PARTITION, *_HOST}]
    known = any((what := meaning(name)) is not None and what.known for name in values)
    return known or bool(host_memory(values))


def read_system_csv(path: Path, text: bytes, zone: tzinfo | None) -> Readings:
    """Return the readings from a CSV log."""
    readings = Readings(path)
    lines = _lines(readings, text)
    start = next((number for number, line in enumerate(lines) if is_header(_cells(line))), None)
    if start is None:
        raise ProfileReadError(
            path,
            f"the file has no system monitor header (it starts with {lines[0][:40]!r})",
            "another tool wrote the file, or the header was cut off",
            "pass the log from amd-smi monitor --csv, rocm-smi --csv or omnistat-query --export",
        )
    names = _cells(lines[start])
    if names[0].strip().lower() == "metric":
        _read_omnistat(readings, lines[start:], zone)
    else:
        _read_columns(readings, _table(readings, names, lines[start + 1 :]), zone)
    return readings


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _lines(readings: Readings, text: bytes) -> list[str]:
    decoded = text.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    lines = decoded.split("\n")
    if lines[-1].strip():
        # A killed sampler leaves a line without a newline, and its last number may be cut short.
        readings.warnings.append(
            f"{readings.path.name}: the last line is incomplete, so it was left out."
        )
        readings.facts["unfinished_lines"] = 1
    lines = [line for line in lines[:-1] if line.strip()]
    if not lines:
        raise ProfileReadError(
            readings.path,
            "the file contains no complete lines",
            "the tool was stopped before its first sample",
            "record again",
        )
    return lines


def _table(readings: Readings, header: list[str], lines: list[str]) -> dict[str, TextColumn]:
    """Return the columns of the rows below a header. Headers that watch mode repeats are left out,
    and missing cells at the end of a row are empty.

    Some loggers never write the last cells. Therefore, a short row is treated as incomplete only if
    its length is rare, which means that fewer than one row in _RARE has this length. Incomplete
    rows and lines that aren't rows are left out and counted.

    Raises ProfileReadError if a column occurs twice, or if a row has more non-empty cells than the
    header.
    """
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise _two_logs(
            readings.path, f"the column {repeated[:40]!r} occurs {header.count(repeated)} times"
        )
    width, rows = len(header), []
    lengths: Counter[int] = Counter()
    for number, line in enumerate(lines, 2):
        cells = _cells(line) if '"' in line else line.split(",")
        if any(cells[width:]):
            raise _two_logs(readings.path, f"row {number} has more cells than the header")
        if cells == header or line.startswith("'CTRL'"):
            continue
        # If a logger has no data, it writes a time and a comma.
        is_row = cells and "\0" not in line and "," in line
        length = _UNREADABLE if not is_row else min(len(cells), width) * any(cells[1:])
        lengths[length] += 1
        # All rows are rebuilt with the header's number of cells and read as one table.
        if '"' in line or "\r" in line:
            cells = ['"' + cell.replace('"', '""') + '"' for cell in cells]
        rows.append((length, ",".join(cells[:width]) + "," * (width - len(cells))))
    usual = max(lengths, key=lambda length: (lengths[length], length), default=0)
    rare = {
        length
        for length, count in lengths.items()
        if 0 < length < usual and _RARE * count < len(rows)
    }
    sound = [row for length, row in rows if length not in {_UNREADABLE, *rare}]
    if lost := len(rows) - len(sound):
        readings.dropped["from incomplete rows"] += lost
    text = "\n".join(["," * (width - 1), *sound, ""]).encode("utf-8", "replace")
    # Imported here because logs are recognized without pyarrow.
    from tidyprof.io.csv_files import TEXT, coded, rows_of

    table = rows_of(text, header, dict.fromkeys(header, TEXT), len(text))
    return {name: _text_column(*coded(table[name])) for name in header}


def _text_column(codes: np.ndarray, texts: list[str]) -> TextColumn:
    return TextColumn(np.where(codes < 0, np.int32(len(texts)), codes), [*texts, ""])


def _two_logs(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        finding,
        "two programs wrote to the same file, or the columns changed within the file",
        "write each log to a separate file",
    )


def _first_of(columns: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((columns[name] for name in wanted if name in columns), None)


def _read_columns(readings: Readings, texts: Mapping[str, TextColumn], zone: tzinfo | None) -> None:
    lower = {name.strip().lower(): name for name in texts}
    time, device, part, host = (
        _first_of(lower, wanted) for wanted in (_TIME, _DEVICE, _PARTITION, _HOST)
    )
    values = [name for name in texts if name not in (time, device, part, host)]
    empty = _empty_rows(texts, values)
    readings.rows, readings.empty_rows = len(empty), int(empty.sum())
    kept = np.flatnonzero(~empty)
    times = _times(
        readings, texts[time] if time else None, kept, zone, already_ns=str(time).endswith("_ns")
    )
    devices = _numbers(readings, texts[device] if device else None, kept, "device")
    partitions = _numbers(readings, texts[part], kept, "partition") if part else None
    hosts = texts[host].texts()[kept].tolist() if host else None
    of_host = {} if device else host_memory(values)
    known = meanings(values) | of_host
    # A column's meaning can depend on its values and on other columns: the unit of a size depends
    # on the total, and the values show whether a column is a share or a counter. Columns with the
    # same quantity can be found only after that.
    columns = {}
    for name in values:
        column = _column(readings, known[name], name, texts[name], kept)
        if column is not None:
            columns[name] = column
    columns = {
        name: (busy_or_counter(name, what, numbers), numbers)
        for name, (what, numbers) in _sized(readings, columns).items()
    }
    for what, numbers in _each_once(readings, columns).values():
        readings.add(what, numbers, times, devices, partitions, hosts)
    if not time:
        readings.refuse_several_snapshots()


def _each_once(
    readings: Readings, columns: dict[str, tuple[Meaning, np.ndarray]]
) -> dict[str, tuple[Meaning, np.ndarray]]:
    """Return the columns with unique names. If several columns contain the same quantity, only the
    first column with numbers gets the quantity's name. The other columns keep the tool's names.
    """
    first: dict[str, str] = {}
    for name, (what, numbers) in columns.items():
        if not np.isfinite(numbers).any() or first.setdefault(what.name, name) == name:
            continue
        readings.warnings.append(
            f"{readings.path.name}: the columns {first[what.name]} and {name} both mean"
            f" {what.name}, so {name} keeps its name."
        )
        columns = columns | {name: (own_name(name, what.unit), numbers)}
    unclear = [name for name, (what, _) in columns.items() if what.name == "mem"]
    readings.warnings += [
        f"{readings.path.name}: the meaning of {name} is unknown. The column keeps its name."
        for name in unclear
    ]
    return columns


def _empty_rows(texts: Mapping[str, TextColumn], values: Sequence[str]) -> np.ndarray:
    """Return a mask of the rows without any values. Some loggers write an empty row for each sample
    if they can't parse a line.
    """
    empty = np.ones(len(next(iter(texts.values()))), bool)
    for name in values:
        column = texts[name]
        absent = [index for index, value in enumerate(column.values) if not value.strip()]
        empty &= np.isin(column.codes, absent)
    return empty


def _times(
    readings: Readings,
    column: TextColumn | None,
    kept: np.ndarray,
    zone: tzinfo | None,
    already_ns: bool,
) -> np.ndarray:
    if column is None:
        readings.facts["times"] = "absent"
        return np.zeros(len(kept), np.int64)
    # Parse each distinct string once, in sorted order, so an error always names the same string.
    codes = column.codes[kept]
    used = sorted(np.unique(codes).tolist(), key=column.values.__getitem__)
    times = Times(
        [column.values[code] for code in used], readings.path, zone, already_ns=already_ns
    )
    nanoseconds = np.zeros(len(column.values) + 1, np.int64)
    nanoseconds[used] = [times[column.values[code]] for code in used]
    readings.facts["time_unit"] = times.unit
    if times.zone:
        readings.facts["time_zone"] = times.zone
        if zone is None:
            readings.warnings.append(
                f"{readings.path.name}: the times have no time zone and were read as UTC. If they"
                " are local times, pass time_zone."
            )
    return nanoseconds[codes]


def _numbers(
    readings: Readings, column: TextColumn | None, kept: np.ndarray, what: str
) -> pd.array:
    if column is None:
        return pd.array([pd.NA] * len(kept), "Int32")
    numbers = {}
    for code in np.unique(column.codes[kept]).tolist():
        text = column.values[code]
        numbers[code] = None if text.strip() in ABSENT_TEXTS else device_number(text)
        if numbers[code] is None and text.strip() not in ABSENT_TEXTS:
            raise ProfileReadError(
                readings.path,
                f"{text[:40]!r} isn't a {what} number",
                "the log identifies devices by bus address or UUID, or the columns are shifted",
                "log the GPU number, as amd-smi and rocm-smi do",
            )
    return pd.array([numbers[code] for code in column.codes[kept].tolist()], "Int32")


def _column(
    readings: Readings, what: Meaning | None, header: str, column: TextColumn, kept: np.ndarray
) -> tuple[Meaning, np.ndarray] | None:
    """Return the numbers in a column and the column's meaning, which includes the unit from its
    cells. Return None if the column contains no numbers.
    """
    codes = column.codes[kept]
    used = np.unique(codes).tolist()
    cells = {code: cell_value(column.values[code]) for code in used}
    # A column with only strings is a text column. If it also has numbers, strings are damage.
    if all(cell is None or np.isnan(cell[0]) for cell in cells.values()) and None in cells.values():
        readings.text_columns.add(header)
        return None
    if what is None:
        return None
    numbers = np.full(len(column.values) + 1, np.nan)
    unreadable = np.zeros(len(column.values) + 1, bool)
    for code, cell in cells.items():
        in_unit = None if cell is None else what.in_unit(cell[1])
        unreadable[code] = in_unit is None
        if in_unit is not None:
            numbers[code] = cell[0] * in_unit.factor
            what = in_unit if cell[1] else what
    wrong = int(unreadable[codes].sum())
    if wrong:
        readings.dropped[f"invalid {what.name} values"] += wrong
    return what, numbers[codes]


def _sized(
    readings: Readings, columns: dict[str, tuple[Meaning, np.ndarray]]
) -> dict[str, tuple[Meaning, np.ndarray]]:
    """Convert memory columns to bytes. If the header contains no unit, the size of the total shows
    whether the unit is GB, MB or bytes.
    """
    unsized = [name for name, (what, _) in columns.items() if is_memory(what) and not what.stated]
    if not unsized:
        return columns
    totals = [
        numbers
        for what, numbers in columns.values()
        if what.name == "memory_total" and np.isfinite(numbers).any()
    ]
    if not totals:
        readings.warnings.append(
            f"{readings.path.name}: the unit of {', '.join(unsized)} is unknown."
        )
        return columns | {
            name: (Meaning(columns[name][0].name, None, 1.0, True), columns[name][1])
            for name in unsized
        }
    # AMD Instinct GPUs have at least 16 GB and less than 2,000 GB of memory.
    largest = max(float(np.nanmax(numbers)) for numbers in totals)
    factor = 2.0**30 if largest < 2000 else 2.0**20 if largest < 2e6 else 1.0
    return columns | {name: (columns[name][0], columns[name][1] * factor) for name in unsized}


def _read_omnistat(readings: Readings, lines: list[str], zone: tzinfo | None) -> None:
    rows = [_cells(line) for line in lines]
    width = len(rows[0])
    end = next((i for i, row in enumerate(rows) if row and row[0].strip().lower() in _TIME), None)
    if end is None or any(len(row) != width for row in rows[:end]):
        raise ProfileReadError(
            readings.path,
            "the omnistat header has no row 'timestamp', or its rows have different lengths",
            "the file is cut off",
            "export again with omnistat-query --export",
        )
    levels = {row[0].strip().lower(): row[1:] for row in rows[:end]}
    names = [f"c{number}" for number in range(width)]
    texts = _table(readings, names, lines[end + 1 :])
    readings.rows = len(texts["c0"])
    kept = np.arange(readings.rows)
    # omnistat converts Unix times to dates without a zone (omnistat/query.py), so they are UTC.
    times = _times(readings, texts["c0"], kept, zone or UTC, already_ns=False)
    # Column 0 contains the times and the names of the label rows.
    for number, metric in enumerate(levels["metric"], 1):
        labels = {
            name: values[number - 1].strip() for name, values in levels.items() if name != "metric"
        }
        column = _column(readings, meaning(metric), metric, texts[f"c{number}"], kept)
        if column is None:
            continue
        what, numbers = column
        more = [value for name, value in labels.items() if name not in _OMNISTAT_LEVELS and value]
        what = (
            Meaning("[".join([what.name, *more]) + "]" * len(more), what.unit, what.factor, True)
            if more
            else what
        )
        card = device_number(labels.get("card", ""))
        device = pd.array([pd.NA if card is None else card] * len(kept), "Int32")
        readings.add(
            what, numbers, times, device, None, [labels.get("instance") or None] * len(kept)
        )
