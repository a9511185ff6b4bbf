"""The pandas tables of a Profile from polars frames of events and of counters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tidyprof.io.csv_files import coded
from tidyprof.tables.contract import COUNTER_DTYPES, DEVICE_KINDS, EVENT_DTYPES, KINDS, empty_counters
from tidyprof.tables.device_records import EXTRA_COLUMNS
from tidyprof.tables.event_blocks import all_missing, categorical, shortened, used_codes

if TYPE_CHECKING:
    import polars as pl

EVENT_COLUMNS = {
    **EVENT_DTYPES,
    "source_category": "category",
    "queue": "Int64",
    "dispatch_id": "Int64",
    "grid": "category",
    "block": "category",
    "bytes": "Int64",
    "launch_ns": "Int64",
    "launch_thread": "Int64",
}
"""Columns that the event table always has, in order; EXTRA_COLUMNS follow where a file states them."""

COUNTER_COLUMNS = {
    **COUNTER_DTYPES,
    "rank": "Int32",
    "process": "Int64",
    "thread": "Int64",
    "queue": "Int64",
    "dispatch_id": "Int64",
    "correlation_id": "Int64",
    "kernel": "category",
    "duration_ns": "Int64",
    "work_items": "Int64",
    "workgroup_size": "Int64",
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "replay_pass": "Int32",
}
"""Columns of the counters of dispatches, in order."""

_SOURCE_OF_COLUMN = {
    "start_ns": "start",
    "duration_ns": "duration",
    "launch_ns": "launch",
    "source_category": "category",
    "time_ns": "start",
}


def event_table(events: pl.DataFrame) -> pd.DataFrame:
    """Events in order of their start, in the columns EVENT_COLUMNS and those of EXTRA_COLUMNS that are there."""
    if not events["start"].is_sorted():
        events = events.sort("start", maintain_order=True)
    names, labels = coded(events["name"])
    on_device = events["kind"].is_in(DEVICE_KINDS).to_numpy()
    makers: dict[str, Callable[[], Any]] = {
        "kind": lambda: pd.Categorical.from_codes(events["kind"].to_physical().to_numpy().astype(np.int8), KINDS),
        "name": lambda: categorical(names, labels),
        "short_name": lambda: categorical(names, shortened(labels, used_codes(names[on_device], len(labels)))),
        "grid": lambda: _shapes(events, "grid"),
        "block": lambda: _shapes(events, "block"),
    }
    dtypes = EVENT_COLUMNS | {name: dtype for name, dtype in EXTRA_COLUMNS.items() if name in events.columns}
    for name, dtype in dtypes.items():
        makers.setdefault(name, partial(_column, events, _SOURCE_OF_COLUMN.get(name, name), dtype))
    # Columns do not depend on each other, and numpy and polars let other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        columns = dict(zip(makers, threads.map(lambda make: make(), makers.values()), strict=True))
    return pd.DataFrame({name: columns[name] for name in dtypes}, copy=False)


def counter_table(counters: Sequence[pl.DataFrame]) -> pd.DataFrame:
    """Samples in order of time, in the columns COUNTER_COLUMNS; just the contract's if there is none."""
    import polars as pl

    if not counters:
        return empty_counters()
    samples = pl.concat(counters, how="diagonal").sort("start", maintain_order=True)
    samples = samples.rename({"name": "kernel", "counter": "name", "agent": "device"}, strict=False)
    columns = {
        name: _column(samples, _SOURCE_OF_COLUMN.get(name, name), dtype) for name, dtype in COUNTER_COLUMNS.items()
    }
    return pd.DataFrame(columns, copy=False)


def _column(frame: pl.DataFrame, name: str, dtype: str) -> Any:
    """One column as pandas has it; all missing where the frame lacks it."""
    if dtype == "category":
        if name not in frame.columns:
            return categorical(np.full(len(frame), -1, np.int32), [])
        return categorical(*coded(frame[name]))
    if name not in frame.columns:
        return all_missing(len(frame), dtype)
    if dtype in ("int64", "float64"):
        return _copied(frame[name], dtype)
    return nullable_integers(frame[name], dtype)


def nullable_integers(values: pl.Series, dtype: str) -> pd.arrays.IntegerArray:
    """Integers with <NA> for null and for what the type cannot hold."""
    import polars as pl

    target = {"Int32": pl.Int32, "Int64": pl.Int64, "UInt64": pl.UInt64}[dtype]
    if values.dtype != target and not _fits(values, np.iinfo(dtype.lower())):
        values = values.cast(target, strict=False)
    if values.null_count() == len(values):
        return all_missing(len(values), dtype)
    if not values.null_count():
        return pd.arrays.IntegerArray(_copied(values, dtype.lower()), np.zeros(len(values), bool))
    missing = values.is_null().to_numpy(writable=True)
    return pd.arrays.IntegerArray(_copied(values.fill_null(1), dtype.lower()), missing)


def _fits(values: pl.Series, limits: np.iinfo[Any]) -> bool:
    """Whether these are whole numbers within the limits of a type."""
    if not values.dtype.is_integer():
        return False
    smallest, largest = values.min(), values.max()
    return smallest is None or (limits.min <= smallest and largest <= limits.max)


def _copied(values: pl.Series, dtype: str) -> np.ndarray:
    """Numbers, none of them null, as an array of their own: one pass, whatever the parts that polars keeps them in."""
    result = np.empty(len(values), dtype)
    begin = 0
    for part in values.get_chunks():
        result[begin : begin + len(part)] = part.to_numpy()
        begin += len(part)
    return result


def _shapes(events: pl.DataFrame, what: str) -> pd.Categorical:
    """`[256, 1, 1]` for each row that has the three sizes; `[256]` where the tool states their product only."""
    names = [f"{what}_{axis}" for axis in "xyz" if f"{what}_{axis}" in events.columns]
    if not names:
        return categorical(np.full(len(events), -1, np.int32), [])
    codes = np.zeros(len(events), np.int64)
    sizes: list[tuple[int | None, ...]] = [()]
    for name in names:
        axis, values = _distinct(events[name])
        if len(sizes) == 1:
            codes, sizes = axis, [(*sizes[0], value) for value in values]
        elif len(values) == 1:
            sizes = [(*size, values[0]) for size in sizes]
        else:
            codes, pairs = _dense(codes * len(values) + axis, len(sizes) * len(values))
            sizes = [(*sizes[pair // len(values)], values[pair % len(values)]) for pair in pairs.tolist()]
    labels = ["" if None in size else f"[{', '.join(map(str, size))}]" for size in sizes]
    if "" in labels:
        codes = np.array([place if label else -1 for place, label in enumerate(labels)], np.int32)[codes]
    return categorical(codes, labels)


def _distinct(sizes: pl.Series) -> tuple[np.ndarray, list[int | None]]:
    """For every row the place of its size in a list, int64, and that list of distinct sizes, with None for null."""
    import polars as pl

    # Sizes have 32 bits; what has more is damage.
    sizes = sizes.cast(pl.UInt32, strict=False)
    smallest, largest = sizes.min(), sizes.max()
    if smallest == largest and sizes.null_count() in (0, len(sizes)):
        return np.zeros(len(sizes), np.int64), [smallest]
    if not sizes.null_count():
        codes, values = _dense(_copied(sizes, "int64"), largest + 1)
        return codes, values.tolist()
    codes, values = _dense(_copied(sizes.cast(pl.Int64).fill_null(largest + 1), "int64"), largest + 2)
    return codes, [value if value <= largest else None for value in values.tolist()]


def _dense(numbers: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """For every number, all in [0, limit), its place among the distinct ones, int64, and those."""
    if limit > max(2**16, len(numbers)):
        return pd.factorize(numbers)
    # A table of all possible numbers is several times faster than a hash of those there are.
    place = np.zeros(limit, np.int64)
    place[numbers] = 1
    values = np.flatnonzero(place)
    place[values] = np.arange(len(values))
    return place[numbers], values
