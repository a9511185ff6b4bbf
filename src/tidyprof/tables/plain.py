"""Events as plain arrays: for small tables, of which triage looks at hundreds a rank, pandas takes far longer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.tables.contract import EVENT_COLUMNS, FURTHER_COLUMNS, categorical_of, whole_numbers

_DTYPES = EVENT_COLUMNS | FURTHER_COLUMNS


class PlainColumns(dict[str, np.ndarray | pd.Categorical]):
    """Columns of an event table, each made when it is first asked for.

    Whole numbers are int64, ABSENT for <NA>; texts and kinds stay categorical, their categories plain strings.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> np.ndarray | pd.Categorical:
        if _DTYPES[name] == "category":
            texts = categorical_of(self.table[name])
            self[name] = texts.rename_categories(texts.categories.astype(object))
        else:
            self[name] = whole_numbers(self.table[name])
        return self[name]


@dataclass(frozen=True, eq=False)
class PlainEvents:
    """Some events of a table; helpers such as `occupied` and `names_matching` take them as they take the table.

    columns -- of the whole table. rows -- places in it of these events.
    """

    columns: PlainColumns
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: str) -> bool:
        return name in self.columns or name in self.columns.table

    def __getitem__(self, key: str | np.ndarray) -> np.ndarray | pd.Categorical | PlainEvents:
        """A column by its name, or the events of a mask or of places."""
        if isinstance(key, str):
            return self.columns[key][self.rows]
        return PlainEvents(self.columns, self.rows[key])
