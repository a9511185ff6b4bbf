"""A safe reader for untrusted SQLite files, which returns columns of numbers.

The reader reads only ordinary tables. Views are never read because they could run any query.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import CUT_SHORT, EMPTY, ProfileReadError
from tidyprof.io.byte_stream import (
    MAXIMUM_BYTES,
    SQLITE_MAGIC,
    ByteStream,
    compression_of,
    head_or_nothing,
)
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, by_code, first_equal

LONGEST_TEXT = 2**24
"""Maximum length of a string or blob in bytes. Kernel names have up to a few thousand bytes."""

_IDENTIFIER = re.compile(r"(^|_|^[pt])id$|Id$")
"""Names of identifier columns. No profiler leaves them empty."""

_HEADER_BYTES = 100
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_PRAGMAS = ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON")
_VALUE_COMPLAINTS = (
    "NULL value in ",
    "TEXT value in ",
    "NUMERIC value in ",
    "CHECK constraint failed",
)
_LIBRARIES = ("sqlite3", "pyarrow", "adbc_driver_manager")
_IDS_AT_ONCE = 500
_FEW_IDS = 5000
_BATCH_ROWS = 2**14


@contextmanager
def open_database(path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> Iterator[Database]:
    """Open an SQLite file, which may be compressed with gzip or zstd. A compressed file is unpacked
    to a temporary file.

    Raises ProfileReadError if the file is missing, incomplete, damaged or not an SQLite file. This
    error can also occur while the tables are being read.
    """
    with ExitStack() as stack:
        plain = _plain_file(path, maximum_bytes, stack)
        database = Database(path, plain)
        try:
            with _damage_as_read_error(path):
                database.open()
                yield database
        finally:
            database.close()


@contextmanager
def _damage_as_read_error(path: Path) -> Iterator[None]:
    try:
        yield
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
    """

    def __init__(self, path: Path, plain: Path) -> None:
        self.path = path
        self.tables: dict[str, tuple[str, ...]] = {}
        # immutable means no lock and no journal, so reading changes nothing and works in read-only
        # folders.
        self._uri = f"{plain.absolute().as_uri()}?mode=ro&immutable=1"
        self._misread: dict[tuple[str, str], int] = {}
        self._checked: set[str] = set()
        self._required: set[str] = set()
        self._names: list[str] = []
        self._connection: sqlite3.Connection | None = None
        self._arrow_connection: Any = None

    def require(self, table: str, columns: Iterable[str]) -> None:
        """Raise ProfileReadError if the table or one of these columns doesn't exist. The error
        names the most similar table or column.
        """
        if table not in self.tables:
            raise self._lacking(f"there is no table {table}", table, self.tables)
        self._required.add(table)
        present = {column.lower() for column in self.tables[table]}
        for column in columns:
            if column.lower() not in present:
                raise self._lacking(
                    f"there is no column {column} in table {table}", column, self.tables[table]
                )

    def doubts(self, optional: Mapping[str, Iterable[str]]) -> list[str]:
        """Return warnings about optional tables and columns that are probably in the file under
        another name, and about identifiers that aren't integers.

        A table or column is probably in the file if the file has a view with its name, or a name
        that differs by one character. Names of other required or optional tables and columns don't
        count. Call this function after all required tables have been read.
        """
        others = {name for name in self._names if name not in self._required | optional.keys()}
        similar = []
        for table, columns in optional.items():
            if table not in self.tables:
                similar += [f"the table {table} (the file has a view of this name)"] * (
                    table in self._names
                )
                similar += [
                    f"the table {table} (the file has {near!r})" for near in _near(table, others)
                ]
                continue
            present = {*self.tables[table]}
            for column in {*columns} - present:
                similar += [
                    f"the column {column} of {table} (the file has {near!r})"
                    for near in _near(column, present - {*columns})
                ]
        cause = "Likely cause: the file is damaged, or another program changed it."
        missing = [f"{what} is missing, so its content was left out. {cause}" for what in similar]
        # Each misread identifier causes one warning, however often the column is read.
        counts, self._misread = self._misread, {}
        misread = [
            f"{count:,} values of {column} in {table} aren't integers, so the rows that they"
            f" refer to were left out. {cause}"
            for (table, column), count in counts.items()
        ]
        return [f"{self.path.name}: {warning}" for warning in [*missing, *misread]]

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query that has few rows."""
        self._check(table for table in self.tables if table in sql)
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def integers(
        self, table: str, columns: Iterable[str], where: str = ""
    ) -> dict[str, np.ndarray]:
        """Return columns of a table as int64. Values that aren't integers become ABSENT.

        - where: an SQL condition for the rows. The condition must not contain names or numbers from
          the file.
        """
        columns = list(columns)
        self.require(table, columns)
        try:
            values = self._numbers(table, [*map(quoted, columns)], where=where)
        except (OSError, TypeError):
            # The driver infers types from the first rows and fails if a later value has another
            # type, so SQLite must check each value. SQL has no literal for ABSENT, so it is
            # computed as a difference.
            guarded = "CASE typeof({0}) WHEN 'integer' THEN {0} ELSE " + f"({ABSENT + 1} - 1) END"
            self._note_misread(table, [column for column in columns if _IDENTIFIER.search(column)])
            values = self._numbers(
                table, [guarded.format(quoted(column)) for column in columns], where=where
            )
        return dict(zip(columns, values, strict=True))

    def _note_misread(self, table: str, columns: list[str]) -> None:
        strange = [
            f"sum(typeof({quoted(column)}) NOT IN ('integer', 'null'))" for column in columns
        ]
        (counts,) = (
            self.rows(f"SELECT {', '.join(strange)} FROM {quoted(table)}") if strange else ((),)
        )
        self._misread |= {
            (table, column): count for column, count in zip(columns, counts, strict=True) if count
        }

    def reals(self, table: str, column: str) -> np.ndarray:
        """Return a column of a table as float64. Values that aren't finite numbers become NaN."""
        self.require(table, [column])
        number = (
            f"CASE WHEN typeof({quoted(column)}) IN ('integer', 'real') THEN CAST({quoted(column)}"
            " AS REAL)"
        )
        (values,) = self._numbers(table, [f"{number} ELSE 9e999 END"], np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    def coded_texts(self, table: str, column: str) -> tuple[np.ndarray, list[str]]:
        """Return a column that contains few distinct strings. The strings are represented by
        indices into a list.
        """
        self.require(table, [column])
        numbers: dict[bytes, int] = {}
        codes = [np.empty(0, np.int32)]
        # Read as bytes, because the driver rejects invalid UTF-8.
        for batch in self._batches(table, f"CAST(coalesce({quoted(column)}, '') AS BLOB)"):
            values = batch.column(0).dictionary_encode()
            distinct = values.dictionary.to_pylist()
            of_batch = [numbers.setdefault(value, len(numbers)) for value in distinct]
            codes.append(np.array(of_batch, np.int32)[values.indices.to_numpy()])
        return np.concatenate(codes), [_decoded(value) for value in numbers]

    def texts(
        self, table: str, ids: np.ndarray, column: str = "string", identifier: str = "id"
    ) -> dict[int, str]:
        """Return the string for each identifier in `ids` that the table contains."""
        self.require(table, [identifier, column])
        self._check([table])
        select = f"SELECT {quoted(identifier)}, {quoted(column)} FROM {quoted(table)}"
        wanted = ids.tolist()
        # Look up a few identifiers in batches, because SQLite limits the number of parameters. For
        # many identifiers, reading the whole table is faster.
        if len(wanted) > _FEW_IDS:
            chosen = set(wanted)
            rows = [row for row in self._connection.execute(select) if row[0] in chosen]
        else:
            rows = []
            for start in range(0, len(wanted), _IDS_AT_ONCE):
                part = wanted[start : start + _IDS_AT_ONCE]
                marks = ", ".join("?" * len(part))
                rows += self.rows(f"{select} WHERE {quoted(identifier)} IN ({marks})", part)
        return {number: value for number, value in rows if isinstance(value, str)}

    def open(self) -> None:
        """Connect to the database, and read the names of its tables and columns."""
        self._connection = _connected(self._uri)
        found = self.rows(
            "SELECT name, type = 'table' AND rootpage > 0 FROM sqlite_master WHERE type != 'index'"
        )
        self._names = [name for name, _ in found]
        columns = {
            name: self.rows(f"PRAGMA table_info({quoted(name)})")
            for name, is_table in found
            if is_table
        }
        self.tables = {name: tuple(row[1] for row in rows) for name, rows in columns.items()}

    def close(self) -> None:
        """Disconnect."""
        for connection in (self._arrow_connection, self._connection):
            if connection is not None:
                connection.close()

    def _check(self, tables: Iterable[str]) -> None:
        """Raise ProfileReadError if the structure of one of these tables is damaged. Each table is
        checked only once.

        Values must not be read before this check, because rows that share pages could expand
        kilobytes to gigabytes.
        """
        for table in set(tables) - self._checked:
            self._checked.add(table)
            for (finding,) in self._connection.execute(f"PRAGMA quick_check({quoted(table)})"):
                # The readers handle values of the wrong type.
                if finding != "ok" and not finding.startswith(_VALUE_COMPLAINTS):
                    raise _damaged(self.path, " ".join(finding.split()))

    def _lacking(self, finding: str, name: str, candidates: Iterable[str]) -> ProfileReadError:
        near = get_close_matches(name, list(candidates), n=1, cutoff=0.7)
        return ProfileReadError(
            self.path,
            finding + (f", only {near[0]!r}" if near else f" (the file has {_some(candidates)})"),
            "a different tool or version wrote the file, or writing ended early",
            "check which tool and version recorded the file",
        )

    def _numbers(
        self, table: str, expressions: list[str], dtype: Any = np.int64, where: str = ""
    ) -> list[np.ndarray]:
        parts = [
            _arrays(batch, dtype) for batch in self._batches(table, ", ".join(expressions), where)
        ]
        if not parts:
            return [np.empty(0, dtype) for _ in expressions]
        # Free each part after copying it, so a large table is never in memory twice.
        return [np.concatenate([part.pop(0) for part in parts]) for _ in expressions]

    def _batches(self, table: str, expressions: str, where: str = "") -> Iterator[Any]:
        self._check([table])
        if self._arrow_connection is None:
            self._arrow_connection = _arrow_connected(self._uri)
        # The driver takes half the time of Python's sqlite3 and numpy. Without NOT INDEXED, SQLite
        # may use the order of an index.
        statement = f"SELECT {expressions} FROM {quoted(table)} NOT INDEXED" + (
            f" WHERE {where}" if where else ""
        )
        with self._arrow_connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(statement)
            # A table without rows is one empty batch without valid types.
            yield from (batch for batch in cursor.fetch_record_batch() if batch.num_rows)


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _near(name: str, candidates: Iterable[str]) -> list[str]:
    """Return a candidate that differs from the name by one character, if there is one. Upper and
    lower case count as equal.
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=1 - 1.01 / len(name))
    return [by_lower[lower] for lower in found]


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


def _arrays(batch: Any, dtype: Any) -> list[np.ndarray]:
    arrays = []
    for values in batch.columns:
        if values.null_count and dtype is np.int64:
            values = values.fill_null(ABSENT)
        array = values.to_numpy(zero_copy_only=False)
        if array.dtype != dtype:
            raise TypeError(f"{array.dtype} instead of {np.dtype(dtype)}")
        arrays.append(array)
    return arrays


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _plain_file(path: Path, maximum_bytes: int, stack: ExitStack) -> Path:
    """Return the file itself or a temporary file with the unpacked content. The temporary file is
    removed when `stack` is closed.
    """
    stream = ByteStream(path, maximum_bytes)
    _refuse_other_content(path, stream.head(_HEADER_BYTES))
    with path.open("rb") as file:
        compressed = compression_of(file.read(4)) != "none"
    if compressed:
        plain = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidyprof-")))
            / "unpacked.db"
        )
        _unpack(stream, plain)
    else:
        plain = path
        _refuse_unfinished(path)
    _refuse_truncated(path, plain)
    return plain


def _unpack(stream: ByteStream, target: Path) -> None:
    try:
        with target.open("wb") as file:
            for chunk in stream.chunks():
                file.write(chunk)
    except OSError as error:
        raise ProfileReadError(
            stream.path,
            f"unpacking to {target.parent} failed ({error.strerror})",
            "the disk with the temporary folder is full",
            "set TMPDIR to a folder with more space, or unpack the file yourself",
        ) from None


def _refuse_other_content(path: Path, head: bytes) -> None:
    if not head:
        raise ProfileReadError(path, *EMPTY)
    if not head.startswith(SQLITE_MAGIC) or len(head) < _HEADER_BYTES:
        raise ProfileReadError(
            path,
            f"the file isn't an SQLite database (it starts with {head[:24]!r})",
            "another tool or a converter wrote the file, or its beginning is damaged",
            "pass the original database file from the profiler",
        )


def _refuse_unfinished(path: Path) -> None:
    """Raise ProfileReadError if the latest changes are still in a separate file. A read-only reader
    can't apply such changes.
    """
    log, journal = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    try:
        pending = log.is_file() and log.stat().st_size > 0
        if journal.is_file():
            with journal.open("rb") as file:
                pending = pending or file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    except OSError:
        pending = True
    if pending:
        raise ProfileReadError(
            path,
            "the latest changes are still in a separate file next to it (-wal or -journal)",
            "the program is still running, or it was killed while the profiler was writing",
            f"when it has ended, run: sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _refuse_truncated(path: Path, plain: Path) -> None:
    """Raise ProfileReadError if the file is shorter than its header states (fileformat2.html,
    sections 1.3.2 and 1.3.8).
    """
    with plain.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 2**16 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    stated = header[24:28] == header[92:96]
    size = plain.stat().st_size
    if stated and size < page_bytes * pages:
        raise ProfileReadError(
            path, f"the file has only {size} of {page_bytes * pages} bytes", *CUT_SHORT
        )


def _damaged(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        f"the database is damaged ({finding[:200]})",
        "the copy is incomplete, or several processes wrote to it over a network file system",
        "copy it again, or record one file per rank on a local disk",
    )


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "nothing"


NAMELESS = "whose name is missing from the file"
"""Reason for leaving out rows that refer to a missing string."""


def database_files(
    path: Path, is_database: Callable[[Path], bool], patterns: Sequence[str], what: str
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
    of_format = [file for file in named if is_database(file)]
    if not of_format:
        raise ProfileReadError(
            path,
            f"the folder has {len(named)} files with names of {what}, but none has that format",
            "this folder is wrong, or the profiler wrote to another folder",
            "pass the folder or file that the profiler wrote to",
        )
    databases = [file for file in named if head_or_nothing(file, len(SQLITE_MAGIC)) == SQLITE_MAGIC]
    others = [file for file in databases if file not in of_format]
    return [file for file in named if file not in others], others


def text_codes(
    database: Database,
    ids: np.ndarray,
    texts: Codes,
    table: str = "rocpd_string",
    column: str = "string",
) -> np.ndarray:
    """Return int32 codes of the strings with these identifiers. If a string is missing from the
    file, its code is NO_TEXT.
    """
    positions, unique = pd.factorize(ids)
    stated = database.texts(table, unique, column)
    codes = [texts[stated[number]] if number in stated else NO_TEXT for number in unique.tolist()]
    return by_code(codes, positions, NO_TEXT, np.int32)


MAX_BROKEN_LINKS_SHARE = 0.9
"""Maximum share of broken references in a vital link. Above this share, the file is rejected
because the other rows are useless without the missing data.
"""


@dataclass(frozen=True)
class Link:
    """A column that contains the `id` of rows in another table.

    - what: the plural name of these rows.
    - vital: True if a file is rejected when nearly all of these rows are missing.
    """

    table: str
    column: str
    target: str
    what: str
    vital: bool = False

    def in_file(self, names: Mapping[str, str]) -> Link:
        """Return the same link, but with the table names that the file uses."""
        return Link(names[self.table], self.column, names[self.target], self.what, self.vital)


@dataclass(frozen=True)
class Loss:
    """A count of the rows in a table that refer to missing data: `count` of `total` rows.

    - problem: the problem with these rows, such as "refer to missing operations".
    """

    count: int
    total: int
    table: str
    problem: str
    vital: bool

    def __str__(self) -> str:
        return f"{self.count:,} of {self.total:,} rows of {self.table} {self.problem}"


def dangling(database: Database, links: Iterable[Link]) -> list[Loss]:
    """Return the losses that broken references cause. Links are skipped if the file doesn't contain
    their tables or columns.
    """
    losses = []
    there: dict[str, np.ndarray] = {}
    for link in links:
        has_column = link.column in database.tables.get(link.table, ())
        if not has_column or link.target not in database.tables:
            continue
        named = database.integers(link.table, [link.column])[link.column]
        named = named[named != ABSENT]
        if link.target not in there:
            there[link.target] = database.integers(link.target, ["id"])["id"]
        if count := int((first_equal(there[link.target], named) < 0).sum()):
            what = f"refer to missing {link.what}"
            losses.append(Loss(count, len(named), link.table, what, link.vital))
    return losses


def losses_told(database: Database, losses: Iterable[Loss], cause: str) -> list[str]:
    """Return a warning about all losses, if there are any. Raises ProfileReadError if nearly all
    rows that a vital link refers to are missing.
    """
    losses = list(losses)
    for loss in losses:
        if loss.vital and loss.count >= MAX_BROKEN_LINKS_SHARE * loss.total:
            raise ProfileReadError(
                database.path, str(loss), cause, "copy it again, or record again"
            )
    told = "; ".join(map(str, losses))
    lost = f"Likely cause: {cause}. All counts and sums exclude the missing data."
    return [f"{database.path.name}: {told}. {lost}"] if told else []
