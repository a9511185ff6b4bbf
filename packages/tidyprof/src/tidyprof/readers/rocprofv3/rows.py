"""Rows of a column table as records and counters. All CSV formats of ROCm's profilers use this
path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tidyprof.errors import ProfileReadError
from tidyprof.io.csv_files import TEXT, CsvFile, coded, mapped, open_end, text_codes, whole_numbers
from tidyprof.readers.rocprofv3.columns import ColumnTable
from tidyprof.readers.rocprofv3.recognition import OutputFile
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    ON_DEVICE,
    Codes,
    by_code,
    categorical,
    counted,
    nullable,
    refined,
    shape_codes,
)
from tidyprof.tables.contract import COUNTER_COLUMNS
from tidyprof.tables.damage import durations, refuse_damage, without_damage
from tidyprof.tables.records import Records

_TYPES = {
    "text": TEXT,
    "agent": TEXT,
    "time": pa.int64(),
    "id": pa.uint64(),
    "mask": pa.uint64(),
    "size": pa.uint32(),
    "value": pa.float64(),
    "counter": TEXT,
    "ignored": pa.string(),
}
_AGENT = re.compile(r"(?:(Agent|GPU|CPU) )?(\d{1,9})")
_CUT_SHORT = "cut short"
_NO_KIND = -1
# rocprofv3 encloses strings in quotes but doesn't double the quotes inside them (csv_encoder in
# source/lib/output/csv.hpp of https://github.com/ROCm/rocprofiler-sdk).
_QUOTED_MARKS = (
    (
        "a marker or a --kernel-rename range contains quotes, which rocprofv3 doesn't escape, or"
        " the file is damaged"
    ),
    "record with --output-format json or rocpd, or remove the quotes from the markers",
)


@dataclass
class Rows:
    """The rows of a CSV file, or of one list in a JSON file.

    - columns: one array per column, under tidyprof's names. Numbers are int64 with ABSENT, strings
      are codes with NO_TEXT, and values are float64 with NaN.
    - counters: in a file with one column per counter, the values of each counter
    - cut: number of incomplete rows, which aren't in `columns`
    - counts_gpus: True if agent numbers count only GPUs, as in `GPU 0` instead of `Agent 4`
    - warnings: warnings about corrected text
    """

    columns: dict[str, np.ndarray]
    counters: dict[str, pa.Array] = field(default_factory=dict)
    cut: int = 0
    counts_gpus: bool = False
    warnings: list[str] = field(default_factory=list)


def read_rows(file: OutputFile, table: ColumnTable, texts: Codes, maximum_bytes: int) -> Rows:
    """Read the rows of a CSV file. If several columns have the same name in `table`, only the first
    one is used.

    Raises ProfileReadError if the file is damaged.
    """
    path, header = file.path, file.header
    # The last column is always read, because it shows whether a row is complete.
    last = [column for column in header if column][-1]
    unknown = ("", "counter" if table.ignored else "ignored")
    known = {
        column: table.columns.get(column.lower(), unknown)
        for column in header
        if column and column.lower() not in table.ignored
    }
    kinds = {column: kind for column, (_, kind) in known.items() if kind != "ignored"}
    kinds.setdefault(last, "ignored")
    cells = CsvFile(path, header, maximum_bytes)
    types = {column: _TYPES[kind] for column, kind in kinds.items()}
    complete, cut = cells.complete_rows(cells.frame(types, quotes=_QUOTED_MARKS), last)
    rows = Rows({}, cut=cut, warnings=cells.warnings + open_end(path, cells.content))
    for column, kind in kinds.items():
        name, values = known.get(column, unknown)[0], complete[column]
        if kind == "counter":
            rows.counters[column] = mapped(values, _counter_value, pa.float64())
        if not name or name in rows.columns:
            continue
        if kind == "text":
            rows.columns[name] = text_codes(values, texts)
        elif kind == "agent":
            codes, labels = coded(values)
            numbers = [int(match[2]) if (match := _AGENT.fullmatch(label)) else ABSENT
                       for label in labels]  # fmt: skip
            rows.columns[name] = by_code(numbers, codes, ABSENT, np.int64)
            rows.counts_gpus |= any(label.startswith("GPU") for label in labels)
        elif kind == "value":
            rows.columns[name] = values.to_numpy()
        else:
            numbers = whole_numbers(values)
            rows.columns[name] = np.where(numbers < 0, ABSENT, numbers) if kind == "id" else numbers
    databases = len(pd.unique(rows.columns.pop("guid", np.zeros(1))))
    if databases > 1:
        # Correlation IDs are unique only within a database.
        raise ProfileReadError(
            path,
            f"the rows are from {databases} databases (column Guid)",
            "rocpd converted the databases of several processes together",
            "read the databases themselves, or convert each database separately",
        )
    return rows


def _counter_value(text: str) -> float | None:
    try:
        return None if text == "None" else float(text)
    except ValueError:
        return float("nan")


def records_of(rows: Rows, path: Path, table: ColumnTable, texts: Codes) -> Records:
    """Return the rows that are events, and empty `rows`. Copies whose name identifies them as fills
    get the kind `fill`.

    Raises ProfileReadError if too many rows are unusable.
    """
    columns, rows.columns = rows.columns, {}
    start, category = columns.pop("start"), columns.pop("category")
    category[category == NO_TEXT] = texts[""]
    name = columns.setdefault("name", category.copy())
    records = Records({"start_ns": start, "duration_ns": durations(start, columns.pop("end"))})
    records["name"], records["source_category"] = name, category
    kinds = [KIND_CODE.get(table.kind_of(text) or "", _NO_KIND) for text in texts]
    kind = by_code(kinds, category, _NO_KIND, np.int8)
    kind[(kind == KIND_CODE["copy"]) & _contains(r"(?i)fill|memset", name, texts)] = KIND_CODE[
        "fill"
    ]
    records["kind"] = kind = refined(kind, name, texts)
    # A marker can be an empty string. Only an instruction that couldn't be decoded has no string.
    name[(name == NO_TEXT) & (kind != KIND_CODE["sample"])] = texts[""]
    for shape in ("grid", "block"):
        axes = [columns.pop(axis) for axis in _axes(columns, shape)]
        if axes:
            records[shape] = shape_codes(axes, texts)
    _add_places(records, columns, texts)
    records.columns |= columns
    is_event = kind != _NO_KIND
    records.not_kept += counted(category[~is_event], texts)
    records.keep(is_event)
    faults = {}
    if "dispatch_id" in records and "exec_mask" not in records:
        # Numbers are unique within a process, so a repeated number is from a copy or another run.
        number = records["dispatch_id"]
        faults["with a repeated dispatch ID"] = pd.Series(number).duplicated() & (number != ABSENT)
    _drop_damage(path, records, rows.cut, faults)
    return records


def _drop_damage(path: Path, records: Records, cut: int, faults: dict[str, np.ndarray]) -> None:
    dropped = Counter({_CUT_SHORT: cut})
    refuse_damage(path, "rows", dropped, len(records) + cut)
    records.dropped += dropped
    without_damage(path, records, faults)


def _axes(columns: Iterable[str], shape: str) -> list[str]:
    return [axis for axis in (f"{shape}_{one}" for one in "xyz") if axis in columns]


def _contains(pattern: str, codes: np.ndarray, texts: Codes) -> np.ndarray:
    return by_code((bool(re.search(pattern, text)) for text in texts), codes, False)


def _add_places(records: Records, columns: dict[str, np.ndarray], texts: Codes) -> None:
    """Add devices and threads. A copy belongs to its GPU. If the source and the target are GPUs, it
    belongs to the target.

    For a host call, the agent is the owner of the memory. Device work has no thread, because the
    tool records the thread that launched the work.
    """
    kind = records["kind"]
    on_device = ON_DEVICE[kind]
    agent = columns.pop("agent", None)
    if {"source_agent", "destination_agent"} <= columns.keys():
        source, target = columns.pop("source_agent"), columns.pop("destination_agent")
        # An agent may be a CPU, so the name of the copy shows which end is the GPU.
        to_device = _contains("TO_DEVICE", records["name"], texts)
        to_host = _contains("DEVICE_TO_HOST", records["name"], texts)
        records["device"] = np.where(to_device, target, np.where(to_host, source, ABSENT))
        records["source_device"], records["destination_device"] = source, target
    elif agent is not None:
        # Graph launches are annotations with an agent.
        is_of_device = on_device | (kind == KIND_CODE["annotation"])
        records["device"] = np.where(is_of_device, agent, ABSENT)
        records["memory_device"] = np.where(is_of_device, ABSENT, agent)
    if "thread" in columns:
        thread = columns.pop("thread")
        records["thread"] = np.where(on_device, ABSENT, thread)
        records["launch_thread"] = np.where(on_device, thread, ABSENT)


_COUNTER_NAMES = {"start_ns": "time_ns", "name": "kernel", "counter": "name", "agent": "device"}


def counters_of(
    rows: Rows, path: Path, texts: Codes
) -> tuple[pd.DataFrame, Counter[str], list[str]]:
    """Return one row per dispatch and counter with the columns COUNTER_COLUMNS. Also return the
    number of values that were left out for each reason, and warnings.

    Values that aren't numbers count as damage, like impossible times. Raises ProfileReadError if
    too many values aren't numbers.
    """
    columns, rows.columns = rows.columns, {}
    for name, shape in {"work_items": "grid", "workgroup_size": "block"}.items():
        if axes := [columns[axis] for axis in _axes(columns, shape)]:
            is_known = np.all([axis != ABSENT for axis in axes], axis=0)
            columns[name] = np.where(is_known, np.prod(axes, axis=0), ABSENT)
    if rows.counters:
        # One row per dispatch becomes one row per dispatch and counter.
        has_value = np.stack([values.is_valid() for values in rows.counters.values()])
        counter, row = np.nonzero(has_value)
        columns = {name: values[row] for name, values in columns.items()}
        values = np.stack(
            [values.to_numpy(zero_copy_only=False) for values in rows.counters.values()]
        )
        columns["counter"] = texts.of(rows.counters)[counter]
        columns["value"] = values[counter, row]
    # In ROCm 6.2, counters have no times but are in dispatch order. The dispatch number replaces
    # the start time.
    has_times = {"start", "end"} <= columns.keys()
    if not has_times:
        number = columns.get("dispatch_id", np.zeros(len(columns["value"]), np.int64))
        columns["start"] = columns["end"] = np.maximum(number, 0) + 1
    start, value = columns.pop("start"), columns["value"]
    duration = durations(start, columns.pop("end"))
    records = Records(columns | {"start_ns": start, "duration_ns": duration})
    records["value"] = value.view(np.int64)
    records["kind"] = np.full(len(value), KIND_CODE["kernel"], np.int8)
    faults = {
        "whose value isn't a number": ~np.isfinite(value) | (columns["counter"] == NO_TEXT),
        "whose value is negative": value < 0,
    }
    _drop_damage(path, records, rows.cut, faults)
    warnings = []
    if not has_times:
        records["start_ns"] = np.zeros(len(records), np.int64)
        del records.columns["duration_ns"]
        warnings.append(
            f"{path.name}: the counters have no times, because ROCm 6.2 and earlier don't write"
            " them. Their time_ns is 0."
        )
    table, labels = {}, list(texts)
    for name, values in records.columns.items():
        target = _COUNTER_NAMES.get(name, name)
        dtype = COUNTER_COLUMNS.get(target)
        if dtype == "category":
            table[target] = categorical(values, labels)
        elif dtype == "float64":
            table[target] = values.view(np.float64)
        elif dtype is not None:
            table[target] = values if dtype == "int64" else nullable(values, dtype)
    return pd.DataFrame(table), records.dropped, warnings
