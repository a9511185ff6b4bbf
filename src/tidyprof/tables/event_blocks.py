"""One event table made of blocks of events that come from different tables of a database."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.names.short_names import short_name
from tidyprof.readers.torch.events import ABSENT, Codes
from tidyprof.tables.contract import COUNTER_DTYPES, EVENT_DTYPES, KINDS, empty_counters
from tidyprof.tables.kind_codes import ON_DEVICE

COLUMN_DTYPES = {
    **EVENT_DTYPES,
    "source_category": "category",
    "operator": "category",
    "bytes": "Int64",
    "grid": "category",
    "block": "category",
    "launch_ns": "Int64",
    "launch_thread": "Int64",
    "queue": "Int64",
}
"""Columns of the events that databases give, in order; the meaning is that of `read_torch_trace`.

queue -- Int64, the hardware queue that the work ran on, where the file states it.
"""

EXTRA_COLUMN_DTYPES = {
    "dispatch_id": "Int64",
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "source_device": "Int32",
    "destination_device": "Int32",
    "memory_device": "Int32",
}
"""Columns that follow where a file states them."""

COUNTER_COLUMN_DTYPES = {
    **COUNTER_DTYPES,
    "rank": "Int32",
    "dispatch_id": "Int64",
    "correlation_id": "Int64",
    "kernel": "category",
    "duration_ns": "Int64",
}
"""Columns of the counters that databases give, in order.

dispatch_id, correlation_id, kernel -- of the kernel that a hardware counter was collected for.
duration_ns -- Int64, how long the value held, from time_ns on.
"""


_NAMED = ("kind", "name", "short_name")


@dataclass
class Block:
    """Events of one sort as columns of equal length.

    kind    -- places in KINDS, int8.
    numbers -- column -> int64, ABSENT where the file is silent; start_ns and duration_ns are always there.
    codes   -- column -> place of its text in the list that `event_frame` gets, -1 where there is none.
    """

    kind: np.ndarray
    numbers: dict[str, np.ndarray]
    codes: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    def add_constant(self, column: str, value: int) -> None:
        """Give all events the same number in a column."""
        self.numbers[column] = np.full(len(self), value, np.int64)


def event_frame(blocks: Sequence[Block], texts: Sequence[str]) -> pd.DataFrame:
    """All events in order of their start, in the columns COLUMN_DTYPES and EXTRA_COLUMN_DTYPES; empties the blocks."""
    dtypes = COLUMN_DTYPES | {
        column: dtype
        for column, dtype in EXTRA_COLUMN_DTYPES.items()
        if any(column in block.numbers for block in blocks)
    }
    places = _places([block.numbers["start_ns"] for block in blocks])
    kind = np.empty(sum(map(len, places)), np.int8)
    for block, place in zip(blocks, places, strict=True):
        kind[place] = block.kind

    def column(name: str, dtype: str) -> Any:
        is_text = dtype == "category"
        parts = [(block.codes if is_text else block.numbers).pop(name, None) for block in blocks]
        values = _gathered(parts, places, len(kind), np.int32 if is_text else np.int64)
        if is_text:
            return categorical(values, texts)
        return values if dtype == "int64" else nullable(values, dtype)

    def names() -> tuple[pd.Categorical, pd.Categorical]:
        codes = _gathered([block.codes.pop("name") for block in blocks], places, len(kind), np.int32)
        labels = shortened(texts, used_codes(codes[ON_DEVICE[kind]], len(texts)))
        return categorical(codes, texts), categorical(codes, labels)

    # Columns do not depend on each other, and numpy lets other threads run meanwhile.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        both_names = threads.submit(names)
        made = {name: threads.submit(column, name, dtype) for name, dtype in dtypes.items() if name not in _NAMED}
        frame = {name: future.result() for name, future in made.items()}
        frame["name"], frame["short_name"] = both_names.result()
    frame["kind"] = pd.Categorical.from_codes(kind, KINDS)
    return pd.DataFrame({column: frame[column] for column in dtypes}, copy=False)


def counter_frame(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Samples in order of time, in the columns COUNTER_COLUMN_DTYPES; just the contract's if there is none."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return empty_counters()
    table = pd.concat(parts).reindex(columns=list(COUNTER_COLUMN_DTYPES))
    return table.sort_values("time_ns", kind="stable", ignore_index=True).astype(COUNTER_COLUMN_DTYPES)


def categorical(codes: np.ndarray, texts: Sequence[str]) -> pd.Categorical:
    """Places in `texts` as a column whose categories are the texts in use, sorted; -1 is missing."""
    used = used_codes(codes, len(texts)).tolist()
    categories = sorted({texts[code] for code in used})
    position = {text: place for place, text in enumerate(categories)}
    translation = np.full(len(texts) + 1, -1, np.int8 if len(categories) < 2**7 else np.int32)
    for code in used:
        translation[code] = position[texts[code]]
    # Code -1 reads the last place of `translation`, which stays -1.
    return pd.Categorical.from_codes(translation[codes], pd.Index(categories, dtype="str"))


def used_codes(codes: np.ndarray, texts: int) -> np.ndarray:
    """Which of so many places occur among the codes, in order; -1 is none."""
    is_used = np.zeros(texts + 1, bool)
    is_used[codes] = True
    return np.flatnonzero(is_used[:-1])


def all_missing(rows: int, dtype: str) -> pd.arrays.IntegerArray:
    """A column of a nullable integer type in which nothing is known."""
    return pd.arrays.IntegerArray(np.zeros(rows, dtype.lower()), np.ones(rows, bool))


def nullable(values: np.ndarray, dtype: str) -> pd.arrays.IntegerArray:
    """int64 as a nullable type: <NA> for ABSENT and for what the type cannot hold. Overwrites `values` there."""
    target = np.dtype(dtype.lower())
    limits = np.iinfo(target)
    missing = values == ABSENT
    if target.itemsize < values.itemsize:
        missing |= (values < limits.min) | (values > limits.max)
    values[missing] = 1
    return pd.arrays.IntegerArray(values.astype(target, copy=False), missing)


def shape_codes(axes: Sequence[np.ndarray], texts: Codes) -> np.ndarray:
    """Codes of `[x, y, z]` as text for the numbers of each row, int32; -1 where one is missing."""
    key = np.zeros(len(axes[0]), np.int64)
    for axis in axes:
        place, unique = pd.factorize(axis)
        key = pd.factorize(key * max(1, len(unique)) + place)[0]
    _, first = np.unique(key, return_index=True)
    sides = np.stack([axis[first] for axis in axes], axis=1).tolist()
    codes = [-1 if ABSENT in shape else texts[f"[{', '.join(map(str, shape))}]"] for shape in sides]
    return np.array(codes, np.int32)[key]


def first_equal(identifiers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted identifier the row of `identifiers` that has it (one of them), -1 where there is none."""
    if not len(identifiers):
        return np.full(len(wanted), -1, np.int64)
    rows = None
    if (identifiers[1:] < identifiers[:-1]).any():
        rows = np.argsort(identifiers, kind="stable")
        identifiers = identifiers[rows]
    place = np.minimum(np.searchsorted(identifiers, wanted), len(identifiers) - 1)
    missing = identifiers[place] != wanted
    found = place if rows is None else rows[place]
    found[missing] = -1
    return found


def taken(values: np.ndarray, rows: np.ndarray, absent: int = ABSENT) -> np.ndarray:
    """values[rows], `absent` where a row is -1."""
    if not len(values):
        return np.full(len(rows), absent, values.dtype)
    result = values[rows]
    result[rows < 0] = absent
    return result


def _places(starts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For every event of every block its row in the table that is sorted by start."""
    order = np.argsort(np.concatenate(starts), kind="stable")
    place = np.empty(len(order), np.int32 if len(order) < 2**31 else np.int64)
    place[order] = np.arange(len(order), dtype=place.dtype)
    return np.split(place, np.cumsum([len(start) for start in starts])[:-1])


def _gathered(
    parts: Sequence[np.ndarray | None], places: Sequence[np.ndarray], rows: int, dtype: type[np.integer]
) -> np.ndarray:
    """One column of the table from those of the blocks; a block without it has nothing there."""
    values = np.full(rows, -1 if dtype is np.int32 else ABSENT, dtype)
    for part, place in zip(parts, places, strict=True):
        if part is not None:
            values[place] = part
    return values


def shortened(texts: Sequence[str], used: np.ndarray) -> list[str]:
    """Short names of the texts that name work on a device; names on the host are readable as they are."""
    result = list(texts)
    for code in used.tolist():
        result[code] = short_name(texts[code])
    return result
