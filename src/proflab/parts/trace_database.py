"""SQL questions to a profiler's SQLite file: read only, with a time limit, and with errors of one line.

Takes .rpd files of rocmProfileData and databases of rocprofv3 (rocpd), which are ordinary SQLite files.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Origin

TIME_LIMIT_S = 10.0
"""Seconds after which a question is given up: a join without its condition would run for ever."""

MOST_ROWS = 200_000
"""Rows of an answer that are fetched at most: no answer of a lesson has as many."""

LONGEST_VALUE = 2**24
"""Bytes of the longest text in an answer; kernel names have some thousands."""

_STEPS_BETWEEN_LOOKS = 10_000
"""Instructions of SQLite's machine between two looks at the clock, a fraction of a millisecond."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_ALLOWED_PRAGMAS = {"table_info", "table_xinfo", "table_list"}


class QuestionError(CourseError):
    """A question that SQLite could not answer: what it said, and what to look at."""


@dataclass(frozen=True)
class Answer:
    """What a question gave: names of the columns, and rows of int, float, text, bytes or None."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class TraceDatabase:
    """A profiler's SQLite file. Nothing that is asked can change it; `origin` says where its numbers come from."""

    path: Path
    origin: Origin

    def ask(self, question: str) -> pd.DataFrame:
        """The answer to one SELECT as a table that knows its origin. Raises QuestionError."""
        import pandas as pd

        answer = self.answer(question)
        table = pd.DataFrame(answer.rows, columns=list(answer.columns))
        table.attrs["origin"] = self.origin
        return table

    def answer(self, question: str) -> Answer:
        """Names of columns and rows. Raises QuestionError for what is no question or can't be answered."""
        if not isinstance(question, str):
            raise QuestionError(f"a question is SQL text in quotes, this is a {type(question).__name__}")
        if not question.strip(" \t\r\n;"):
            raise QuestionError("the question is empty: begin with SELECT")
        with self._connection() as connection:
            try:
                cursor = connection.execute(question)
                rows = cursor.fetchmany(MOST_ROWS + 1)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                raise QuestionError(self._explained(str(error), question)) from None
        if cursor.description is None:
            raise QuestionError("this is no question: begin with SELECT or WITH")
        if len(rows) > MOST_ROWS:
            raise QuestionError(f"more than {MOST_ROWS:,} rows: is a condition missing in a JOIN? LIMIT cuts")
        return Answer(tuple(column[0] for column in cursor.description), rows)

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Name of every table and view -> names of its columns."""
        listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        names = [name for (name,) in self.answer(listed).rows]
        return {name: self.answer(f"SELECT * FROM {_quoted(name)} LIMIT 0").columns for name in names}

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that only reads; `short_name(name)` shortens a kernel's name, as the course's tables do."""
        from tidyprof.names.short_names import short_name

        connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            connection.create_function("short_name", 1, lambda name: short_name(str(name)), deterministic=True)
            connection.set_authorizer(_only_reading)
            deadline = time.monotonic() + TIME_LIMIT_S
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
            yield connection
        finally:
            connection.close()

    def _explained(self, complaint: str, question: str) -> str:
        for pattern, explain in _EXPLANATIONS:
            if found := re.search(pattern, complaint):
                return explain(self, found.group(1) if found.groups() else "", question)
        return f"SQLite says: {complaint}"

    def _columns_of_question(self, question: str) -> set[str]:
        """Columns of the tables that the question names; of all tables if it names none."""
        words = set(re.findall(r"\w+", question.lower()))
        named = [columns for name, columns in self.columns.items() if name.lower() in words]
        return {column for columns in named or self.columns.values() for column in columns}


def open_trace(path: str | Path, origin: Origin | None = None) -> TraceDatabase:
    """The SQLite file of rpd or rocprofv3 at `path`, ready for questions.

    origin -- of a recording. Without it the file's own mark says that it is modelled; a file without a mark counts
    as measured on this machine. Raises CourseError for a file that is missing or no such database.
    """
    from tidyprof.tables.contract import Origin

    file = Path(path)
    if not file.is_file():
        raise CourseError(f"{file}: no such file; run the cell that records it first")
    database = TraceDatabase(file, origin or Origin("measured", "this machine"))
    try:
        marks = database.answer("SELECT value FROM rocpd_metadata WHERE tag = 'modelled'").rows
    except QuestionError as error:
        raise CourseError(f"{file} is no SQLite file of rpd or rocprofv3 ({error}); record it again") from None
    if origin is None and marks:
        from tidyprof.tables.origin import stated_origin

        return TraceDatabase(file, stated_origin(marks[0][0]) or Origin("modelled"))
    return database


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _only_reading(action: int, first: str | None, *_: str | None) -> int:
    """SQLite asks this for every part of a statement (https://www.sqlite.org/c3ref/set_authorizer.html)."""
    pragma = action == sqlite3.SQLITE_PRAGMA and first in _ALLOWED_PRAGMAS
    return sqlite3.SQLITE_OK if action in _ALLOWED or pragma else sqlite3.SQLITE_DENY


def _unknown_table(database: TraceDatabase, name: str, question: str) -> str:
    return f"there is no table or view `{name}`: {near(name, database.columns)}"


def _unknown_column(database: TraceDatabase, name: str, question: str) -> str:
    columns = database._columns_of_question(question)
    return f"there is no column `{name}`: {near(name.rpartition('.')[2], columns)}"


_Explain = Callable[[TraceDatabase, str, str], str]

_EXPLANATIONS: tuple[tuple[str, _Explain], ...] = (
    (r"no such table: (\S+)", _unknown_table),
    (r"no such column: (\S+)", _unknown_column),
    (
        r'near "(.*)": syntax error',
        lambda _, word, __: f"SQLite can't read it at `{word}`: the mistake is there or just before it",
    ),
    (r"incomplete input", lambda *_: "the text ends too early: is a bracket still open, or the rest missing?"),
    (r"unrecognized token: (.*)", lambda _, word, __: f"SQLite can't read {word}: is a quotation mark missing?"),
    (
        r"ambiguous column name: (\S+)",
        lambda _, name, __: f"several tables have a column `{name}`: write the table before it, such as `o.{name}`",
    ),
    (
        r"misuse of aggregate",
        lambda *_: "count, sum and the like can't stand in WHERE, nor one in another: take a subquery or HAVING",
    ),
    (
        r"misuse of (?:aliased )?window function",
        lambda *_: "lag and the like stand in a SELECT: put it into a subquery, and ask that one",
    ),
    (r"no such function: (\S+)", lambda _, name, __: f"SQLite has no function `{name}`"),
    (r"one statement at a time", lambda *_: "one question at a time: there is a `;` in the middle"),
    (r"not authorized|prohibited", lambda *_: "only questions are allowed: begin with SELECT or WITH"),
    (
        r"interrupted",
        lambda *_: f"given up after {TIME_LIMIT_S:.0f} s: is the condition of a JOIN missing, or a recursion endless?",
    ),
    (r"not a database|malformed", lambda *_: "the file is damaged, or no SQLite file"),
)
"""What SQLite says -> what that means for the question."""
