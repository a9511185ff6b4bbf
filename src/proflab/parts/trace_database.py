"""Questions in SQL to a learner's open database: read-only, with a time limit, and with errors of
one line. Answers of exercises that are SQL text are compared by their results.
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
"""Time limit of a question in seconds: a join without its condition would run for ever."""

MAX_ROWS = 200_000
"""Most rows of an answer: no answer in a lesson has as many."""

_STEPS_BETWEEN_LOOKS = 10_000
"""Instructions of SQLite's virtual machine between two looks at the clock: a fraction of a
millisecond.
"""

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}

_EXPLANATIONS = {
    r'near "(.*)": syntax error': (
        "SQLite can't read it at `{}`: the mistake is there or just before it"
    ),
    r"incomplete input": "the text ends too early: is a bracket still open, or the rest missing?",
    r"unrecognized token: (.*)": "SQLite can't read {}: is a quotation mark missing?",
    r"ambiguous column name: (\S+)": (
        "several tables have a column `{0}`: write the table before it, as in `o.{0}`"
    ),
    r"misuse of (?:aliased )?(?:aggregate|window)": (
        "sum, lag and the like stand in a SELECT: ask it in a subquery"
    ),
    r"one statement at a time": "one question at a time: there is a `;` in the middle",
    r"not authorized|prohibited": "only questions are allowed: begin with SELECT or WITH",
    r"interrupted": (
        f"given up after {TIME_LIMIT_S:.0f} s: is the condition of a JOIN missing, or a recursion"
        " endless?"
    ),
}
"""SQLite's message -> its meaning for the question."""


_ALL = "(SELECT type, name FROM sqlite_temp_master UNION ALL SELECT type, name FROM sqlite_master)"
"""All that can be named after FROM, with the views that the learner has made for this connection
first.
"""


class QuestionError(CourseError):
    """A question that SQLite could not answer: its message, and what to look at."""

    @property
    def sentence(self) -> str:
        """The message with a capital letter and a full stop."""
        text = str(self)
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


@dataclass(frozen=True)
class Answer:
    """The answer to a question: names of its columns, and rows of int, float, text, bytes or
    None.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def answer_of(connection: sqlite3.Connection, question: object) -> Answer:
    """The answer to a question in SQL. Raises QuestionError for anything that is not a question or
    can't be answered.
    """
    if not isinstance(question, str):
        raise QuestionError(
            f"a question is SQL text in quotes, this is a {type(question).__name__}"
        )
    deadline = time.monotonic() + TIME_LIMIT_S
    connection.set_authorizer(_only_reading)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        cursor = connection.execute(question)
        # One row more than allowed tells that the answer is too long.
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
        raise QuestionError("this is no question: begin with SELECT or WITH")
    if len(rows) > MAX_ROWS:
        raise QuestionError(
            f"more than {MAX_ROWS:,} rows: is a condition missing in a JOIN? LIMIT cuts"
        )
    return Answer(tuple(column[0] for column in cursor.description), rows)


def _only_reading(action: int, *_: str | None) -> int:
    """SQLite asks this for every part of a statement
    (https://www.sqlite.org/c3ref/set_authorizer.html).
    """
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _explained(complaint: str, connection: sqlite3.Connection) -> str:
    if found := re.search(r"no such (table|column): (\S+)", complaint):
        what, name = found.groups()
        own = name.rpartition(".")[2]
        # Only views, since they have the names that the lesson uses. PRAGMA takes no placeholder.
        views = [one for one, kind in _relations(connection).items() if kind == "view"]
        asked = {one: connection.execute(f'PRAGMA table_info("{one}")') for one in views}
        columns = {one: [row[1] for row in rows] for one, rows in asked.items()}
        having = [one for one in views if own in columns[one]] if what == "column" else []
        if having:
            return (
                f"there is no column `{name}` in what you ask: the views {', '.join(having)} have"
                " it. What has `start` and `end` lasts `end - start`"
            )
        known = (
            [*itertools.chain(*columns.values())] if what == "column" else _relations(connection)
        )
        return f"there is no {what} `{name}`: {near(own, known)}"
    for pattern, words in _EXPLANATIONS.items():
        if found := re.search(pattern, complaint):
            return words.format(*found.groups())
    return f"SQLite says: {complaint}"


def _relations(connection: sqlite3.Connection) -> dict[str, str]:
    """Name of each table and view -> its kind."""
    asked = f"SELECT name, type FROM {_ALL} WHERE type IN ('table', 'view') ORDER BY name"
    return {
        name: kind for name, kind in connection.execute(asked) if not name.startswith("sqlite_")
    }


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
        asked = ", ".join(self.columns)
        if len(given.columns) != len(right.columns):
            return f"Its columns are {len(given.columns)}, asked are: {asked}."
        if not given.rows:
            return "It gives no row. Look at the values with SELECT DISTINCT."
        if len(given.rows) != len(right.rows):
            side = "many" if len(given.rows) > len(right.rows) else "few"
            return f"Its rows are too {side}: {len(given.rows):,}."
        if self.ordered and _agree(given.rows, right.rows, ordered=False):
            return "The rows are right, their order is not: look at ORDER BY."
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
            side = "big" if value > expected else "small"
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
    """Rows in an order that does not depend on SQL, even if numbers, strings and NULL are in one
    column.
    """
    return sorted(
        rows, key=lambda row: [(isinstance(one, int | float), one is None, str(one)) for one in row]
    )
