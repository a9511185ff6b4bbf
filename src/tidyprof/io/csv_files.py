"""Columns of a CSV file as a polars frame, and what polars says of bad ones as ProfileReadError."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidyprof.io.byte_stream import ByteStream, compression_of
from tidyprof.io.errors import ProfileReadError

if TYPE_CHECKING:
    import polars as pl

_NOT_PARSED = re.compile(r"could not parse `(.*?)` as dtype `(\w+)` at column '(.*?)'", re.DOTALL)
_SHOWN = 40
_QUOTE = '"'


class Utf8Check:
    """Whether bytes that come in pieces are UTF-8. polars takes that for granted in some places."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def accepts(self, chunk: bytes, final: bool = False) -> bool:
        """Whether the bytes so far can be UTF-8; with `final`, whether they are."""
        if chunk.isascii() and not final and self._decoder.getstate() == (b"", 0):
            return True
        try:
            self._decoder.decode(chunk, final)
        except UnicodeDecodeError:
            return False
        return True


class CsvFile:
    """A CSV file with a header, plain or compressed.

    path   -- the file.
    header -- its columns, in order.
    """

    def __init__(self, path: Path, header: list[str], maximum_bytes: int) -> None:
        self.path = path
        self.header = header
        self._maximum_bytes = maximum_bytes
        self._text: bytes | None = None
        with path.open("rb") as file:
            self._plain = compression_of(file.read(4)) == "none"
        self._refuse_repeated_columns()
        self._refuse_size()

    @property
    def size(self) -> int:
        """Uncompressed bytes."""
        return self.path.stat().st_size if self._plain else len(self.text)

    @property
    def text(self) -> bytes:
        """The uncompressed content, kept from the first use on."""
        if self._text is None:
            self._text = b"".join(ByteStream(self.path, self._maximum_bytes).chunks())
        return self._text

    def chunks(self) -> Iterator[bytes]:
        """The uncompressed content in pieces, without keeping it."""
        yield from ByteStream(self.path, self._maximum_bytes).chunks() if self._text is None else [self._text]

    def ends_with_line(self) -> bool:
        """Whether the last row has a line end; without one, its last number may be cut short."""
        if not self._plain:
            return self.text.endswith(b"\n")
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def replaced_text(self) -> bytes | None:
        """The text with a mark in place of each unreadable character; None if all are readable."""
        characters = Utf8Check()
        if all(characters.accepts(chunk) for chunk in self.chunks()) and characters.accepts(b"", final=True):
            return None
        return self.text.decode("utf-8", "replace").encode()

    def open_end(self) -> list[str]:
        """A warning if the last row has no line end: its last number may be cut short."""
        if self.ends_with_line():
            return []
        return [f"{self.path.name}: no line end after the last row; the end of the file may be missing."]

    def frame(
        self, types: Mapping[str, pl.DataType], mended: bytes | None = None, absent: Mapping[str, str] | None = None
    ) -> pl.DataFrame:
        """These columns of the file, or of a corrected text of it, with null for empty cells.

        absent -- column -> text that stands for an empty cell in it.

        The columns that are not asked for are read as well: without them polars does not count the cells of a row.

        Rows with too few cells have null in the columns behind them. Raises ProfileReadError for cells of
        another type, rows with too many cells, and quotes that nobody closes.
        """
        import polars as pl

        schema = {name: types.get(name, pl.Categorical) for name in self.header}
        source: Any = mended if mended is not None else self.path if self._plain else self.text
        try:
            scan = pl.scan_csv(source, schema=schema, glob=False, null_values=dict(absent) if absent else None)
            # In one piece, as each later column of another division would have polars copy all the others.
            return scan.collect().select(list(types)).rechunk()
        except pl.exceptions.PolarsError as error:
            raise self._refusal(str(error)) from None
        except pl.exceptions.PanicException as error:
            raise self._refusal(f"the CSV parser stopped: {error}") from None

    def rewritten(self, text: bytes) -> bytes:
        """The same rows, read and written by the standard library, which is slow and refuses what is no CSV.

        polars accepts quotes that nobody closes, and cuts a character off. Raises ProfileReadError.
        """
        target = io.StringIO()
        writer = csv.writer(target, lineterminator="\n")
        rows = csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""), strict=True)
        try:
            writer.writerows(rows)
        except csv.Error as error:
            raise _damaged(self.path, f"no sound CSV in line {rows.line_num} ({_printable(str(error))})") from None
        return target.getvalue().encode()

    def _refuse_repeated_columns(self) -> None:
        repeated = next((name for name in self.header if self.header.count(name) > 1), None)
        if repeated is not None:
            raise _damaged(self.path, f"the column {repeated[:_SHOWN]!r} {self.header.count(repeated)} times")

    def _refuse_size(self) -> None:
        if self._plain and self.path.stat().st_size > self._maximum_bytes:
            raise ProfileReadError(
                self.path,
                f"more than {self._maximum_bytes} bytes",
                "a recording of too many steps",
                "record fewer steps, or pass a larger maximum_bytes",
            )

    def _refusal(self, message: str) -> ProfileReadError:
        match = _NOT_PARSED.search(message)
        if match:
            cell, wanted, column = match.groups()
            kind = "text" if wanted in ("cat", "str") else "number" if wanted.startswith("f") else "whole number"
            return ProfileReadError(
                self.path,
                f"{_printable(cell).strip(_QUOTE)!r} in the column {column!r}, where a {kind} belongs",
                "the file is cut off or damaged, another program changed it, or its times are not in nanoseconds",
                "copy the original again, and read the file as the profiler wrote it",
            )
        if "more fields" in message:
            return _damaged(self.path, "a row with more cells than the header has columns")
        return _damaged(self.path, f"no sound CSV ({_printable(message)})")


def _damaged(path: Path, found: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        found,
        "the file is damaged, or another program changed it",
        "compare its size with the original and copy it again",
    )


def _printable(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[: 2 * _SHOWN] + ("..." if len(line) > 2 * _SHOWN else "")


def coded(texts: pl.Series) -> tuple[np.ndarray, list[str]]:
    """For every row the place of its text in a list, -1 where there is none, and that list of distinct texts."""
    import polars as pl

    codes, distinct = coded_texts(texts)
    return codes, distinct.cast(pl.String).to_list()


def coded_texts(texts: pl.Series) -> tuple[np.ndarray, pl.Series]:
    """As `coded`, with the distinct texts as polars holds them, which does not ask whether they are UTF-8."""
    import polars as pl

    texts = texts.cast(pl.Categorical)
    physical = texts.to_physical()
    largest = physical.max()
    if largest is None:
        return np.full(len(texts), -1, np.int32), texts[:0]
    if largest == physical.min() and not texts.null_count():
        return np.zeros(len(texts), np.int32), texts[:1]
    # Rows without a text get a place of their own behind all others.
    codes = physical.fill_null(largest + 1).to_numpy()
    row_of = np.full(largest + 2, -1, np.int64)
    row_of[codes] = np.arange(len(codes))
    used = np.flatnonzero(row_of[:-1] >= 0)
    translation = np.full(largest + 2, -1, np.int32)
    translation[used] = np.arange(len(used))
    return translation[codes], texts.gather(row_of[used])


def counted(texts: pl.Series) -> Counter[str]:
    """How often each text occurs; `None` is where there is none."""
    codes, distinct = coded(texts)
    if len(distinct) == 1 and codes.min() == 0:
        return Counter({distinct[0]: len(codes)})
    without, *counts = np.bincount(codes + 1, minlength=len(distinct) + 1).tolist()
    return Counter(dict(zip(distinct, counts, strict=True))) + Counter({"None": without})


def mapped(texts: pl.Series, function: Callable[[str], Any], dtype: Any) -> pl.Series:
    """The function of each text, called once for each distinct one; null where there is no text."""
    import polars as pl

    codes, distinct = coded(texts)
    values = pl.Series(texts.name, [*map(function, distinct), None], dtype=dtype)
    if len(values) > 1 and values[:-1].n_unique() == 1 and codes.min() == 0:
        return values[:1].new_from_index(0, len(codes))
    # The place -1 is that of the last value, which is null.
    return values.gather(np.where(codes < 0, len(distinct), codes))


def without_cut_rows(path: Path, header: list[str], rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The rows that have a last cell, and the number of those without, empty lines apart.

    Raises ProfileReadError if the last row of all has none, or if there is no row.
    """
    import polars as pl

    if not len(rows):
        raise ProfileReadError(
            path,
            "a header without rows",
            "the program was killed before the profiler wrote its results",
            "record again, and let the program end by itself",
        )
    last = header[-1]
    if not rows[last].null_count():
        return rows, 0
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null()))
    if rows[last][-1:].null_count():
        raise ProfileReadError(
            path,
            "its last row ends early",
            "the file is half written, or its copy is incomplete",
            "copy it again, or record again if the program was killed",
        )
    complete = rows.filter(pl.col(last).is_not_null())
    return complete, len(rows) - len(complete)
