"""Events as columns. While a file is read, the columns contain numbers. Later, the columns are
plain arrays of the event table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, NO_TEXT, category_type
from tidyprof.tables.contract import EVENT_COLUMNS, FURTHER_COLUMNS, categorical_of, whole_numbers

TEXT_COLUMNS = {
    name for name, dtype in (EVENT_COLUMNS | FURTHER_COLUMNS).items() if dtype == "category"
} - {"kind"}
"""Columns that contain string codes."""


@dataclass
class Records:
    """Events as columns of equal length.

    - columns: the int64 values of each column in the event table, with `ABSENT` for missing values.
      Strings are int32 codes, with `NO_TEXT` for missing strings. `kind` is the int8 position in
      `KINDS`. `start_ns`, `duration_ns`, `kind` and `name` are always present. A reader may store
      additional columns here, which aren't copied to the table.
    - dropped: the number of invalid events that were left out, for each reason.
    - not_kept: the number of events that were left out because they aren't work, such as barriers,
      for each category.
    """

    columns: dict[str, np.ndarray]
    dropped: Counter[str] = field(default_factory=Counter)
    not_kept: Counter[str] = field(default_factory=Counter)

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __setitem__(self, column: str, values: np.ndarray) -> None:
        self.columns[column] = values

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __len__(self) -> int:
        return len(self.columns["start_ns"])

    @property
    def total(self) -> int:
        """Number of all events in the file, including events that weren't kept."""
        return len(self) + self.dropped.total() + self.not_kept.total()

    def get(self, column: str) -> np.ndarray:
        """Return a column. If the column doesn't exist, all of its values are missing."""
        return self.columns[column] if column in self.columns else nothing(column, len(self))

    def keep(self, rows: np.ndarray) -> None:
        """Keep only the rows that the mask selects."""
        if not rows.all():
            self.columns = {name: values[rows] for name, values in self.columns.items()}


class GrowingRecords:
    """Batches of records with the same columns.

    Each batch is appended on arrival, so events aren't stored twice.
    """

    def __init__(self) -> None:
        self._columns: dict[str, np.ndarray] = {}
        self._rows = 0

    def append(self, batch: Records) -> None:
        """Append a copy of a batch."""
        end = self._rows + len(batch)
        for name, values in batch.columns.items():
            column = self._columns.setdefault(name, np.empty(0, values.dtype))
            if end > len(column):
                column.resize(2 * end, refcheck=False)
            column[self._rows : end] = values
        self._rows = end

    def collected(self) -> Records:
        """Return all records in arrays without unused capacity."""
        for column in self._columns.values():
            column.resize(self._rows, refcheck=False)
        return Records(self._columns)


def nothing(column: str, rows: int) -> np.ndarray:
    """Return a column with this number of rows, in which all values are missing."""
    is_text = column in TEXT_COLUMNS
    return np.full(rows, NO_TEXT if is_text else ABSENT, np.int32 if is_text else np.int64)


def no_records() -> Records:
    """Return records without rows."""
    none = np.empty(0, np.int64)
    return Records(
        {
            "start_ns": none,
            "duration_ns": none,
            "kind": none.astype(np.int8),
            "name": none.astype(np.int32),
        }
    )


def joined(parts: Sequence[Records]) -> Records:
    """Return all records in order. The result has every column that occurs in any of the
    records.
    """
    if len(parts) == 1:
        return parts[0]
    parts = parts or [no_records()]
    _number_on(parts)
    names = dict.fromkeys(name for part in parts for name in part.columns)
    return Records(
        {name: np.concatenate([part.get(name) for part in parts]) for name in names},
        sum((part.dropped for part in parts), Counter()),
        sum((part.not_kept for part in parts), Counter()),
    )


def _number_on(parts: Sequence[Records]) -> None:
    """Continue the row numbers (`parent`) and the sample numbers from one part to the next."""
    rows = samples = 0
    for part in parts:
        for name, first in (("parent", rows), ("sample", samples)):
            if name in part:
                part[name] = np.where(part[name] == ABSENT, ABSENT, part[name] + first)
        rows += len(part)
        samples = int(part.get("sample").max(initial=samples - 1)) + 1


_DTYPES = EVENT_COLUMNS | FURTHER_COLUMNS


class PlainColumns(dict[str, np.ndarray | pd.Categorical]):
    """Columns of a table of events or steps. Each column is created on first use.

    Integers are int64, with `ABSENT` for `<NA>`. Columns of strings and kinds stay categorical,
    with plain strings as categories.

    - table: a table, or arrays with the table's numbers.
    """

    def __init__(self, table: pd.DataFrame | Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> np.ndarray | pd.Categorical:
        if _DTYPES.get(name) == "category":
            texts = categorical_of(self.table[name])
            dtype = category_type(tuple(texts.categories.tolist()), "object")
            self[name] = pd.Categorical.from_codes(texts.codes, dtype=dtype, validate=False)
        else:
            self[name] = whole_numbers(self.table[name])
        return self[name]


@dataclass(frozen=True, eq=False)
class PlainEvents:
    """A selection of events from a table. Helper functions such as `occupied` and `names_matching`
    accept it instead of the table.

    - columns: the columns of the whole table.
    - rows: the positions of the selected events in the table.

    Each access to a column returns the same array, so callers must not change it.
    """

    columns: PlainColumns
    rows: np.ndarray
    _taken: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: str) -> bool:
        return name in self.columns or name in self.columns.table

    @overload
    def __getitem__(self, key: str) -> Any: ...

    @overload
    def __getitem__(self, key: np.ndarray | slice) -> PlainEvents: ...

    def __getitem__(self, key: str | np.ndarray | slice) -> Any:
        """Return a column for a name, or a selection of events for a mask or an array of
        positions.
        """
        if not isinstance(key, str):
            return PlainEvents(self.columns, self.rows[key])
        if key not in self._taken:
            self._taken[key] = self.columns[key][self.rows]
        return self._taken[key]
