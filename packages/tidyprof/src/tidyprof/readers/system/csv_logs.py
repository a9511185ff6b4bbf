"""CSV logs of system monitors: of amd-smi, rocm-smi, omnistat's export, and of scripts."""

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
    """The header of a monitor's CSV among the first lines of the text, None if there is none."""
    for line in text[:4096].splitlines()[:6]:
        names = _cells(line.decode("utf-8", "replace"))
        if is_header(names):
            return names
    return None


def is_header(names: Sequence[str]) -> bool:
    """Whether these columns are those of a system monitor."""
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
    """The readings in a CSV log. Raises ProfileReadError if it is no log, or damaged."""
    readings = Readings(path)
    lines = _lines(readings, text)
    start = next((number for number, line in enumerate(lines) if is_header(_cells(line))), None)
    if start is None:
        raise ProfileReadError(
            path,
            f"no header of a system monitor (it begins with {lines[0][:40]!r})",
            "another tool wrote it, or the header was cut off",
            "pass the log of amd-smi monitor --csv, rocm-smi --csv or omnistat-query --export",
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
    """The lines of the log, without blank lines and a last line that was not finished."""
    decoded = text.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    lines = decoded.split("\n")
    if lines[-1].strip():
        # A sampler that is killed leaves a line without an end: its last number may be cut short.
        readings.warnings.append(
            f"{readings.path.name}: the last line was not finished and is left out."
        )
        readings.facts["unfinished_lines"] = 1
    lines = [line for line in lines[:-1] if line.strip()]
    if not lines:
        raise ProfileReadError(
            readings.path,
            "not one complete line",
            "the tool was stopped before its first sample",
            "record again",
        )
    return lines


def _table(readings: Readings, header: list[str], lines: list[str]) -> dict[str, TextColumn]:
    """Columns of the rows below a header. Headers that watch mode repeats are left out; missing
    last cells are empty.

    Some loggers never write the last cells, so a row counts as cut short only if fewer than one row
    in _RARE ends where it does. It is left out and counted, and so are lines that are no rows.
    Raises ProfileReadError for a column that comes twice, and for a row with more cells than the
    header, unless these are empty.
    """
    repeated = next((name for name in header if header.count(name) > 1), None)
    if repeated is not None:
        raise _two_logs(
            readings.path, f"the column {repeated[:40]!r} {header.count(repeated)} times"
        )
    width, rows = len(header), []
    lengths: Counter[int] = Counter()
    for number, line in enumerate(lines, 2):
        cells = _cells(line) if '"' in line else line.split(",")
        if any(cells[width:]):
            raise _two_logs(readings.path, f"more cells in row {number} than in the header")
        if cells == header or line.startswith("'CTRL'"):
            continue
        # A logger that had nothing to log writes a time and a comma.
        is_row = cells and "\0" not in line and "," in line
        length = _UNREADABLE if not is_row else min(len(cells), width) * any(cells[1:])
        lengths[length] += 1
        # All rows are put together again with the header's number of cells, and read as one table.
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
        readings.dropped["of rows that are cut short or not separated by commas"] += lost
    text = "\n".join(["," * (width - 1), *sound, ""]).encode("utf-8", "replace")
    # Imported here since a log is recognized without pyarrow.
    from tidyprof.io.csv_files import TEXT, coded, rows_of

    table = rows_of(text, header, dict.fromkeys(header, TEXT), len(text))
    return {name: _text_column(*coded(table[name])) for name in header}


def _text_column(codes: np.ndarray, texts: list[str]) -> TextColumn:
    """Return the column, in which empty cells have the text at the end of the list."""
    return TextColumn(np.where(codes < 0, np.int32(len(texts)), codes), [*texts, ""])


def _two_logs(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        finding,
        "two programs wrote into one file, or the columns changed within it",
        "keep one log per file",
    )


def _first_of(columns: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((columns[name] for name in wanted if name in columns), None)


def _read_columns(readings: Readings, texts: Mapping[str, TextColumn], zone: tzinfo | None) -> None:
    """Add the readings of a table with one column per quantity, as amd-smi and rocm-smi print it
    and most scripts write it.
    """
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
    # What a column means can depend on its values and on other columns: sizes on the total, a share
    # or a counter on the values, and only then is clear which columns are of one quantity.
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
    """The columns, of which only the first with numbers of a quantity has its name; others of the
    same quantity keep the tool's names.
    """
    first: dict[str, str] = {}
    for name, (what, numbers) in columns.items():
        if not np.isfinite(numbers).any() or first.setdefault(what.name, name) == name:
            continue
        readings.warnings.append(
            f"{readings.path.name}: {first[what.name]} and {name} would both be {what.name}; {name}"
            " keeps its name."
        )
        columns = columns | {name: (own_name(name, what.unit), numbers)}
    unclear = [name for name, (what, _) in columns.items() if what.name == "mem"]
    readings.warnings += [
        f"{readings.path.name}: what {name} means is not stated; it keeps its name."
        for name in unclear
    ]
    return columns


def _empty_rows(texts: Mapping[str, TextColumn], values: Sequence[str]) -> np.ndarray:
    """Mask of the rows without any value: some loggers write one per sample for a line that they
    could not parse.
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
    # Each distinct text once, in order of the texts, so that an error names the same one each time.
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
                f"{readings.path.name}: its times state no zone and were read as UTC; pass"
                " time_zone if they are local."
            )
    return nanoseconds[codes]


def _numbers(
    readings: Readings, column: TextColumn | None, kept: np.ndarray, what: str
) -> pd.array:
    """Numbers of devices or partitions, <NA> where the cell is empty."""
    if column is None:
        return pd.array([pd.NA] * len(kept), "Int32")
    numbers = {}
    for code in np.unique(column.codes[kept]).tolist():
        text = column.values[code]
        numbers[code] = None if text.strip() in ABSENT_TEXTS else device_number(text)
        if numbers[code] is None and text.strip() not in ABSENT_TEXTS:
            raise ProfileReadError(
                readings.path,
                f"{text[:40]!r} instead of the number of a {what}",
                "devices are named by bus address or UUID, or the columns are shifted",
                "log the number of the GPU (amd-smi and rocm-smi do)",
            )
    return pd.array([numbers[code] for code in column.codes[kept].tolist()], "Int32")


def _column(
    readings: Readings, what: Meaning | None, header: str, column: TextColumn, kept: np.ndarray
) -> tuple[Meaning, np.ndarray] | None:
    """Meaning (with the unit that its cells state) and numbers of a column, None if it holds no
    numbers.
    """
    codes = column.codes[kept]
    used = np.unique(codes).tolist()
    cells = {code: cell_value(column.values[code]) for code in used}
    # Texts, and otherwise no number: a column of texts. With a number, a text is damage.
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
        readings.dropped[f"{what.name} that are no number in its unit"] += wrong
    return what, numbers[codes]


def _sized(
    readings: Readings, columns: dict[str, tuple[Meaning, np.ndarray]]
) -> dict[str, tuple[Meaning, np.ndarray]]:
    """The columns with amounts of memory in bytes. Where the header states no unit, the size of the
    total tells whether it is GB, MB or bytes.
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
            f"{readings.path.name}: the unit of {', '.join(unsized)} is not stated."
        )
        return columns | {
            name: (Meaning(columns[name][0].name, None, 1.0, True), columns[name][1])
            for name in unsized
        }
    # The smallest Instinct has 16 GB, the largest less than 2000.
    largest = max(float(np.nanmax(numbers)) for numbers in totals)
    factor = 2.0**30 if largest < 2000 else 2.0**20 if largest < 2e6 else 1.0
    return columns | {name: (columns[name][0], columns[name][1] * factor) for name in unsized}


def _read_omnistat(readings: Readings, lines: list[str], zone: tzinfo | None) -> None:
    """Add the readings of `omnistat-query --export`: header rows of labels, then one row per time
    and one column per series.
    """
    rows = [_cells(line) for line in lines]
    width = len(rows[0])
    end = next((i for i, row in enumerate(rows) if row and row[0].strip().lower() in _TIME), None)
    if end is None or any(len(row) != width for row in rows[:end]):
        raise ProfileReadError(
            readings.path,
            "header rows of omnistat without the row 'timestamp'",
            "the file is cut off",
            "export again with omnistat-query --export",
        )
    levels = {row[0].strip().lower(): row[1:] for row in rows[:end]}
    names = [f"c{number}" for number in range(width)]
    texts = _table(readings, names, lines[end + 1 :])
    readings.rows = len(texts["c0"])
    kept = np.arange(readings.rows)
    # omnistat makes dates of Unix times without a zone (omnistat/query.py), so they are UTC.
    times = _times(readings, texts["c0"], kept, zone or UTC, already_ns=False)
    # Column 0 has the times, and names the rows of labels.
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
