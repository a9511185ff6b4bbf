"""An rpd database without the tables that neither tidyprof nor the lessons read."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

_NOT_ASKED = ("ext_callstack", "rocpd_barrierop", "rocpd_op_inputSignals")


def database(content: bytes) -> bytes:
    """Return the database without these tables, their views, and the indexes.

    Indexes only make queries faster.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.rpd"
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            _drop(connection)
            connection.execute("VACUUM")
        return path.read_bytes()


def _drop(connection: sqlite3.Connection) -> None:
    present = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL"
    ).fetchall()
    for kind, name in present:
        if kind == "index" or name in _NOT_ASKED:
            connection.execute(f'DROP {kind} "{name}"')
    for kind, name in present:
        if kind == "view" and not _answers(connection, name):
            connection.execute(f'DROP VIEW "{name}"')


def _answers(connection: sqlite3.Connection, view: str) -> bool:
    try:
        connection.execute(f'SELECT * FROM "{view}" LIMIT 0')
    except sqlite3.OperationalError:  # a table that the view needs was dropped
        return False
    return True
