"""The columns of a CSV file as an Arrow table. Errors from Arrow are converted to
ProfileReadError.
"""

from __future__ import annotations

import csv
import io
import mmap
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from tidyprof.errors import (
    CUT_SHORT,
    DAMAGED,
    NO_ROWS,
    TOO_LARGE,
    NothingRecordedError,
    ProfileReadError,
)
from tidyprof.io.byte_stream import LONGEST_LINE_BYTES, compression_of, in_lines, read_bytes
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, by_code, used_codes

TEXT = pa.dictionary(pa.int32(), pa.string())
"""Type of a string column in which many strings are equal."""

_NOT_PARSED = re.compile(
    r"In CSV column #(\d+): .*conversion error to (\w+): invalid value '(.*)'", re.DOTALL
)
_SHOWN = 40
_QUOTE = '"'
_STEP = LONGEST_LINE_BYTES
_BLOCK_BYTES = 2**20
"""Number of bytes that Arrow parses at a time, which fit in the CPU cache. If a row doesn't fit
into such a block, larger blocks are used.
"""
_BEFORE_CELL = np.frombuffer(b',\n"', np.uint8)
_BEHIND_CELL = np.frombuffer(b',\r\n"', np.uint8)


class CsvFile:
    """A CSV file with a header. The file may be compressed.

    - path: the path of the file.
    - header: the names of the columns, in order.
    - source: the path, or the uncompressed bytes of a compressed file.
    - warnings: the warnings about text that was corrected during reading.
    - short: the number of rows with too few cells. These rows are missing from the columns.
    """

    def __init__(self, path: Path, header: list[str], maximum_bytes: int) -> None:
        self.path = path
        self.header = header
        self.warnings: list[str] = []
        self.short = 0
        self._ends_short = False
        if len(set(header)) < len(header):
            repeated = next(name for name in header if header.count(name) > 1)
            raise _damaged(
                path, f"the column {repeated[:_SHOWN]!r} occurs {header.count(repeated)} times"
            )
        with path.open("rb") as file:
            is_plain = compression_of(file.read(4)) == "none"
            size = path.stat().st_size if is_plain else 0
            if size > maximum_bytes:
                raise ProfileReadError(
                    path, f"the file has more than {maximum_bytes} bytes", *TOO_LARGE
                )
        self.source: Path | bytes = path
        if not size:
            self.source = read_bytes(path, maximum_bytes, partial(in_lines, columns=len(header)))

    @property
    def content(self) -> bytes | mmap.mmap:
        """The uncompressed bytes. An uncompressed file is memory-mapped until the last use."""
        if isinstance(self.source, bytes):
            return self.source
        with self.source.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def ends_with_line(self) -> bool:
        """Return True if the last row ends with a newline. Without the newline, the last number in
        the row may be cut.
        """
        return self.content[-1:] == b"\n"

    def frame(
        self,
        types: Mapping[str, pa.DataType],
        *,
        complete: bool = False,
        quotes: tuple[str, str] = DAMAGED,
    ) -> pa.Table:
        """Return these columns of the file, with null for empty cells. Unreadable characters are
        replaced, and a warning is added.

        - complete: True rejects rows with too few cells. False counts these rows as `short`.
        - quotes: the likely cause and the next step for invalid quotes.

        Raises ProfileReadError if a cell has the wrong type, if a row has too many cells, or if a
        quote isn't closed.
        """
        is_regular, is_utf8 = self._looked_through()
        if not is_utf8:
            self.warnings.append(
                f"{self.path.name}: the text isn't valid UTF-8, so unreadable characters were"
                " replaced."
            )
        source = self.source if is_regular and is_utf8 else self._rewritten(*quotes)
        last_line = _last_line(source if isinstance(source, bytes) else self.content)
        # Larger blocks are slower, so they are used only if a row is longer than a block.
        for block_bytes in (_BLOCK_BYTES, LONGEST_LINE_BYTES):
            odd = _OddRows(last_line)
            try:
                found = rows_of(source, self.header, types, block_bytes, odd)
                break
            except pa.ArrowInvalid as error:
                if block_bytes == LONGEST_LINE_BYTES or "straddles" not in str(error):
                    raise self._refusal(str(error)) from None
        if odd.long:
            raise _damaged(self.path, "a row has more cells than the header")
        if complete and odd.short:
            row = f"{odd.cells} cells in the row {odd.text[:_SHOWN]!r}"
            raise _damaged(self.path, f"invalid CSV ({row}, but {len(self.header)} columns)")
        self.short, self._ends_short = odd.short, odd.last_is_short
        return found

    def complete_rows(self, rows: pa.Table, last: str) -> tuple[pa.Table, int]:
        """Return the complete rows and the number of incomplete rows. Empty rows aren't counted.

        - last: the name of the column that has a value in every complete row.

        Raises ProfileReadError if there is no row, or if the last row is incomplete.
        """
        if not len(rows) and not self.short:
            raise NothingRecordedError(self.path, *NO_ROWS)
        if rows[last].null_count:
            is_empty = [column.is_null() for column in rows.columns]
            rows = rows.filter(pc.invert(reduce(pc.and_, is_empty)))
        complete = rows.filter(rows[last].is_valid()) if rows[last].null_count else rows
        if self._ends_short or (len(rows) and not rows[last][-1].is_valid):
            raise ProfileReadError(self.path, "the last row ends early", *CUT_SHORT)
        return complete, self.short + len(rows) - len(complete)

    def _looked_through(self) -> tuple[bool, bool]:
        """Check that quotes only enclose cells and that the text is UTF-8, because Arrow assumes
        both.
        """
        content = np.frombuffer(self.content, np.uint8)
        opened = 0
        is_regular = is_utf8 = True
        decoder = getincrementaldecoder("utf-8")()
        parts = (content[start : start + _STEP] for start in range(0, len(content), _STEP))
        for number, part in enumerate(in_lines(self.path, parts, len(self.header))):
            try:
                is_utf8 = is_utf8 and decoder.decode(part.tobytes()) is not None
            except UnicodeDecodeError:
                is_utf8 = False
            quotes = number * _STEP + np.flatnonzero(part == ord('"'))
            # A doubled quote within a cell closes one part of the cell and opens the next.
            before = content[quotes[opened::2] - 1]
            after = content[(quotes[1 - opened :: 2] + 1) % len(content)]
            is_regular &= bool(
                np.isin(before, _BEFORE_CELL).all() and np.isin(after, _BEHIND_CELL).all()
            )
            opened = (opened + len(quotes)) % 2
        return is_regular and not opened, is_utf8 and not decoder.getstate()[0]

    def _rewritten(self, cause: str, next_step: str) -> bytes:
        """Rewrite the rows with Python's standard library, which is slow but rejects unclosed
        quotes.
        """
        # Decoding line by line takes less memory than decoding the whole text.
        lines = io.TextIOWrapper(io.BytesIO(self.content), "utf-8-sig", "replace", newline="")
        target = io.BytesIO()
        text = io.TextIOWrapper(target, "utf-8", newline="")
        rows = csv.reader(lines, strict=True)
        try:
            csv.writer(text, lineterminator="\n").writerows(rows)
        except csv.Error as error:
            found = f"invalid CSV in line {rows.line_num} ({_printable(str(error))})"
            raise ProfileReadError(self.path, found, cause, next_step) from None
        text.flush()
        return target.getvalue()

    def _refusal(self, message: str) -> ProfileReadError:
        match = _NOT_PARSED.search(message)
        if not match:
            return _damaged(self.path, f"invalid CSV ({_printable(message)})")
        column, wanted, cell = self.header[int(match[1])], match[2], match[3]
        kind = "a number" if wanted == "double" else "an integer"
        return ProfileReadError(
            self.path,
            f"{_printable(cell).strip(_QUOTE)!r} in the column {column!r} isn't {kind}",
            "the file is cut off or damaged, another program changed it, or its times aren't in"
            " nanoseconds",
            "copy the original file again, and read the copy without changing it",
        )


def open_end(path: Path, text: bytes | mmap.mmap) -> list[str]:
    """Return a warning if the last row doesn't end with a newline, because its last number may be
    cut.
    """
    if text[-1:] == b"\n":
        return []
    return [
        f"{path.name}: the last row doesn't end with a newline, so the end of the file may be"
        " missing."
    ]


class _OddRows:
    """Counts of rows that have more or fewer cells than the header. Arrow leaves out these rows.

    - long, short: the number of rows with too many cells, and the number of rows with too few
      cells.
    - cells, text: the number of cells in one of the short rows, and the text of this row.
    - last_is_short: True if the last row of the file has too few cells.
    """

    def __init__(self, last_line: str) -> None:
        self.long = self.short = self.cells = 0
        self.text = ""
        self.last_is_short = False
        self._last_line = last_line

    def __call__(self, row: arrow_csv.InvalidRow) -> str:
        if row.actual_columns > row.expected_columns:
            self.long += 1
        else:
            self.short += 1
            self.cells, self.text = row.actual_columns, row.text
            self.last_is_short |= row.text.endswith(self._last_line)
        return "skip"


def _last_line(text: bytes | mmap.mmap) -> str:
    end = len(text)
    while end and text[end - 1 : end] in (b"\n", b"\r"):
        end -= 1
    return text[text.rfind(b"\n", 0, end) + 1 : end].decode("utf-8", "replace")


def rows_of(
    source: Path | bytes,
    names: list[str],
    types: Mapping[str, pa.DataType],
    block_bytes: int,
    odd: Callable[[arrow_csv.InvalidRow], str] | None = None,
) -> pa.Table:
    """Return the columns of a CSV text with a header, with null for empty cells.

    - names: the names of all columns.
    - block_bytes: the number of bytes to parse at a time. Rows can't be longer than a block.
    - odd: a function that is called for each row of the wrong length. The function returns "skip".

    Raises ArrowInvalid if a row is longer than a block or if a cell has the wrong type. Without
    `odd`, also raises ArrowInvalid if a row has the wrong number of cells.
    """
    table = arrow_csv.read_csv(
        pa.OSFile(str(source)) if isinstance(source, Path) else pa.BufferReader(source),
        arrow_csv.ReadOptions(column_names=names, skip_rows_after_names=1, block_size=block_bytes),
        arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=odd),
        arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""],
            strings_can_be_null=True,
            check_utf8=False,
        ),
    )
    return table.unify_dictionaries().combine_chunks()


def _damaged(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(path, finding, *DAMAGED)


def _printable(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[: 2 * _SHOWN] + ("..." if len(line) > 2 * _SHOWN else "")


def array_of(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one chunk, with strings as indices into a list."""
    if isinstance(values, pa.ChunkedArray):
        values = (
            values.chunk(0)
            if values.num_chunks == 1
            else values.unify_dictionaries().combine_chunks()
        )
    return values.dictionary_encode() if pa.types.is_string(values.type) else values


def coded(texts: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return the index of each row's string in a list of distinct strings, and the list itself. The
    index of an empty cell is -1.
    """
    array = array_of(texts)
    codes = array.indices.fill_null(-1).to_numpy()
    used = used_codes(codes, len(array.dictionary))
    translation = np.full(len(array.dictionary) + 1, -1, np.int32)
    translation[used] = np.arange(len(used))
    return translation[codes], array.dictionary.take(pa.array(used)).to_pylist()


def text_codes(values: pa.ChunkedArray | pa.Array, texts: Codes) -> np.ndarray:
    """Return int32 codes of a string column, based on the shared list `texts`. The code of an empty
    cell is NO_TEXT.
    """
    codes, labels = coded(values)
    return by_code((texts[label] for label in labels), codes, NO_TEXT, np.int32)


def whole_numbers(values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return an integer column as int64, with ABSENT for empty cells. The bits of unsigned numbers
    aren't changed.
    """
    array = array_of(values)
    array = array.view(pa.int64()) if pa.types.is_uint64(array.type) else array.cast(pa.int64())
    return array.fill_null(ABSENT).to_numpy(zero_copy_only=False, writable=True)


def mapped(
    texts: pa.ChunkedArray | pa.Array, function: Callable[[str], Any], dtype: pa.DataType
) -> pa.Array:
    """Apply a function once to each distinct string of a column. Empty cells become null."""
    codes, distinct = coded(texts)
    values = pa.array([*map(function, distinct), None], dtype)
    # The code -1 selects the last value, which is null.
    return values.take(pa.array(np.where(codes < 0, len(distinct), codes)))
