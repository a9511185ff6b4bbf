"""The event table and the counter table of one or more Perfetto traces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.names.short_names import short_name
from tidyprof.readers.perfetto.events import Tables
from tidyprof.readers.perfetto.file import TraceFile
from tidyprof.tables.codes import ABSENT, categorical, nullable
from tidyprof.tables.contract import EVENT_DTYPES, KINDS, empty_counters
from tidyprof.tables.kinds import ON_DEVICE

_SHAPE = re.compile(r"\(?([0-9]+(?:, ?[0-9]+)*)\)?")

EVENT_COLUMNS = {
    **EVENT_DTYPES,
    "source_category": "category",
    "track": "category",
    "depth": "Int32",
    "parent": "Int64",
    "sample": "Int64",
    "queue": "Int64",
    "dispatch_id": "Int64",
    "grid": "category",
    "block": "category",
    "bytes": "Int64",
    "launch_ns": "Int64",
    "launch_thread": "Int64",
}
EXTRA_COLUMNS = {
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "source_device": "Int32",
    "destination_device": "Int32",
    "memory_device": "Int32",
}
"""Columns of the event table in order: those that are always there, and those that follow where a file states them."""

_SOURCES = {
    "start_ns": "start",
    "duration_ns": "duration",
    "correlation_id": "correlation",
    "source_category": "category",
    "launch_ns": "launch",
    "short_name": "name",
}


def event_table(files: Sequence[TraceFile], tables: Tables) -> pd.DataFrame:
    """Columns of all files as the table that `read_perfetto` documents, in order of start; empties the columns."""
    first_rows = np.cumsum([0, *(len(file.columns["start"]) for file in files)])
    columns = _joined(files)
    # An enclosing event before what it encloses, even if both start at once.
    order = np.lexsort((columns["depth"], columns["start"]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    is_inner = columns["parent"] != ABSENT
    columns["parent"][is_inner] = place[columns["parent"][is_inner]]
    absent = np.full(len(order), ABSENT)
    texts = _texts(files, tables, np.unique(columns["name"][ON_DEVICE[columns["kind"]]]))
    dtypes = EVENT_COLUMNS | {name: dtype for name, dtype in EXTRA_COLUMNS.items() if name in columns}
    frame: dict[str, Any] = {}
    for name, dtype in dtypes.items():
        values = columns.get(_SOURCES.get(name, name), absent)[order]
        if name == "kind":
            frame[name] = pd.Categorical.from_codes(values, KINDS)
        elif dtype == "category":
            frame[name] = _categorical(values, texts[name])
        else:
            frame[name] = values if dtype == "int64" else nullable(values, dtype)
    return pd.DataFrame(frame | _wanted(files, first_rows, place), copy=False)


def empty_events() -> pd.DataFrame:
    """The table of a run without a trace."""
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_COLUMNS.items()})


def _texts(files: Sequence[TraceFile], tables: Tables, on_device: np.ndarray) -> dict[str, list[str | None]]:
    """For each column of texts what its codes stand for; `on_device` are codes of the device's names."""
    names = tables.names.texts
    shortened = list(names)
    for code in on_device.tolist():
        shortened[code] = short_name(names[code])
    shapes = [_shape(label) for label in tables.labels.texts]
    return {
        "name": names,
        "short_name": shortened,
        "source_category": tables.categories.texts,
        "track": [text or None for file in files for text in file.track_names],
        "grid": shapes,
        "block": shapes,
    }


def _categorical(codes: np.ndarray, texts: Sequence[str | None]) -> pd.Categorical:
    """Codes as a column of texts; codes below 0 and codes without text are missing."""
    is_text = np.array([text is not None for text in texts] + [False], bool)
    codes = np.where(is_text[np.maximum(codes, -1)], codes, -1)
    return categorical(codes, texts)


def _joined(files: Sequence[TraceFile]) -> dict[str, np.ndarray]:
    """Columns of all files one after the other, numbers of rows, tracks and samples going on from file to file."""
    first_row = first_track = first_sample = 0
    for file in files:
        columns = file.columns
        rows = len(columns["start"])
        columns["rank"] = np.full(rows, ABSENT if file.rank is None else file.rank)
        samples = columns["sample"].max(initial=-1) + 1
        for name, first in (("parent", first_row), ("track", first_track), ("sample", first_sample)):
            columns[name] = np.where(columns[name] == ABSENT, ABSENT, columns[name] + first)
        first_row, first_track = first_row + rows, first_track + len(file.track_names)
        first_sample += samples
    names = dict.fromkeys(name for file in files for name in file.columns)
    rows = [len(file.columns["start"]) for file in files]
    return {
        name: np.concatenate(
            [file.columns.pop(name, np.full(count, ABSENT)) for file, count in zip(files, rows, strict=True)]
        )
        for name in names
    }


def _wanted(files: Sequence[TraceFile], first_rows: np.ndarray, place: np.ndarray) -> dict[str, Any]:
    """A column for each annotation that was asked for; `place` is where each row of the files went."""
    columns = {}
    for name in files[0].extras:
        values = np.full(len(place), None, object)
        for file, first in zip(files, first_rows, strict=False):
            rows, found = file.extras[name]
            for row, value in zip(place[rows + first].tolist(), found, strict=True):
                values[row] = value
        columns[name] = _typed(values)
    return columns


def _typed(values: np.ndarray) -> Any:
    """Whole numbers, numbers, flags or text, as what is there allows; <NA> where there is nothing."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pd.array(values, "Int64")
    if kinds and kinds <= {int, float}:
        return pd.array([None if value is None else float(value) for value in values], "Float64")
    if kinds == {bool}:
        return pd.array(values, "boolean")
    return pd.Categorical([None if value is None else str(value) for value in values])


def counter_table(files: Iterable[TraceFile]) -> pd.DataFrame:
    """Samples of all counters in order of time: the contract's columns, rank and process."""
    parts = []
    for file in files:
        columns = file.counters
        part = {
            "time_ns": columns["time"],
            "device": nullable(columns["device"], "Int32"),
            "name": categorical(columns["name"], file.counter_texts),
            "value": columns["value"],
            "unit": categorical(columns["unit"], file.counter_texts),
            "rank": nullable(np.full(len(columns["time"]), ABSENT if file.rank is None else file.rank), "Int32"),
            "process": nullable(columns["process"], "Int64"),
        }
        if len(columns["time"]):
            parts.append(pd.DataFrame(part))
    if not parts:
        return empty_counters().assign(rank=pd.array([], "Int32"), process=pd.array([], "Int64"))
    table = pd.concat(parts).sort_values("time_ns", kind="stable", ignore_index=True)
    return table.astype({"name": "category", "unit": "category"})


def _shape(label: str) -> str | None:
    """`[256, 1, 1]` of rocprof-sys's `(256,1,1)`; `[256]` of the product, which is all that rocprofv3 writes."""
    found = _SHAPE.fullmatch(label)
    return f"[{', '.join(found[1].replace(' ', '').split(','))}]" if found else None
