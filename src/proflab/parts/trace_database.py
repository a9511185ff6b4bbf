"""Read-only SQL queries on a learner's open database, with a time limit and one-line errors.

Exercises compare queries by their results.
"""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proflab.display import near, number
from proflab.errors import CourseError
from proflab.exercises.answers import likely_mistake

TIME_LIMIT_S = 10.0
"""Time limit of a query in seconds. A join without its condition would run almost forever."""

MAX_ROWS = 200_000
"""Maximum number of result rows. No result in a lesson reaches this number."""

_STEPS_BETWEEN_LOOKS = 10_000
"""Number of SQLite instructions between two checks of the time limit, a fraction of a millisecond.
"""

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}

_EXPLANATIONS = {
    r'near "(.*)": syntax error': (
        "SQLite can't parse the query at `{}`. The error is at this position or just before it"
    ),
    r"incomplete input": "the query is incomplete. Check for a missing closing parenthesis",
    r"unrecognized token: (.*)": "SQLite can't parse {}. Check for a missing quotation mark",
    r"ambiguous column name: (\S+)": (
        "several tables have a column `{0}`. Add the table name in front, as in `o.{0}`"
    ),
    r"misuse of (?:aliased )?(?:aggregate|window)": (
        "functions such as sum or lag aren't allowed in this part of a query. Use a subquery"
    ),
    r"one statement at a time": "run only one query at a time. Remove the `;` in the middle",
    r"not authorized|prohibited": "only queries are allowed. Start with SELECT or WITH",
    r"interrupted": (
        f"the query was stopped after {TIME_LIMIT_S:.0f} s. Check for a JOIN without a condition"
        " and for endless recursion"
    ),
}
"""Explanations of SQLite's error messages."""


_ALL = "(SELECT type, name FROM sqlite_temp_master UNION ALL SELECT type, name FROM sqlite_master)"
"""Query for all names that FROM accepts, with the temporary views first."""


class QuestionError(CourseError):
    """Error for a query that SQLite can't run. The message suggests what to check."""

    @property
    def sentence(self) -> str:
        """Error message as a sentence with a capital letter and a period."""
        text = str(self)
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


@dataclass(frozen=True)
class Answer:
    """Query result: column names, and rows with values of type int, float, str, bytes or None."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def answer_of(connection: sqlite3.Connection, question: object) -> Answer:
    """Return the result of a query.

    Raises QuestionError if SQLite rejects the query or stops it.
    """
    if not isinstance(question, str):
        raise QuestionError(
            f"a query must be a string of SQL, but this value is a {type(question).__name__}"
        )
    deadline = time.monotonic() + TIME_LIMIT_S
    connection.set_authorizer(_only_reading)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(question)
        # Fetch one extra row to detect a result that is too long.
        rows = cursor.fetchmany(MAX_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        complaint = str(error)
    else:
        complaint = ""
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    if complaint:
        raise QuestionError(_explained(complaint, connection))
    if cursor.description is None:
        raise QuestionError("this isn't a query. Start with SELECT or WITH")
    if len(rows) > MAX_ROWS:
        raise QuestionError(
            f"the result has more than {MAX_ROWS:,} rows. Check the JOIN conditions"
        )
    return Answer(tuple(column[0] for column in cursor.description), rows)


def _only_reading(action: int, *_: str | None) -> int:
    """Authorizer that allows only reads (https://www.sqlite.org/c3ref/set_authorizer.html)."""
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _explained(complaint: str, connection: sqlite3.Connection) -> str:
    if found := re.search(r"no such (table|column): (\S+)", complaint):
        what, name = found.groups()
        own = name.rpartition(".")[2]
        # Check only views because lessons use the views' names. PRAGMA doesn't accept placeholders.
        views = [one for one, kind in _relations(connection).items() if kind == "view"]
        asked = {one: connection.execute(f'PRAGMA table_info("{one}")') for one in views}
        columns = {one: [row[1] for row in rows] for one, rows in asked.items()}
        known = itertools.chain(*columns.values()) if what == "column" else _relations(connection)
        known = set(known)
        if own in known:
            return f"the tables in your query have no {what} `{name}`"
        return f"there is no {what} `{name}`: {near(own, known)}"
    for pattern, words in _EXPLANATIONS.items():
        if found := re.search(pattern, complaint):
            return words.format(*found.groups())
    return f"SQLite reports: {complaint}"


def _relations(connection: sqlite3.Connection) -> dict[str, str]:
    """Return a dictionary that maps the name of each table or view to its kind."""
    asked = f"SELECT name, type FROM {_ALL} WHERE type IN ('table', 'view') ORDER BY name"
    return {
        name: kind for name, kind in connection.execute(asked) if not name.startswith("sqlite_")
    }


class KnownQuery(str):
    """SQL query that stores its `database`, so that queries can be compared by their results."""

    database: sqlite3.Connection

    def __new__(cls, sql: str, database: sqlite3.Connection) -> KnownQuery:
        """Return a query that stores its database."""
        query = super().__new__(cls, sql)
        query.database = database
        return query


def wrong_query(sql: str) -> Callable[[sqlite3.Connection], KnownQuery]:
    """Return a function that creates this wrong query from the data, for use in `Mistake`."""
    return lambda database: KnownQuery(sql, database)


@dataclass(frozen=True)
class Query:
    """SQL query that must return the same rows as the query `expected` on an open SQLite
    connection.

    - columns: description of each column for messages. The answer may use other column names.
    - ordered: True if the order of the rows matters.
    - units: unit of each column for hints, or "".
    """

    expected: str
    columns: Sequence[str]
    ordered: bool = False
    units: Sequence[str] = ()

    def right(self, data: sqlite3.Connection) -> KnownQuery:
        """Return the expected query. Raises ValueError if the query finds nothing in this data."""
        if all(value is None for row in answer_of(data, self.expected).rows for value in row):
            raise ValueError("the file contains no data for this question")
        return KnownQuery(self.expected, data)

    def judge(self, answer: Any, right: KnownQuery, data: sqlite3.Connection) -> str | None:
        """Return None for equal results, or a sentence with SQLite's error or the first
        difference.
        """
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
        """Return True if the answer has the same result as a known wrong query."""
        try:
            given, wrong = (answer_of(known.database, sql).rows for sql in (answer, known))
            return _agree(given, wrong, self.ordered)
        except QuestionError:
            return False

    def _difference(self, given: Answer, right: Answer) -> str:
        # Report the coarsest difference first.
        asked = ", ".join(self.columns)
        if len(given.columns) != len(right.columns):
            return f"Your result has {len(given.columns)} columns. Select these: {asked}."
        if not given.rows:
            return "Your result has no rows. Check the values with SELECT DISTINCT."
        if len(given.rows) != len(right.rows):
            side = "many" if len(given.rows) > len(right.rows) else "few"
            return f"Your result has too {side} rows: {len(given.rows):,}."
        if self.ordered and _agree(given.rows, right.rows, ordered=False):
            return "The rows are right, but their order isn't. Check ORDER BY."
        have, want = (rows if self.ordered else _sorted(rows) for rows in (given.rows, right.rows))
        row, column = next(
            (row, column)
            for row, column in itertools.product(range(len(want)), range(len(right.columns)))
            if not _equal(have[row][column], want[row][column])
        )
        alone = len(want) == len(right.columns) == 1
        where = "" if alone else f"Row {row + 1}, {self.columns[column]}: "
        value, expected = have[row][column], want[row][column]
        if isinstance(value, int | float) and isinstance(expected, int | float):
            hint = likely_mistake(value, expected, self.units[column] if self.units else "")
            side = "large" if value > expected else "small"
            return where + (hint or f"{number(value)} is too {side}.")
        return f"{where}{'NULL' if value is None else repr(value)[:60]} is not the right value."


def _agree(given: list[tuple], right: list[tuple], ordered: bool) -> bool:
    given, right = (rows if ordered else _sorted(rows) for rows in (given, right))
    return [len(row) for row in given] == [len(row) for row in right] and all(
        map(_equal, itertools.chain(*given), itertools.chain(*right))
    )


def _equal(value: Any, expected: Any) -> bool:
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return math.isclose(value, expected, rel_tol=1e-6)
    return type(value) is type(expected) and value == expected


def _sorted(rows: list[tuple]) -> list[tuple]:
    """Return the rows in a fixed order, even if a column mixes numbers, strings and NULL."""
    return sorted(
        rows, key=lambda row: [(isinstance(one, int | float), one is None, str(one)) for one in row]
    )
