"""Columns of a CSV file as a polars frame, and what polars says of bad ones as ProfileReadError."""

from __future__ import annotations

import csv
import io
import os
import re
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidyprof.errors import CUT_SHORT, DAMAGED, NO_ROWS, TOO_LARGE, ProfileReadError
from tidyprof.io.byte_stream import LONGEST_LINE_BYTES, compression_of, in_lines, read_bytes
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, by_code

_NOT_PARSED = re.compile(r"could not parse `(.*?)` as dtype `(\w+)` at column '(.*?)'", re.DOTALL)
_SHOWN = 40
_QUOTE = '"'
_STEP = LONGEST_LINE_BYTES
_BEFORE_CELL = np.frombuffer(b',\n"', np.uint8)
_BEHIND_CELL = np.frombuffer(b',\r\n"', np.uint8)


class CsvFile:
    """A CSV file with a header, plain or compressed.

    path     -- the file.
    header   -- its columns, in order.
    warnings -- what was mended when its columns were read.
    """

    def __init__(self, path: Path, header: list[str], maximum_bytes: int) -> None:
        self.path = path
        self.header = header
        self.warnings: list[str] = []
        self._maximum_bytes = maximum_bytes
        with path.open("rb") as file:
            self._plain = compression_of(file.read(4)) == "none"
        self._refuse_repeated_columns()
        self._refuse_size()

    @cached_property
    def text(self) -> bytes:
        """The uncompressed content."""
        return read_bytes(self.path, self._maximum_bytes, partial(in_lines, columns=len(self.header)))

    def ends_with_line(self) -> bool:
        """Whether the last row has a line end; without one, its last number may be cut short."""
        if not self._plain:
            return self.text.endswith(b"\n")
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def open_end(self) -> list[str]:
        """A warning if the last row has no line end: its last number may be cut short."""
        if self.ends_with_line():
            return []
        return [f"{self.path.name}: no line end after the last row; the end of the file may be missing."]

    def frame(
        self,
        types: Mapping[str, pl.DataType],
        *,
        absent: Mapping[str, str] | None = None,
        complete: bool = False,
        quotes: tuple[str, str] | None = None,
    ) -> pl.DataFrame:
        """These columns of the file, with null for empty cells. Unreadable characters are replaced, with a warning.

        absent   -- column -> text that stands for an empty cell in it.
        complete -- refuse rows with too few cells; otherwise they have null in the columns behind.
        quotes   -- likely cause and next step where quotes are not as in CSV.

        The columns that are not asked for are read as well: without them polars does not count the cells of a row.
        Raises ProfileReadError for cells of another type, rows with too many cells, and quotes that nobody closes.
        """
        schema = {name: types.get(name, pl.Categorical) for name in self.header}
        source: Any = self.path if self._plain else self.text
        is_regular, is_utf8 = self._looked_through()
        if not is_utf8:
            self.warnings.append(f"{self.path.name}: broken UTF-8, unreadable characters were replaced.")
        if not is_regular or not is_utf8:
            source = self._rewritten(*(quotes or DAMAGED))
        try:
            scan = pl.scan_csv(source, schema=schema, glob=False, null_values=dict(absent) if absent else None)
            found = scan.collect()
        except pl.exceptions.PolarsError as error:
            raise self._refusal(str(error)) from None
        except pl.exceptions.PanicException as error:
            raise self._refusal(f"the CSV parser stopped: {error}") from None
        if complete and found[self.header[-1]].null_count():
            self._refuse_short_rows()
        # In one piece, as each later column of another division would have polars copy all the others.
        return found.select(list(types)).rechunk()

    def _looked_through(self) -> tuple[bool, bool]:
        """Whether quotes do nothing but enclose cells, and whether it is UTF-8: polars takes both for granted.

        Raises ProfileReadError for lines that are too long or too short, see `in_lines`.
        """
        plain = self._plain and self.path.stat().st_size > 0
        content = np.memmap(self.path, np.uint8, "r") if plain else np.frombuffer(self.text, np.uint8)
        opened = 0
        is_regular = is_utf8 = True
        decoder = getincrementaldecoder("utf-8")()
        parts = (content[start : start + _STEP] for start in range(0, len(content), _STEP))
        for number, part in enumerate(in_lines(self.path, parts, len(self.header))):
            is_utf8 = is_utf8 and _is_utf8(decoder, part.tobytes())
            quotes = number * _STEP + np.flatnonzero(part == ord('"'))
            # A quote within a cell is doubled: it closes one part of the cell and opens the next.
            before, after = content[quotes[opened::2] - 1], content[(quotes[1 - opened :: 2] + 1) % len(content)]
            is_regular &= bool(np.isin(before, _BEFORE_CELL).all() and np.isin(after, _BEHIND_CELL).all())
            opened = (opened + len(quotes)) % 2
        return is_regular and not opened, is_utf8 and not decoder.getstate()[0]

    def _rewritten(self, cause: str, next_step: str) -> bytes:
        """The same rows, read and written by the standard library, which is slow and refuses what is no CSV.

        polars accepts quotes that nobody closes, and cuts a character off. Raises ProfileReadError.
        """
        target = io.BytesIO()
        writer = csv.writer(text := io.TextIOWrapper(target, "utf-8", newline=""), lineterminator="\n")
        with self._lines() as lines:
            rows = csv.reader(lines, strict=True)
            try:
                writer.writerows(rows)
            except csv.Error as error:
                found = f"no sound CSV in line {rows.line_num} ({_printable(str(error))})"
                raise ProfileReadError(self.path, found, cause, next_step) from None
        text.flush()
        return target.getvalue()

    def _lines(self) -> io.TextIOWrapper:
        """The text line by line: decoded as a whole it takes up to four times its size."""
        source = self.path.open("rb") if self._plain else io.BytesIO(self.text)
        return io.TextIOWrapper(source, "utf-8-sig", "replace", newline="")

    def _refuse_short_rows(self) -> None:
        with self._lines() as lines:
            rows = csv.reader(lines)
            for row in rows:
                if len(row) != len(self.header):
                    found = f"no sound CSV ({len(row)} cells in line {rows.line_num}, {len(self.header)} columns)"
                    raise _damaged(self.path, found)

    def _refuse_repeated_columns(self) -> None:
        repeated = next((name for name in self.header if self.header.count(name) > 1), None)
        if repeated is not None:
            raise _damaged(self.path, f"the column {repeated[:_SHOWN]!r} {self.header.count(repeated)} times")

    def _refuse_size(self) -> None:
        if self._plain and self.path.stat().st_size > self._maximum_bytes:
            raise ProfileReadError(self.path, f"more than {self._maximum_bytes} bytes", *TOO_LARGE)

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
    return ProfileReadError(path, found, *DAMAGED)


def _is_utf8(decoder: IncrementalDecoder, part: bytes) -> bool:
    """Whether a text goes on as UTF-8 with this part of its bytes."""
    try:
        decoder.decode(part)
    except UnicodeDecodeError:
        return False
    return True


def _printable(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[: 2 * _SHOWN] + ("..." if len(line) > 2 * _SHOWN else "")


def coded(texts: pl.Series) -> tuple[np.ndarray, list[str]]:
    """For every row the place of its text in a list, -1 where there is none, and that list of distinct texts."""
    # Codes of polars count all texts of the process that ever became a category, so that those of a column have holes.
    texts = texts.cast(pl.Categorical)
    physical = texts.to_physical()
    largest = physical.max()
    if largest is None:
        return np.full(len(texts), -1, np.int32), []
    if largest == physical.min() and not texts.null_count():
        return np.zeros(len(texts), np.int32), texts[:1].to_list()
    # Rows without a text get the code behind all others, whose translation is -1.
    codes = physical.fill_null(largest + 1).to_numpy()
    row_of = np.full(largest + 2, -1, np.int64)
    row_of[codes] = np.arange(len(codes))  # any row of a code will do: they have the same text
    used = np.flatnonzero(row_of[:-1] >= 0)
    translation = np.full(largest + 2, -1, np.int32)
    translation[used] = np.arange(len(used))
    return translation[codes], texts.gather(row_of[used]).to_list()


def text_codes(values: pl.Series, texts: Codes) -> np.ndarray:
    """Codes of a column of texts among those that all parts share, int32; NO_TEXT where there is none."""
    codes, labels = coded(values)
    return by_code((texts[label] for label in labels), codes, NO_TEXT, np.int32)


def whole_numbers(values: pl.Series) -> np.ndarray:
    """A column of whole numbers as int64, ABSENT where there is none; the bits of unsigned ones."""
    if values.dtype == pl.UInt64:
        values = values.reinterpret(signed=True)
    return values.cast(pl.Int64, strict=False).fill_null(ABSENT).to_numpy(writable=True)


def mapped(texts: pl.Series, function: Callable[[str], Any], dtype: Any) -> pl.Series:
    """The function of each text, called once for each distinct one; null where there is no text."""
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
    if not len(rows):
        raise ProfileReadError(path, *NO_ROWS)
    last = header[-1]
    if not rows[last].null_count():
        return rows, 0
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null()))
    if rows[last][-1:].null_count():
        raise ProfileReadError(path, "its last row ends early", *CUT_SHORT)
    complete = rows.filter(pl.col(last).is_not_null())
    return complete, len(rows) - len(complete)
