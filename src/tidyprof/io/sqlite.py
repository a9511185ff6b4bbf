"""SQLite files from elsewhere: opened without trusting them, read as columns of numbers.

Nothing in the file is executed: only ordinary tables are read, never views, which could hide anything.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.io.byte_stream import MAXIMUM_BYTES, ByteStream, compression_of
from tidyprof.io.errors import ProfileReadError
from tidyprof.io.sqlite_scan import Scans, some_threads, stretches
from tidyprof.readers.torch.events import ABSENT

SQLITE_MAGIC = b"SQLite format 3\x00"
"""First bytes of every SQLite file (https://www.sqlite.org/fileformat2.html, section 1.3)."""

LONGEST_TEXT = 2**24
"""Bytes of the longest text or blob; kernel names have some thousands."""

_HEADER_BYTES = 100
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_PRAGMAS = ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON")
_VALUE_COMPLAINTS = ("NULL value in ", "TEXT value in ", "NUMERIC value in ", "CHECK constraint failed")
_LIBRARIES = ("sqlite3", "pyarrow", "adbc_driver_manager")
_IDS_AT_ONCE = 500
_FEW_IDS = 5000
_ROW_NUMBERS = ("rowid", "_rowid_", "oid")


@contextmanager
def open_database(path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> Iterator[Database]:
    """A SQLite file, plain or compressed with gzip or zstd (then unpacked into a temporary file).

    Raises ProfileReadError if it is missing, no SQLite file, incomplete or damaged, also while it is read.
    """
    with ExitStack() as stack:
        plain = _plain_file(path, maximum_bytes, stack)
        database = Database(path, plain)
        try:
            with _damage_as_read_error(path):
                database.open()
                yield database
                database.finish_check()
        finally:
            database.close()


@contextmanager
def _damage_as_read_error(path: Path) -> Iterator[None]:
    """Turns what SQLite and its Arrow driver raise into ProfileReadError."""
    try:
        yield
    except ProfileReadError:
        raise
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        # Python cannot decode messages of SQLite that quote damaged names.
        if isinstance(error, (OSError, UnicodeDecodeError)) or library in _LIBRARIES:
            raise _damaged(path, " ".join(str(error).split())) from None
        raise


class Database:
    """An open SQLite file; made by `open_database`.

    path   -- the file as the user named it.
    tables -- name of every ordinary table -> names of its columns.
    """

    def __init__(self, path: Path, plain: Path) -> None:
        self.path = path
        self.tables: dict[str, tuple[str, ...]] = {}
        # immutable: no lock, no journal, so that reading leaves no trace and works in read-only folders.
        self._uri = f"{plain.absolute().as_uri()}?mode=ro&immutable=1"
        self._connection: sqlite3.Connection | None = None
        self._scans = Scans(self._uri, _PRAGMAS)
        self._begun: dict[tuple[str, ...], list[Future[list[list[np.ndarray]]]]] = {}
        self._checker: ThreadPoolExecutor | None = None
        self._checks: list[Future[str | None]] = []

    def require(self, table: str, columns: Iterable[str]) -> None:
        """Raise ProfileReadError unless the table is there with these columns; names what comes near."""
        if table not in self.tables:
            raise self._lacking(f"no table {table}", table, self.tables)
        present = {column.lower() for column in self.tables[table]}
        for column in columns:
            if column.lower() not in present:
                raise self._lacking(f"no column {column} in table {table}", column, self.tables[table])

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query that has few of them."""
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def integers(self, table: str, columns: Iterable[str], where: str = "") -> dict[str, np.ndarray]:
        """Columns of a table as int64; ABSENT where the file has no integer.

        where -- an SQL condition on the rows, built from names and numbers that are not the file's.
        """
        columns = list(columns)
        self.require(table, columns)
        begun = self._begun.pop((table, *columns, where), None)
        try:
            return self._collected(columns, begun or self._begin(table, [*map(quoted, columns)], where=where))
        except (OSError, TypeError):
            # The driver infers types from the first rows and gives up at any other: ask SQLite to check each value.
            guarded = "CASE typeof({0}) WHEN 'integer' THEN {0} ELSE " + f"({ABSENT + 1} - 1) END"
            checked = [guarded.format(quoted(column)) for column in columns]
            return self._collected(columns, self._begin(table, checked, where=where))

    def begin_integers(self, table: str, columns: Iterable[str]) -> None:
        """Start to read what `integers` will be asked for with the same arguments, if the file has it."""
        columns = list(columns)
        if set(columns) <= set(self.tables.get(table, ())):
            self._begun[table, *columns, ""] = self._begin(table, [*map(quoted, columns)])

    def reals(self, table: str, column: str) -> np.ndarray:
        """A column of a table as float64; NaN where the file has no finite number."""
        self.require(table, [column])
        number = f"CASE WHEN typeof({quoted(column)}) IN ('integer', 'real') THEN CAST({quoted(column)} AS REAL)"
        values = self._collected([column], self._begin(table, [f"{number} ELSE 9e999 END"], np.float64))[column]
        return np.where(np.isfinite(values), values, np.nan)

    def coded_texts(self, table: str, column: str) -> tuple[np.ndarray, list[str]]:
        """A column with few distinct texts: for every row a place in the list of texts."""
        self.require(table, [column])
        text = f"CAST({quoted(column)} AS TEXT)"
        found = self.rows(f"SELECT DISTINCT {text} FROM {quoted(table)} LIMIT 2")
        if len(found) == 1:
            count = self.rows(f"SELECT count(*) FROM {quoted(table)}")[0][0]
            return np.zeros(count, np.int32), [found[0][0] or ""]
        places: dict[bytes, int] = {}
        codes = []
        statements = self._divided(table, f"CAST(coalesce({text}, '') AS BLOB)")
        for part in self._scans.begin(statements, _encoded):
            for values in part.result():
                own = [places.setdefault(value, len(places)) for value in values.dictionary.to_pylist()]
                codes.append(np.array(own, np.int32)[values.indices.to_numpy()])
        return np.concatenate(codes) if codes else np.empty(0, np.int32), [_decoded(value) for value in places]

    def texts(self, table: str, ids: np.ndarray, column: str = "string", identifier: str = "id") -> dict[int, str]:
        """The texts with these identifiers; what the table does not have is absent."""
        self.require(table, [identifier, column])
        select = f"SELECT {quoted(identifier)}, {quoted(column)} FROM {quoted(table)}"
        wanted = ids.tolist()
        if len(wanted) > _FEW_IDS:
            chosen = set(wanted)
            found = [row for row in self._connection.execute(select) if row[0] in chosen]
        else:
            found = []
            for start in range(0, len(wanted), _IDS_AT_ONCE):
                part = wanted[start : start + _IDS_AT_ONCE]
                marks = ", ".join("?" * len(part))
                found += self.rows(f"{select} WHERE {quoted(identifier)} IN ({marks})", part)
        return {number: value for number, value in found if isinstance(value, str)}

    def check(self, tables: Iterable[str]) -> None:
        """Look for structural damage in these tables meanwhile; the result comes at the end.

        What `begin_integers` started goes first, since others wait for it.
        """
        begun = [part for parts in self._begun.values() for part in parts]
        self._checker = some_threads()
        self._checks = [
            self._checker.submit(_damage_of, self._uri, name, begun) for name in tables if name in self.tables
        ]

    def open(self) -> None:
        """Connect, and learn which tables there are."""
        self._connection = _connected(self._uri)
        names = self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
        for (name,) in names:
            self.tables[name] = tuple(row[1] for row in self.rows(f"PRAGMA table_info({quoted(name)})"))

    def finish_check(self) -> None:
        """Raise ProfileReadError if `check` has found damage."""
        for check in self._checks:
            damage = check.result()
            if damage:
                raise _damaged(self.path, damage)

    def close(self) -> None:
        """Wait for the check and disconnect."""
        # The checks first: they wait for scans, and would for ever for those that are given up.
        if self._checker:
            self._checker.shutdown(wait=True, cancel_futures=True)
        self._scans.close()
        if self._connection is not None:
            self._connection.close()

    def _lacking(self, found: str, name: str, candidates: Iterable[str]) -> ProfileReadError:
        near = get_close_matches(name, list(candidates), n=1, cutoff=0.7)
        return ProfileReadError(
            self.path,
            found + (f", only {near[0]!r}" if near else f" (it has {_some(candidates)})"),
            "another tool or another version of this one wrote it, or writing it ended early",
            "check with which tool and version it was recorded",
        )

    def _begin(
        self, table: str, expressions: list[str], dtype: Any = np.int64, where: str = ""
    ) -> list[Future[list[list[np.ndarray]]]]:
        """Start to read columns of numbers, stretch of rows by stretch."""
        return self._scans.begin(self._divided(table, ", ".join(expressions), where), partial(_arrays, dtype=dtype))

    def _collected(self, columns: list[str], parts: list[Future[list[list[np.ndarray]]]]) -> dict[str, np.ndarray]:
        """The columns that `_begin` started to read; raises TypeError where they are no numbers."""
        pieces = [piece for part in parts for piece in part.result()]
        result = {}
        for place, name in enumerate(columns):
            result[name] = np.concatenate([piece[place] for piece in pieces]) if pieces else np.empty(0, np.int64)
            # Free what has been copied: a large table is never in memory twice.
            for piece in pieces:
                piece[place] = None
        return result

    def _divided(self, table: str, expressions: str, where: str = "") -> list[str]:
        """Queries that together give these expressions for all rows, in the order of the row numbers."""
        select = f"SELECT {expressions} FROM {quoted(table)}"
        divided = []
        for stretch in self._stretches(table):
            conditions = [f"({condition})" for condition in (where, stretch) if condition]
            divided.append(f"{select} WHERE {' AND '.join(conditions)}" if conditions else select)
        return divided

    def _stretches(self, table: str) -> list[str]:
        """SQL conditions that divide the rows of a table by their numbers; a single empty one where it has none."""
        columns = {column.lower() for column in self.tables[table]}
        number = next((name for name in _ROW_NUMBERS if name not in columns), None)
        if number is None:
            return [""]
        ends = ", ".join(f"(SELECT {end}({number}) FROM {quoted(table)})" for end in ("min", "max"))
        try:
            first, last = self.rows(f"SELECT {ends}")[0]
        except sqlite3.OperationalError as error:
            if "no such column" in str(error):  # a table WITHOUT ROWID
                return [""]
            raise
        return [""] if first is None else stretches(number, first, last)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def holds_table(head: bytes, table: str) -> bool:
    """Whether the first bytes of a file are those of an SQLite file that creates this table.

    Profilers create their tables before they store events, so the definitions stand at the start.
    """
    return head.startswith(SQLITE_MAGIC) and table.encode() in head


def _connected(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    connection.text_factory = _decoded
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _arrays(batch: Any, dtype: Any) -> list[np.ndarray]:
    """The columns of a record batch, ABSENT for null in integers; raises TypeError where they have another type."""
    arrays = []
    for values in batch.columns:
        if values.null_count and dtype is np.int64:
            values = values.fill_null(ABSENT)
        array = values.to_numpy(zero_copy_only=False)
        if array.dtype != dtype:
            raise TypeError(f"{array.dtype} instead of {np.dtype(dtype)}")
        arrays.append(array)
    return arrays


def _encoded(batch: Any) -> Any:
    """The only column of a record batch as an Arrow dictionary array."""
    return batch.column(0).dictionary_encode()


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _damage_of(uri: str, table: str, before: list[Future[Any]]) -> str | None:
    """What is wrong with the structure of a table, None if nothing is; waits for what is to come before."""
    wait(before)
    try:
        with closing(_connected(uri)) as connection:
            for (finding,) in connection.execute(f"PRAGMA quick_check({quoted(table)})"):
                # Values that a column should not have are the readers' concern.
                if finding != "ok" and not finding.startswith(_VALUE_COMPLAINTS):
                    return " ".join(finding.split())
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return " ".join(str(error).split())
    return None


def _plain_file(path: Path, maximum_bytes: int, stack: ExitStack) -> Path:
    """The file itself, or a temporary file with its unpacked content that lasts as long as `stack`."""
    stream = ByteStream(path, maximum_bytes)
    _refuse_other_content(path, stream.head(_HEADER_BYTES))
    with path.open("rb") as file:
        compressed = compression_of(file.read(4)) != "none"
    if compressed:
        plain = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidyprof-"))) / "unpacked.db"
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
            f"it cannot be unpacked into {target.parent} ({error.strerror})",
            "the disk of the temporary folder is full",
            "set TMPDIR to a folder with more room, or unpack the file yourself",
        ) from None


def _refuse_other_content(path: Path, head: bytes) -> None:
    if not head:
        raise ProfileReadError(
            path, "the file is empty", "the profiler did not start or was killed before it wrote", "record again"
        )
    if not head.startswith(SQLITE_MAGIC) or len(head) < _HEADER_BYTES:
        raise ProfileReadError(
            path,
            f"no SQLite database (starts with {head[:24]!r})",
            "another tool or a converter wrote it, or it is damaged at its start",
            "pass the database file that the profiler itself wrote",
        )


def _refuse_unfinished(path: Path) -> None:
    """Refuse a file whose last changes are still in a file beside it, which a read-only reader cannot apply."""
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
            "changes that are not in the file yet lie beside it (-wal or -journal)",
            "the program still runs, or was killed while the profiler wrote",
            f"when it has ended, run: sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _refuse_truncated(path: Path, plain: Path) -> None:
    """Compare the size with the one in the header (fileformat2.html, sections 1.3.2 and 1.3.8)."""
    with plain.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 2**16 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    stated = header[24:28] == header[92:96]
    size = plain.stat().st_size
    if stated and size < page_bytes * pages:
        raise ProfileReadError(
            path,
            f"only {size} of {page_bytes * pages} bytes are there",
            "the copy is incomplete, or the disk was full when it was recorded",
            "compare its size with the original and copy it again",
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
