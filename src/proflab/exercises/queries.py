"""Answers that are SQL text: run read-only on the database at hand, and compared by their
results.
"""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proflab.display import number
from proflab.exercises.answers import unit_hint
from proflab.parts.trace_database import Answer, QuestionError, answer_of


class KnownQuery(str):
    """SQL text with its `database`, so that two queries can be compared by their results."""

    database: sqlite3.Connection

    def __new__(cls, sql: str, database: sqlite3.Connection) -> KnownQuery:
        """The text, as a str that knows its database."""
        query = super().__new__(cls, sql)
        query.database = database
        return query


def wrong_query(sql: str) -> Callable[[sqlite3.Connection], KnownQuery]:
    """A plausible wrong query, as a function of the data, for `Mistake`."""
    return lambda database: KnownQuery(sql, database)


@dataclass(frozen=True)
class Query:
    """SQL text that gives the same rows as `expected`, SQL text too, on the data: an open
    connection to SQLite.

    columns -- what is asked, column by column, for messages; the answer may name its columns
               freely.
    ordered -- whether the order of the rows counts.
    units   -- unit of each column, for hints; "" for none.
    """

    expected: str
    columns: Sequence[str]
    ordered: bool = False
    units: Sequence[str] = ()

    def right(self, data: sqlite3.Connection) -> KnownQuery:
        """A right query; raises ValueError if it finds nothing in this data."""
        if all(value is None for row in answer_of(data, self.expected).rows for value in row):
            raise ValueError("the file holds nothing to answer this with")
        return KnownQuery(self.expected, data)

    def judge(self, answer: Any, right: KnownQuery, data: sqlite3.Connection) -> str | None:
        """None if both give the same, else the error of SQLite or the first difference."""
        try:
            given = answer_of(data, answer)
        except QuestionError as error:
            return error.sentence
        wanted = answer_of(data, right)
        return (
            None
            if _agree(given.rows, wanted.rows, self.ordered)
            else self._difference(given, wanted)
        )

    def same(self, answer: Any, known: Any) -> bool:
        """Whether a query gives the same as a known wrong one."""
        try:
            given, wrong = (answer_of(known.database, sql).rows for sql in (answer, known))
            return _agree(given, wrong, self.ordered)
        except QuestionError:
            return False

    def _difference(self, given: Answer, right: Answer) -> str:
        # From the coarse to the fine: the sentence names the difference to remove first.
        if len(given.columns) != len(right.columns):
            return f"Its columns are {len(given.columns)}, asked are: {', '.join(self.columns)}."
        if not given.rows:
            return (
                "It gives no row: no row fulfils the condition. Look at the values with SELECT"
                " DISTINCT."
            )
        if len(given.rows) != len(right.rows):
            return (
                f"Its rows are too {'many' if len(given.rows) > len(right.rows) else 'few'}:"
                f" {len(given.rows):,}."
            )
        if self.ordered and _agree(given.rows, right.rows, ordered=False):
            return "The rows are right, their order is not: look at ORDER BY."
        for order in itertools.permutations(range(len(right.columns))):
            if _agree(
                [tuple(row[place] for place in order) for row in given.rows],
                right.rows,
                self.ordered,
            ):
                return (
                    "The values are right, the order of the columns is not:"
                    f" {', '.join(self.columns)}."
                )
        have, want = (rows if self.ordered else _sorted(rows) for rows in (given.rows, right.rows))
        cells = itertools.product(range(len(want)), range(len(right.columns)))
        row, column = next(
            (row, column)
            for row, column in cells
            if not _equal(have[row][column], want[row][column])
        )
        where = (
            ""
            if len(want) == len(right.columns) == 1
            else f"Row {row + 1}, {self.columns[column]}: "
        )
        return where + self._about(have[row][column], want[row][column], column)

    def _about(self, value: Any, expected: Any, column: int) -> str:
        if isinstance(value, int | float) and isinstance(expected, int | float):
            hint = unit_hint(value, expected, self.units[column] if self.units else "")
            return hint or f"{number(value)} is too {'big' if value > expected else 'small'}."
        known = {
            None: "There is no value (NULL).",
            "": "The text is empty: such rows have no name.",
        }
        return known.get(value) or f"It is not `{str(value)[:60]}`."


def _agree(given: list[tuple], right: list[tuple], ordered: bool) -> bool:
    given, right = (rows if ordered else _sorted(rows) for rows in (given, right))
    return [len(row) for row in given] == [len(row) for row in right] and all(
        _equal(*pair)
        for row, wanted in zip(given, right, strict=True)
        for pair in zip(row, wanted, strict=True)
    )


def _equal(value: Any, expected: Any) -> bool:
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return math.isclose(value, expected, rel_tol=1e-6)
    return type(value) is type(expected) and value == expected


def _sorted(rows: list[tuple]) -> list[tuple]:
    """Rows in an order that does not depend on SQL, even if numbers, texts and NULL are in one
    column.
    """
    return sorted(
        rows,
        key=lambda row: [
            (isinstance(value, int | float), value is None, str(value)) for value in row
        ],
    )
