"""Files that writers make: whole or not there, SQLite table by table, and named as rocprofv3 names them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from cifar_train.whole_files import whole_file
from gpumodel.run import RankRun, Run


class NewDatabase:
    """A context manager that replaces the file at `path` at its end; after an error nothing has changed.

    schema -- the statements that define its tables and views.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self._path, self._schema, self._file = path, schema, ExitStack()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.enter_context(whole_file(self._path))
        self._connection = sqlite3.connect(partial, isolation_level=None)
        # A file that is only useful as a whole needs no protection against a crash half-way.
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.executescript(f"BEGIN;{self._schema}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        self._connection.close()
        self._file.__exit__(kind, error, trace)

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


def put(path: Path, content: bytes | str) -> Path:
    """Write a file, which takes the place of one of its name when it is whole: somebody may be reading that one."""
    with whole_file(path) as partial:
        partial.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return path


DEFAULT_PREFIX = "%hostname%/%pid%"
"""What rocprofv3 uses where `--output-file` is not given (source/lib/output of ROCm/rocprofiler-sdk)."""


def output_path(run: Run, rank: RankRun, folder: Path, prefix: str, ending: str) -> Path:
    """`folder`/`prefix`_`ending`, its folder made; %hostname%, %pid%, %rank% and %size% stand for the rank's own.

    A prefix without %pid% or %rank% is the same for all ranks: as with the tool, the last one overwrites the others.
    """
    values = {"hostname": run.hostname, "pid": rank.process_id, "rank": rank.rank, "size": len(run.ranks)}
    for name, value in values.items():
        prefix = prefix.replace(f"%{name}%", str(value)).replace(f"%{name[0]}%", str(value))
    path = folder / f"{prefix}_{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
