"""Questions in SQL to a learner's open database: read-only, with a time limit, and with errors of
one line.
"""

from __future__ import annotations

import re
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from proflab.display import near
from proflab.errors import CourseError

TIME_LIMIT_S = 10.0
"""Time limit of a question in seconds: a join without its condition would run for ever."""

MOST_ROWS = 200_000
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
        rows = cursor.fetchmany(MOST_ROWS + 1)
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
    if len(rows) > MOST_ROWS:
        raise QuestionError(
            f"more than {MOST_ROWS:,} rows: is a condition missing in a JOIN? LIMIT cuts"
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
        having = _columns(connection) if what == "column" else {}
        if own in having:
            return (
                f"there is no column `{name}` in what you ask: the"
                f" view{'s' * (len(having[own]) > 1)} {', '.join(having[own])} have it. What has"
                " `start` and `end` lasts `end - start`"
            )
        return f"there is no {what} `{name}`: {near(own, having or _tables(connection))}"
    for pattern, words in _EXPLANATIONS.items():
        if found := re.search(pattern, complaint):
            return words.format(*found.groups())
    return f"SQLite says: {complaint}"


def _tables(connection: sqlite3.Connection) -> list[str]:
    listed = f"SELECT name FROM {_ALL} WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in connection.execute(listed)]


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Column -> the views that have it. Only views, since they have the names that the lesson
    uses.
    """
    views = [
        name
        for (name,) in connection.execute(
            f"SELECT name FROM {_ALL} WHERE type = 'view' ORDER BY name"
        )
    ]
    having: dict[str, list[str]] = {}
    for view in views:
        # PRAGMA takes no placeholder for a name.
        for column in connection.execute(f'PRAGMA table_info("{view}")'):
            having.setdefault(column[1], []).append(view)
    return having
