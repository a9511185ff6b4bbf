"""Answers that are tables: a DataFrame compared with the expected one, the first difference named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proflab.display import near, number
from proflab.exercises.units import unit_hint

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """A DataFrame with at least the columns and exactly the rows of `expected(data)`.

    With `key` (column or index names that identify a row) the order of rows is free, without it
    it counts. Numbers are compared within `relative` (a fraction); `units` maps columns to units, for hints.
    """

    expected: Callable[[Any], pd.DataFrame]
    key: Sequence[str] = ()
    relative: float = 0.01
    units: Mapping[str, str] = field(default_factory=dict)

    def right(self, data: Any) -> pd.DataFrame:
        """The expected table; raises ValueError if its key is not unique."""
        table = _with_columns(self.expected(data), self.key)
        if self.key and table.duplicated(list(self.key)).any():
            raise ValueError(f"the expected table has several rows of the same {', '.join(self.key)}")
        return table

    def judge(self, answer: Any, right: pd.DataFrame, data: Any) -> str | None:
        """None if the tables agree, else the first difference."""
        if not (hasattr(answer, "columns") or hasattr(answer, "to_frame")):
            return f"A table (DataFrame) is asked, this is a {type(answer).__name__}."
        table = _with_columns(answer if hasattr(answer, "columns") else answer.to_frame(), self.key)
        missing = [column for column in right.columns if column not in table.columns]
        if missing:
            return f"The column `{missing[0]}` is missing: {near(missing[0], map(str, table.columns))}"
        return self._rows(table, right) or self._values(table, right)

    def same(self, answer: Any, known: Any) -> bool:
        """Whether `answer` agrees with a known wrong table."""
        return self.judge(answer, _with_columns(known, self.key), None) is None

    def _rows(self, table: pd.DataFrame, right: pd.DataFrame) -> str | None:
        if not self.key:
            if len(table) == len(right):
                return None
            return f"It has {len(table)} rows, which are too {'many' if len(table) > len(right) else 'few'}."
        key = list(self.key)
        if table.duplicated(key).any():
            return f"Several rows have the same {', '.join(key)}: one row each is asked."
        have, want = table.set_index(key).index, right.set_index(key).index
        if len(lost := want.difference(have)):
            return f"Missing rows: {len(lost)}, for instance `{lost[0]}`."
        if len(extra := have.difference(want)):
            return f"Rows too many: {len(extra)}, for instance `{extra[0]}`."
        return None

    def _values(self, table: pd.DataFrame, right: pd.DataFrame) -> str | None:
        if self.key:
            key = list(self.key)
            right = right.set_index(key)
            table = table.set_index(key).loc[right.index]
        for column in right.columns:
            problem = self._column(table[column], right[column], str(column))
            if problem:
                return problem
        return None

    def _column(self, given: pd.Series, right: pd.Series, column: str) -> str | None:
        import numpy as np
        import pandas as pd

        if pd.api.types.is_numeric_dtype(right):
            values = pd.to_numeric(given, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
            wanted = right.to_numpy(dtype=float, na_value=np.nan)
            wrong = ~np.isclose(values, wanted, rtol=self.relative, atol=0.0, equal_nan=True)
        else:
            values, wanted = given.astype(str).to_numpy(), right.astype(str).to_numpy()
            wrong = values != wanted
        if not wrong.any():
            return None
        first = int(wrong.argmax())
        place = f"In column `{column}`, row `{right.index[first]}`: "
        if values.dtype.kind != "f":
            return f"{place}it is not `{values[first]}`."
        if np.isnan(values[first]) or np.isnan(wanted[first]):
            return f"{place}{'a number is missing' if np.isnan(values[first]) else 'there is no number to be had'}."
        hint = unit_hint(values[first], wanted[first], self.units.get(column, ""))
        direction = "big" if values[first] > wanted[first] else "small"
        return place + (hint or f"{number(float(values[first]))} is too {direction}.")


def _with_columns(table: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """The table with its key as columns, and with the index dropped unless it is part of the key."""
    in_index = [name for name in table.index.names if name in key and name not in table.columns]
    return table.reset_index() if in_index else table.reset_index(drop=True)
