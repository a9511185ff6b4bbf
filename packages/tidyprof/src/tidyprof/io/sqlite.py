"""A safe reader for untrusted SQLite files, which returns columns of numbers.

The reader reads only ordinary tables. Views are never read because they could run any query.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import EMPTY, ProfileReadError
from tidyprof.io.byte_stream import (
    HEAD_BYTES,
    MAXIMUM_BYTES,
    SQLITE_MAGIC,
    ByteStream,
    compression_of,
    head_or_nothing,
)
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, by_code, shape_codes
from tidyprof.tables.records import TEXT_COLUMNS

LONGEST_TEXT = 2**24
"""Maximum length of a string or blob in bytes. Kernel names have up to a few thousand bytes."""

_PRAGMAS = ("trusted_schema=OFF", "cell_size_check=ON")
_VALUE_COMPLAINTS = (
    "NULL value in ",
    "TEXT value in ",
    "NUMERIC value in ",
    "CHECK constraint failed",
)
_LIBRARIES = ("sqlite3", "pyarrow", "adbc_driver_manager")
_BATCH_ROWS = 2**14
_IDS_AT_ONCE = 2**12


@contextmanager
def open_database(path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> Iterator[Database]:
    """Open an SQLite file, which may be compressed with gzip or zstd. A compressed file is unpacked
    to a temporary file.

    Raises ProfileReadError if the file is missing, incomplete, damaged or not an SQLite file. This
    error can also occur while the tables are being read.
    """
    with ExitStack() as stack:
        plain = _plain_file(path, maximum_bytes, stack)
        # immutable means no lock and no journal, so reading changes nothing and works in read-only
        # folders.
        uri = f"{plain.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            yield Database(
                path,
                stack.enter_context(closing(_connected(uri))),
                stack.enter_context(closing(_arrow_connected(uri))),
            )
        except ProfileReadError:
            raise
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            # Python can't decode SQLite messages that quote damaged names.
            if isinstance(error, (OSError, UnicodeDecodeError)) or library in _LIBRARIES:
                raise _damaged(path, " ".join(str(error).split())) from None
            raise


class Database:
    """An SQLite file that was opened by `open_database`.

    - path: the path that the user passed.
    - tables: the names of the columns of each ordinary table.
    - names: the names of all tables and views.
    - warnings: sentences about values that have the wrong type.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, arrow_connection: Any) -> None:
        self.path = path
        self.tables: dict[str, tuple[str, ...]] = {}
        self.warnings: list[str] = []
        self._row_ids: dict[str, str] = {}
        self._connection, self._arrow_connection = connection, arrow_connection
        found = self.rows(
            "SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master WHERE type != 'index'"
        )
        self.names = [name for name, _ in found]
        for name, is_table in found:
            if is_table:
                columns = self.rows(f"PRAGMA table_info({quoted(name)})")
                self.tables[name] = tuple(row[1] for row in columns)
                keys = [row for row in columns if row[5]]
                if len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER":
                    self._row_ids[name] = keys[0][1]

    def require(self, table: str, columns: Iterable[str]) -> None:
        """Raise ProfileReadError if the table or one of these columns doesn't exist."""
        present = self.tables.get(table)
        lacking = [column for column in columns if column not in (present or ())]
        if present is None or lacking:
            what = f"column {lacking[0]} in table {table}" if present else f"table {table}"
            raise ProfileReadError(
                self.path,
                f"there is no {what} (the file has {', '.join(sorted(present or self.tables))})",
                "a different tool or version wrote the file, or the file is damaged",
                "check which tool and version recorded the file",
            )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query that has few rows."""
        return self._connection.execute(sql).fetchall()

    def columns(
        self, sql: str, texts: Codes, strings: tuple[str, str] = ("", "")
    ) -> dict[str, np.ndarray]:
        """Return the columns of a query.

        - strings: the table of strings, and its column.

        Columns are int64 with `ABSENT` for a missing value. These columns have other types:

        - the string columns of the event table, and columns whose name ends with `_text`, are int32
          codes of `texts`, with `NO_TEXT` for a missing string.
        - columns whose name ends with `_string` contain identifiers of strings, and become int32
          codes without this end of the name.
        - `grid_x`, `grid_y` and `grid_z` become the column `grid`, and `block` in the same way.
        - `value` is float64, with NaN for anything but a finite number.

        An integer column may contain any value. Values that aren't integers become `ABSENT`, and
        `warnings` gets a sentence about them.
        """
        names = [column[0] for column in self._connection.execute(f"{sql}\nLIMIT 0").description]
        chosen = {name: _TYPED.get(type_of(name), "{0}").format(name) for name in names}
        try:
            found = self._arrays(sql, chosen, texts)
        except (OSError, TypeError):
            # The driver infers types from the first rows and fails if a later value has another
            # type, so SQLite must check each value.
            integers = [name for name in names if type_of(name) == "integer"]
            self._note_misread(sql, integers)
            found = self._arrays(
                sql, chosen | {name: _INTEGER.format(name) for name in integers}, texts
            )
        for shape in {name[:-2] for name in names if re.fullmatch(r"(grid|block)_x", name)}:
            found[shape] = shape_codes([found.pop(f"{shape}_{axis}") for axis in "xyz"], texts)
        for name in [name for name in names if name.endswith("_string")]:
            codes = self.text_codes(found.pop(name), texts, strings)
            found[name.removesuffix("_string")] = codes
        return found

    def text_codes(self, ids: np.ndarray, texts: Codes, strings: tuple[str, str]) -> np.ndarray:
        """Return int32 codes of the strings with these identifiers. If a string is missing from the
        file, its code is NO_TEXT.
        """
        table, column = map(quoted, strings)
        positions, unique = pd.factorize(ids)
        found: dict[int, Any] = {}
        for start in range(0, len(unique), _IDS_AT_ONCE):
            wanted = ", ".join(map(str, unique[start : start + _IDS_AT_ONCE].tolist()))
            found |= self.rows(f"SELECT id, {column} FROM {table} WHERE id IN ({wanted})")
        codes = [
            texts[found[number]] if isinstance(found.get(number), str) else NO_TEXT
            for number in unique.tolist()
        ]
        return by_code(codes, positions, NO_TEXT, np.int32)

    def _note_misread(self, sql: str, columns: Sequence[str]) -> None:
        strange = ", ".join(f"sum(typeof({name}) NOT IN ('integer', 'null'))" for name in columns)
        (counts,) = self.rows(f"SELECT {strange} FROM ({sql})")
        named = zip(columns, counts, strict=True)
        if told := [f"{count:,} in the column {name}" for name, count in named if count]:
            self.warnings.append(
                f"{self.path.name}: values that aren't integers were left out ({', '.join(told)})."
                " Likely cause: the file is damaged, or another program changed it."
            )

    def _arrays(self, sql: str, chosen: dict[str, str], texts: Codes) -> dict[str, np.ndarray]:
        expressions = ", ".join(f"{expression} AS {name}" for name, expression in chosen.items())
        parts: dict[str, list[np.ndarray]] = {name: [] for name in chosen}
        codes: dict[bytes, int] = {_NOTHING: NO_TEXT}
        for batch in self._batches(f"SELECT {expressions} FROM ({sql})"):
            for name, values in zip(chosen, batch.columns, strict=True):
                parts[name].append(_array(values, type_of(name), codes, texts))
        empty = {"text": np.int32, "real": np.float64}
        found = {}
        for name in chosen:
            # Free each part after copying it, so a large table is never in memory twice.
            own = parts.pop(name) or [np.empty(0, empty.get(type_of(name), np.int64))]
            found[name] = np.concatenate(own)
        return found

    def _batches(self, sql: str) -> Iterator[Any]:
        # The driver takes half the time of Python's sqlite3 and numpy.
        with self._arrow_connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(sql)
            # A query without rows has one empty batch without valid types.
            yield from (batch for batch in cursor.fetch_record_batch() if batch.num_rows)

    def define(self, view: str, table: str, absent: Iterable[str]) -> None:
        """Create a view of a table, in which absent columns contain NULL. If the table doesn't
        exist, the view has no rows.

        Raises ProfileReadError if the structure of the table is damaged. Values must not be read
        before this check, because rows that share pages could expand kilobytes to gigabytes.
        """
        nulls = [f"NULL AS {quoted(column)}" for column in absent]
        query = f"SELECT {', '.join(nulls)} WHERE 0"
        if table in self.tables:
            query = f"SELECT {', '.join(['*', *nulls])} FROM main.{quoted(table)}"
            for (finding,) in self.rows(f"PRAGMA main.quick_check({quoted(table)})"):
                # The readers handle values of the wrong type.
                if finding != "ok" and not finding.startswith(_VALUE_COMPLAINTS):
                    raise _damaged(self.path, " ".join(finding.split()))
        for statement in (
            f"DROP VIEW IF EXISTS temp.{quoted(view)}",
            f"CREATE TEMP VIEW {quoted(view)} AS {query}",
        ):
            self.rows(statement)
            with self._arrow_connection.cursor() as cursor:
                cursor.execute(statement)

    def refuse_repeated(self, table: str, column: str) -> None:
        """Raise ProfileReadError if a column that identifies the rows of a table isn't unique.

        If identifiers are repeated, the links between the file's tables are meaningless, and a
        query that follows the links may return any number of rows.
        """
        if self._row_ids.get(table) == column:
            return
        key, name = quoted(column), f"main.{quoted(table)}"
        ((count, repeated),) = self.rows(
            f"SELECT count({key}), count({key}) - count(DISTINCT {key}) FROM {name}"
        )
        if repeated:
            raise ProfileReadError(
                self.path,
                f"{repeated} of {count} rows of {table} have the same identifier as another row",
                "files of several runs were merged without renumbering",
                "read the files individually",
            )


NOT_KEPT = -1
"""The kind of events that aren't work, such as barriers."""

_NOTHING = b"\0"
_TYPED = {
    # Text is read as bytes, because the driver rejects invalid UTF-8.
    "text": "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE x'00' END",
    "real": "CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS REAL) ELSE 9e999 END",
}
_INTEGER = f"CASE typeof({{0}}) WHEN 'integer' THEN {{0}} ELSE ({ABSENT + 1} - 1) END"
"""Guards for the values of a column. SQL has no literal for ABSENT, so it is a difference."""


def type_of(column: str) -> str:
    """Return the type of a query's column: `text`, `real` or `integer`."""
    if column in TEXT_COLUMNS or column in _OTHER_TEXTS or column.endswith("_text"):
        return "text"
    return "real" if column == "value" else "integer"


_OTHER_TEXTS = ("unit", "kernel")


def _array(values: Any, sort: str, codes: dict[bytes, int], texts: Codes) -> np.ndarray:
    """Return one batch of a column as numbers."""
    if sort == "text":
        encoded = values.dictionary_encode()
        for text in encoded.dictionary.to_pylist():
            if text not in codes:
                codes[text] = texts[_decoded(text)]
        of_batch = np.array([codes[text] for text in encoded.dictionary.to_pylist()], np.int32)
        return of_batch[encoded.indices.to_numpy()]
    if sort == "real":
        array = values.to_numpy(zero_copy_only=False)
        return np.where(np.isfinite(array), array, np.nan)
    if str(values.type) != "int64":
        raise TypeError(f"{values.type} instead of int64")
    if values.null_count == len(values):
        return np.full(len(values), ABSENT)
    return (values.fill_null(ABSENT) if values.null_count else values).to_numpy()


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _connected(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    connection.text_factory = _decoded
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _arrow_connected(uri: str) -> Any:
    # Imported here because the import is slow, and recognizing a file doesn't need it.
    from adbc_driver_sqlite import dbapi

    connection = dbapi.connect(uri)
    for pragma in _PRAGMAS:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA {pragma}")
    return connection


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _plain_file(path: Path, maximum_bytes: int, stack: ExitStack) -> Path:
    """Return the file itself or a temporary file with the unpacked content. The temporary file is
    removed when `stack` is closed.
    """
    stream = ByteStream(path, maximum_bytes)
    if not stream.head(1):
        raise ProfileReadError(path, *EMPTY)
    with path.open("rb") as file:
        compressed = compression_of(file.read(4)) != "none"
    if not compressed:
        _refuse_unfinished(path)
        return path
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidyprof-"))
    plain = Path(folder) / "unpacked.db"
    with plain.open("wb") as file:
        file.writelines(stream.chunks())
    return plain


def _refuse_unfinished(path: Path) -> None:
    """Raise ProfileReadError if the latest changes are still in a separate file. A read-only reader
    can't apply such changes.
    """
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    if any(file.is_file() and file.stat().st_size for file in beside):
        raise ProfileReadError(
            path,
            "the latest changes are still in a separate file next to it (-wal or -journal)",
            "the program is still running, or it was killed while the profiler was writing",
            f"when it has ended, run: sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _damaged(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        f"the database is damaged ({finding[:200]})",
        "the copy is incomplete, or several processes wrote to it over a network file system",
        "copy it again, or record one file per rank on a local disk",
    )


NAMELESS = "whose name is missing from the file"
"""Reason for leaving out rows that refer to a missing string."""


def database_files(
    path: Path, is_database: Callable[[bytes], bool], patterns: Sequence[str], what: str
) -> tuple[list[Path], list[Path]]:
    """Return the file, or the files of a folder that match a pattern and have the format. Also
    return the other databases in the folder.

    A matching file that isn't a database may be the damaged file of a rank. Such a file is kept so
    that reading it raises the error. Raises ProfileReadError if no database in the folder has the
    format.
    """
    if not path.is_dir():
        return [path], []
    named = sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})
    heads = {file: head_or_nothing(file, HEAD_BYTES) for file in named}
    if not any(map(is_database, heads.values())):
        raise ProfileReadError(
            path,
            f"the folder has {len(named)} files with names of {what}, but none has that format",
            "this folder is wrong, or the profiler wrote to another folder",
            "pass the folder or file that the profiler wrote to",
        )
    others = [
        file
        for file, head in heads.items()
        if head.startswith(SQLITE_MAGIC) and not is_database(head)
    ]
    return [file for file in named if file not in others], others
