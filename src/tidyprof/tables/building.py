"""The event table and the counter table of a Profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.names.short_names import short_name
from tidyprof.tables.codes import ABSENT, NO_TEXT, categorical, nullable, used_codes
from tidyprof.tables.contract import COUNTER_COLUMNS, COUNTER_DTYPES, EVENT_COLUMNS, FURTHER_COLUMNS, empty_counters
from tidyprof.tables.kinds import KINDS, ON_DEVICE
from tidyprof.tables.records import Records, nothing

_KINDS_DTYPE = pd.CategoricalDtype(KINDS)


def event_table(records: Records, texts: Sequence[str]) -> pd.DataFrame:
    """Events in order of start, an enclosing one first: EVENT_COLUMNS, FURTHER_COLUMNS that are there, and objects.

    texts -- what the codes in columns of texts stand for. Empties the records.
    """
    columns, records.columns = records.columns, {}
    starts = columns["start_ns"]
    keys = (columns["depth"], starts) if "depth" in columns else (starts,)
    order = np.lexsort(keys) if len(keys) > 1 or (starts[1:] < starts[:-1]).any() else slice(None)
    on_device = ON_DEVICE[columns["kind"]]
    labels = _shortened(texts, used_codes(columns["name"][on_device], len(texts)))
    if "parent" in columns:
        columns["parent"] = _moved(columns["parent"], order)
    columns["short_name"] = columns["name"]
    frame: dict[str, Any] = {}
    for name, dtype in _dtypes(columns).items():
        values = columns.pop(name) if name in columns and name != "name" else columns.get(name)
        values = nothing(name, len(starts)) if values is None else values[order]
        if name == "kind":
            frame[name] = pd.Categorical.from_codes(values, dtype=_KINDS_DTYPE)
        elif dtype == "category":
            frame[name] = categorical(values, labels if name == "short_name" else texts)
        else:
            frame[name] = values if dtype == "int64" else nullable(values, dtype)
    frame |= {name: _typed(values[order]) for name, values in records.objects.items()}
    return pd.DataFrame(frame, copy=False)


def counter_table(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Samples in order of time: the contract's columns, and of COUNTER_COLUMNS those that a part has.

    Where samples are of kernels, all of them.
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return empty_counters()
    present = {name for part in parts for name in part.columns} | set(COUNTER_DTYPES)
    dtypes = {name: dtype for name, dtype in COUNTER_COLUMNS.items() if name in present or "kernel" in present}
    table = pd.concat(parts).reindex(columns=list(dtypes))
    return table.sort_values("time_ns", kind="stable", ignore_index=True).astype(dtypes)


def _dtypes(columns: dict[str, np.ndarray]) -> dict[str, str]:
    """The columns of the table: of the further ones those in which something is known."""
    stated = {
        name: dtype
        for name, dtype in FURTHER_COLUMNS.items()
        if name in columns and (columns[name] != (NO_TEXT if dtype == "category" else ABSENT)).any()
    }
    return EVENT_COLUMNS | stated


def _shortened(texts: Sequence[str], used: np.ndarray) -> list[str]:
    """Short names of the texts that name work on a device; names on the host are readable as they are."""
    result = list(texts)
    for code in used.tolist():
        result[code] = short_name(texts[code])
    return result


def _typed(values: np.ndarray) -> Any:
    """Whole numbers, numbers, flags or text, as what is there allows; <NA> for None."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pd.array(values, "Int64")
    if kinds and kinds <= {int, float}:
        return pd.array([None if value is None else float(value) for value in values], "Float64")
    if kinds == {bool}:
        return pd.array(values, "boolean")
    return pd.Categorical([None if value is None else str(value) for value in values])


def _moved(rows: np.ndarray, order: np.ndarray | slice) -> np.ndarray:
    """Numbers of rows after the rows were put into this order."""
    if isinstance(order, slice):
        return rows
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return np.where(rows == ABSENT, ABSENT, place[np.maximum(rows, 0)])
