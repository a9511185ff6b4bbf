"""A new SQLite file, filled table by table."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd


class NewDatabase:
    """Replaces the file at `path`; as a context manager it is complete at its end, and removed after an error.

    schema -- the statements that define its tables and views.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        # A file that is only useful as a whole needs no protection against a crash half-way.
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.executescript(f"BEGIN;{schema}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        self._connection.close()
        if kind is not None:
            self.path.unlink(missing_ok=True)

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns."""
        return [name for _, name, *_ in self._connection.execute(f'PRAGMA table_info("{table}")')]

    def insert(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """`rows` rows; a column is a Series, a list, or one value for all rows. <NA> becomes NULL."""
        if not rows:
            return
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" * len(columns))
        values = [_column(values, rows) for values in columns.values()]
        statement = f'INSERT INTO "{table}" ({names}) VALUES ({marks})'
        self._connection.executemany(statement, zip(*values, strict=True))


def _column(values: Any, rows: int) -> list[Any]:
    if isinstance(values, pd.Series):
        return values.astype(object).where(values.notna(), None).tolist()
    if isinstance(values, (list, range)):
        return list(values)
    return [values] * rows
