"""Answers that are SQL text: run read-only on the data at hand, and the results compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proflab.display import number
from proflab.exercises.units import unit_hint
from proflab.parts.trace_database import Answer, QuestionError, TraceDatabase

MOST_PERMUTED = 4
"""Columns up to which another order of them is recognised."""


class KnownQuery(str):
    """SQL text together with the `database` that it is about, so that two queries can be compared by what they give."""

    database: TraceDatabase


def known_query(sql: str, database: TraceDatabase) -> KnownQuery:
    """SQL text that knows its database."""
    query = KnownQuery(sql)
    query.database = database
    return query


def wrong_query(sql: str) -> Callable[[TraceDatabase], KnownQuery]:
    """A plausible wrong answer, for `Mistake`."""
    return lambda database: known_query(sql, database)


@dataclass(frozen=True)
class Query:
    """SQL text that gives what `expected(data)`, a query too, gives on the data, a TraceDatabase.

    columns  -- what is asked, column by column, for messages; names in the answer are free.
    ordered  -- whether the order of the rows counts.
    units    -- unit of each column, for hints; "" for none.
    relative -- how far a number may be off, as a fraction.
    """

    expected: Callable[[TraceDatabase], str]
    columns: Sequence[str]
    ordered: bool = False
    units: Sequence[str] = ()
    relative: float = 1e-6

    def right(self, data: TraceDatabase) -> KnownQuery:
        """A right query; raises ValueError where it has nothing to find in this data."""
        query = known_query(self.expected(data), data)
        if all(value is None for row in data.answer(query).rows for value in row):
            raise ValueError("the file holds nothing to answer this with")
        return query

    def judge(self, answer: Any, right: KnownQuery, data: TraceDatabase) -> str | None:
        """None if both give the same, else what went wrong or the first difference."""
        try:
            given = data.answer(answer)
        except QuestionError as error:
            return f"{str(error)[:1].upper()}{str(error)[1:]}."
        return self._difference(given, data.answer(right))

    def same(self, answer: Any, known: Any) -> bool:
        """Whether a query gives what a known wrong one gives."""
        if not isinstance(known, KnownQuery):
            return False
        try:
            given, wrong = known.database.answer(answer), known.database.answer(known)
        except QuestionError:
            return False
        return self._agree(given.rows, wrong.rows)

    def _difference(self, given: Answer, right: Answer) -> str | None:
        if self._agree(given.rows, right.rows):
            return None
        if len(given.columns) != len(right.columns):
            asked = f"{len(right.columns)} column{'s' * (len(right.columns) != 1)}"
            return f"It gives {len(given.columns)}, {asked} asked: {', '.join(self.columns)}."
        if not given.rows:
            return "It gives no row: no row fulfils the condition. Look at the values with SELECT DISTINCT."
        if len(given.rows) != len(right.rows):
            many = "many" if len(given.rows) > len(right.rows) else "few"
            return f"It gives {_rows(len(given.rows))}, which is too {many}."
        return self._arrangement(given, right) or self._first_difference(given, right)

    def _arrangement(self, given: Answer, right: Answer) -> str | None:
        """Whether the values are right but stand in another order."""
        if self.ordered and _agree(_sorted(given.rows), _sorted(right.rows), self.relative):
            return "The rows are right, their order is not: look at ORDER BY, and which way it sorts."
        if len(right.columns) <= MOST_PERMUTED:
            for order in itertools.permutations(range(len(right.columns))):
                if self._agree([tuple(row[place] for place in order) for row in given.rows], right.rows):
                    return f"The values are right, the order of the columns is not: {', '.join(self.columns)}."
        return None

    def _first_difference(self, given: Answer, right: Answer) -> str:
        have, want = (rows if self.ordered else _sorted(rows) for rows in (given.rows, right.rows))
        for place, (row, wanted) in enumerate(zip(have, want, strict=True), start=1):
            for column, (value, expected) in enumerate(zip(row, wanted, strict=True)):
                if not _equal(value, expected, self.relative):
                    where = "" if len(want) == len(row) == 1 else f"Row {place}, {self.columns[column]}: "
                    return where + self._about(value, expected, column)
        raise AssertionError("no difference in rows that differ")

    def _about(self, value: Any, expected: Any, column: int) -> str:
        if _is_number(value) and _is_number(expected):
            hint = unit_hint(value, expected, self.units[column] if self.units else "")
            return hint or f"{number(value)} is too {'big' if value > expected else 'small'}."
        if value is None:
            return "There is no value (NULL)."
        return f"It is not `{str(value)[:60]}`."

    def _agree(self, given: list[tuple], right: list[tuple]) -> bool:
        if not self.ordered:
            given, right = _sorted(given), _sorted(right)
        return _agree(given, right, self.relative)


def _agree(given: list[tuple], right: list[tuple], relative: float) -> bool:
    return len(given) == len(right) and all(
        len(row) == len(wanted) and all(_equal(*pair, relative) for pair in zip(row, wanted, strict=True))
        for row, wanted in zip(given, right, strict=True)
    )


def _equal(value: Any, expected: Any, relative: float) -> bool:
    if _is_number(value) and _is_number(expected):
        return math.isclose(value, expected, rel_tol=relative)
    return type(value) is type(expected) and value == expected


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _sorted(rows: list[tuple]) -> list[tuple]:
    """Rows in an order that does not depend on SQL: numbers, texts and NULL can stand in one column."""
    return sorted(rows, key=lambda row: [(_is_number(value), 0 if value is None else 1, str(value)) for value in row])


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
