"""Several rocpd databases opened as one, read only."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cifar_train.errors import UserError

MOST_DATABASES = 11
"""SQLite attaches ten to the first one (https://www.sqlite.org/limits.html)."""

_CREATE_VIEW = re.compile(r"^\s*CREATE\s+VIEW(\s+IF\s+NOT\s+EXISTS)?", re.IGNORECASE)


@contextmanager
def opened(files: Sequence[Path]) -> Iterator[sqlite3.Connection]:
    """A connection whose views show the rows of all files. Raises UserError for a file that is no rocpd database."""
    if len(files) > MOST_DATABASES:
        raise UserError(f"{len(files)} databases: {MOST_DATABASES} at most can be read as one here; give fewer")
    for file in files:
        _check(file)
    connection = sqlite3.connect(f"file:{_address(files[0])}?mode=ro", uri=True)
    try:
        for number, file in enumerate(files[1:], start=1):
            connection.execute(f"ATTACH DATABASE 'file:{_address(file)}?mode=ro' AS other{number}")
        if len(files) > 1:
            _unite(connection, len(files) - 1)
        yield connection
    finally:
        connection.close()


def _address(file: Path) -> str:
    from urllib.parse import quote

    return quote(str(file.resolve())).replace("'", "''")


def _check(file: Path) -> None:
    if not file.is_file():
        raise UserError(f"{file}: no such file; rocprofv3 writes FOLDER/HOST/PID_results.db")
    connection = sqlite3.connect(f"file:{_address(file)}?mode=ro", uri=True)
    try:
        views = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
    except sqlite3.DatabaseError as error:
        raise UserError(f"{file}: {error}; give the _results.db of rocprofv3") from error
    finally:
        connection.close()
    if not {"kernels", "rocpd_metadata"} <= views:
        raise UserError(
            f"{file} has no view `kernels`, so it is no database of rocprofv3 (an .rpd file has another layout)"
        )


def _unite(connection: sqlite3.Connection, others: int) -> None:
    """Views of the same names that hold all rows: the tables' own united, and those that build on them again."""
    found = connection.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'view'").fetchall()
    schemas = ["main", *(f"other{number}" for number in range(1, others + 1))]
    for name, sql in found:
        if name.startswith("rocpd_"):
            parts = " UNION ALL ".join(f'SELECT * FROM {schema}."{name}"' for schema in schemas)
            connection.execute(f'CREATE TEMP VIEW "{name}" AS {parts}')
        else:
            connection.execute(_CREATE_VIEW.sub("CREATE TEMP VIEW", sql, count=1))
