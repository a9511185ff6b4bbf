"""Rows of CSV and JSON files as records and counters, for rocprofv3, rocprofv2 and rocprof 1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.readers.columns import ColumnTable
from tidyprof.readers.csv_rows import Rows
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    ON_DEVICE,
    Codes,
    categorical,
    counted,
    nullable,
    refined,
    shape_codes,
    used_codes,
)
from tidyprof.tables.contract import COUNTER_COLUMNS
from tidyprof.tables.damage import (
    REPEATED_ID,
    durations,
    sound_rows,
    time_faults,
    without_damage,
)
from tidyprof.tables.records import Records

_NO_KIND = -1


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
    kind = _each(
        lambda text: KIND_CODE.get(table.kind_of(text) or "", _NO_KIND), category, texts, np.int8
    )
    is_fill = (kind == KIND_CODE["copy"]) & _contains(r"(?i)fill|memset", name, texts)
    kind[is_fill] = KIND_CODE["fill"]
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
        faults[REPEATED_ID] = pd.Series(number).duplicated() & (number != ABSENT)
    records.dropped += rows.dropped
    without_damage(path, records, faults)
    return records


def _axes(columns: Iterable[str], shape: str) -> list[str]:
    return [axis for axis in (f"{shape}_{one}" for one in "xyz") if axis in columns]


def _each(
    function: Callable[[str], int], codes: np.ndarray, texts: Codes, dtype: Any
) -> np.ndarray:
    """Apply a function once to each string in use. The result of a missing string is 0."""
    labels = list(texts)
    values = np.zeros(len(labels) + 1, dtype)
    for code in used_codes(codes, len(labels)).tolist():
        values[code] = function(labels[code])
    return values[codes]


def _contains(pattern: str, codes: np.ndarray, texts: Codes) -> np.ndarray:
    return _each(lambda text: re.search(pattern, text) is not None, codes, texts, bool)


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
_IDENTITY = ("process", "dispatch_id", "counter", "replay_pass")
"""Columns that identify a counter value."""


def counters_of(
    rows: Rows, path: Path, texts: Codes
) -> tuple[pd.DataFrame, Counter[str], list[str]]:
    """Return one row per dispatch and counter with the columns COUNTER_COLUMNS. Also return the
    number of values that were left out for each reason, and warnings.

    Raises ProfileReadError if too many values or times are damaged.
    """
    columns, rows.columns = rows.columns, {}
    for name, shape in {"work_items": "grid", "workgroup_size": "block"}.items():
        if axes := _axes(columns, shape):
            sizes = np.stack([columns[axis] for axis in axes])
            columns[name] = np.where((sizes == ABSENT).any(axis=0), ABSENT, sizes.prod(axis=0))
    if rows.counters:
        # One row per dispatch becomes one row per dispatch and counter.
        row, counter, columns["value"] = rows.counter_values()
        columns = {name: columns[name][row] for name in columns if name != "value"} | {
            "counter": texts.of(rows.counters)[counter],
            "value": columns["value"],
        }
    value, warnings = columns["value"], []
    faults = {
        "whose value isn't a number": ~np.isfinite(value) | (columns["counter"] == NO_TEXT),
        "whose value is negative": value < 0,
    }
    identity = {name: columns[name] for name in _IDENTITY if name in columns}
    if "dispatch_id" in identity:
        faults[REPEATED_ID] = pd.DataFrame(identity, copy=False).duplicated().to_numpy()
    if {"start", "end"} <= columns.keys():
        columns["start_ns"] = columns.pop("start")
        columns["duration_ns"] = durations(columns["start_ns"], columns.pop("end"))
        kind = np.array(KIND_CODE["kernel"])
        faults = time_faults(columns["start_ns"], columns["duration_ns"], kind) | faults
    else:
        columns["start_ns"] = np.zeros(len(value), np.int64)
        warnings.append(
            f"{path.name}: the counters have no times, because ROCm 6.2 and earlier don't write"
            " them. Their time_ns is 0."
        )
    sound, faulty = sound_rows(path, "counter values", faults)
    table, labels = {}, list(texts)
    for name in list(columns):
        target = _COUNTER_NAMES.get(name, name)
        values, dtype = columns.pop(name), COUNTER_COLUMNS.get(target)
        if dtype is not None and faulty:
            values = values[sound]
        if dtype == "category":
            table[target] = categorical(values, labels)
        elif dtype is not None:
            is_plain = dtype in ("int64", "float64")
            table[target] = values if is_plain else nullable(values, dtype)
    return pd.DataFrame(table, copy=False), rows.dropped + faulty, warnings
