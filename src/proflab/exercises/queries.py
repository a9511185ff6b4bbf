"""Answers that are SQL text: run read-only on the database at hand, and the results compared."""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proflab.display import number
from proflab.exercises.units import unit_hint
from proflab.parts.trace_database import Answer, QuestionError, answer_of


class KnownQuery(str):
    """SQL text together with the `database` that it is about, so that two queries can be compared by what they give."""

    database: sqlite3.Connection


def wrong_query(sql: str) -> Callable[[sqlite3.Connection], KnownQuery]:
    """A plausible wrong answer, for `Mistake`."""

    def known(database: sqlite3.Connection) -> KnownQuery:
        query = KnownQuery(sql)
        query.database = database
        return query

    return known


@dataclass(frozen=True)
class Query:
    """SQL text that gives what `expected`, SQL text too, gives on the data, an open connection to SQLite.

    columns -- what is asked, column by column, for messages; names in the answer are free.
    ordered -- whether the order of the rows counts.
    units   -- unit of each column, for hints; "" for none.
    """

    expected: str
    columns: Sequence[str]
    ordered: bool = False
    units: Sequence[str] = ()

    def right(self, data: sqlite3.Connection) -> KnownQuery:
        """A right query; raises ValueError where it has nothing to find in this data."""
        if all(value is None for row in answer_of(data, self.expected).rows for value in row):
            raise ValueError("the file holds nothing to answer this with")
        return wrong_query(self.expected)(data)

    def judge(self, answer: Any, right: KnownQuery, data: sqlite3.Connection) -> str | None:
        """None if both give the same, else what went wrong or the first difference."""
        try:
            given = answer_of(data, answer)
        except QuestionError as error:
            return error.sentence
        wanted = answer_of(data, right)
        return None if self._agree(given.rows, wanted.rows) else self._difference(given, wanted)

    def same(self, answer: Any, known: Any) -> bool:
        """Whether a query gives what a known wrong one gives."""
        try:
            return self._agree(answer_of(known.database, answer).rows, answer_of(known.database, known).rows)
        except QuestionError:
            return False

    def _difference(self, given: Answer, right: Answer) -> str:
        if len(given.columns) != len(right.columns):
            return f"It gives {len(given.columns)} columns, asked are: {', '.join(self.columns)}."
        if not given.rows:
            return "It gives no row: no row fulfils the condition. Look at the values with SELECT DISTINCT."
        if len(given.rows) != len(right.rows):
            return f"The number of rows is {len(given.rows):,}, which is too {_side(len(given.rows), len(right.rows))}."
        if self.ordered and _agree(_sorted(given.rows), _sorted(right.rows)):
            return "The rows are right, their order is not: look at ORDER BY, and which way it sorts."
        for order in itertools.permutations(range(len(right.columns))):
            if self._agree([tuple(row[place] for place in order) for row in given.rows], right.rows):
                return f"The values are right, the order of the columns is not: {', '.join(self.columns)}."
        have, want = (rows if self.ordered else _sorted(rows) for rows in (given.rows, right.rows))
        cells = itertools.product(range(len(want)), range(len(right.columns)))
        row, column = next((row, column) for row, column in cells if not _equal(have[row][column], want[row][column]))
        where = "" if len(want) == len(right.columns) == 1 else f"Row {row + 1}, {self.columns[column]}: "
        return where + self._about(have[row][column], want[row][column], column)

    def _about(self, value: Any, expected: Any, column: int) -> str:
        if _is_number(value) and _is_number(expected):
            hint = unit_hint(value, expected, self.units[column] if self.units else "")
            return hint or f"{number(value)} is too {_side(value, expected)}."
        missing = "There is no value (NULL)." if value is None else "The text is empty: such rows have no name."
        return f"It is not `{str(value)[:60]}`." if value not in (None, "") else missing

    def _agree(self, given: list[tuple], right: list[tuple]) -> bool:
        return _agree(given, right) if self.ordered else _agree(_sorted(given), _sorted(right))


def _agree(given: list[tuple], right: list[tuple]) -> bool:
    return [len(row) for row in given] == [len(row) for row in right] and all(
        _equal(*pair) for row, wanted in zip(given, right, strict=True) for pair in zip(row, wanted, strict=True)
    )


def _equal(value: Any, expected: Any) -> bool:
    if _is_number(value) and _is_number(expected):
        return math.isclose(value, expected, rel_tol=1e-6)
    return type(value) is type(expected) and value == expected


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _side(value: float, expected: float) -> str:
    return "big" if value > expected else "small"


def _sorted(rows: list[tuple]) -> list[tuple]:
    """Rows in an order that does not depend on SQL: numbers, texts and NULL can stand in one column."""
    return sorted(rows, key=lambda row: [(_is_number(value), 0 if value is None else 1, str(value)) for value in row])
