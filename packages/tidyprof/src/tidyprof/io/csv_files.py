"""The columns of a CSV file as an Arrow table. Errors from Arrow are converted to
ProfileReadError.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from tidyprof.errors import CUT_SHORT, DAMAGED, NO_ROWS, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import CHUNK_BYTES, ByteStream, compression_of, in_lines, read_bytes
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, by_code

TEXT = pa.dictionary(pa.int32(), pa.string())
"""Type of a string column in which many strings are equal."""

_NOT_PARSED = re.compile(r"In CSV column #(\d+): .*(?:value|The string) '(.*)'", re.DOTALL)
_SHOWN = 40
_BLOCK_BYTES = 2**20
"""Number of bytes that Arrow parses at a time, which fit in the CPU cache. No row may be longer."""

_BEFORE_CELL = np.frombuffer(b',\n"', np.uint8)
_BEHIND_CELL = np.frombuffer(b',\r\n"', np.uint8)
_END_BYTES = 2**16


def read_columns(
    path: Path,
    header: Sequence[str],
    types: Mapping[str, pa.DataType],
    last: str,
    missing: Sequence[str] = (),
    *,
    maximum_bytes: int,
    quotes: tuple[str, str] = DAMAGED,
) -> tuple[pa.Table, int, list[str]]:
    """Return the complete rows of a CSV file with a header, with null for empty cells. Also return
    the number of incomplete rows, and warnings. Empty rows aren't counted.

    - types: the columns to return, and their types.
    - last: the name of the column that has a value in every complete row.
    - missing: strings that mean an empty cell.
    - quotes: the likely cause and the next step for invalid quotes.

    Raises ProfileReadError if there is no row, if a cell has the wrong type, if a row has too many
    cells, if the last row is incomplete, or if a quote isn't closed.
    """
    if len(set(header)) < len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        raise _damaged(
            path, f"the column {repeated[:_SHOWN]!r} occurs {header.count(repeated)} times"
        )
    source: Path | bytes = path
    chunks: Iterable[bytes] = ByteStream(path, maximum_bytes).chunks()
    with path.open("rb") as file:
        if compression_of(file.read(4)) != "none":
            source = packed = b"".join(in_lines(path, chunks, len(header)))
            starts = range(0, len(packed), CHUNK_BYTES)
            chunks = (packed[start : start + CHUNK_BYTES] for start in starts)
    end, is_regular, is_utf8 = _looked_through(in_lines(path, chunks, len(header)))
    if not is_regular:
        raise ProfileReadError(path, "invalid CSV (a quote within a cell, or not closed)", *quotes)
    warnings = []
    if not is_utf8:
        source = read_bytes(path, maximum_bytes).decode("utf-8", "replace").encode()
        warnings.append(
            f"{path.name}: the text isn't valid UTF-8, so unreadable characters were replaced."
        )
    warnings += open_end(path, end)
    last_line = end.rstrip(b"\r\n").rpartition(b"\n")[2].decode("utf-8", "replace")
    table, odd = _parsed(path, source, header, types, missing, last_line)
    if odd["long"]:
        raise _damaged(path, "a row has more cells than the header")
    if not len(table) and not odd:
        raise NothingRecordedError(path, *NO_ROWS)
    if table[last].null_count:
        is_empty = [column.is_null() for column in table.columns]
        table = table.filter(pc.invert(reduce(pc.and_, is_empty)))
    if odd["cut"] or (len(table) and not table[last][-1].is_valid):
        raise ProfileReadError(path, "the last row ends early", *CUT_SHORT)
    complete = table.filter(table[last].is_valid()) if table[last].null_count else table
    return complete, odd["short"] + len(table) - len(complete), warnings


def open_end(path: Path, text: bytes) -> list[str]:
    """Return a warning if the last row doesn't end with a newline, because its last number may be
    cut.
    """
    if text.endswith(b"\n"):
        return []
    return [
        f"{path.name}: the last row doesn't end with a newline, so the end of the file may be"
        " missing."
    ]


def _looked_through(chunks: Iterable[bytes]) -> tuple[bytes, bool, bool]:
    """Return the end of the text. Also return True if quotes only enclose cells, and True if the
    text is UTF-8, because Arrow assumes both.
    """
    opened = 0
    is_regular = is_utf8 = True
    decoder = getincrementaldecoder("utf-8")()
    before, end = b"\n", b""
    for chunk in chunks:
        chunk = chunk if end else chunk.removeprefix(BOM_UTF8)
        try:
            if decoder.getstate()[0] or not chunk.isascii():
                decoder.decode(chunk)
        except UnicodeDecodeError:
            is_utf8 = False
        # The last byte is checked together with the byte behind it.
        part = np.frombuffer(before + chunk, np.uint8)
        quotes = 1 + np.flatnonzero(part[1:-1] == ord('"'))
        # A doubled quote within a cell closes one part of the cell and opens the next.
        is_regular &= bool(
            np.isin(part[quotes[opened::2] - 1], _BEFORE_CELL).all()
            and np.isin(part[quotes[1 - opened :: 2] + 1], _BEHIND_CELL).all()
        )
        opened = (opened + len(quotes)) % 2
        before, end = part[-2:].tobytes(), (end + chunk)[-_END_BYTES:]
    is_closed = bool(opened) == end.endswith(b'"')
    return end, is_regular and is_closed, is_utf8 and not decoder.getstate()[0]


def _parsed(
    path: Path,
    source: Path | bytes,
    header: Sequence[str],
    types: Mapping[str, pa.DataType],
    missing: Sequence[str],
    last_line: str,
) -> tuple[pa.Table, Counter[str]]:
    """Return the rows of a CSV text that have as many cells as the header. Also return the numbers
    of other rows: `long` rows with too many cells, `short` rows with too few cells, and `cut` if
    the last row has too few cells.
    """
    odd: Counter[str] = Counter()

    def skip(row: arrow_csv.InvalidRow) -> str:
        is_last = row.text.endswith(last_line)
        is_long = row.actual_columns > row.expected_columns
        odd["long" if is_long else "cut" if is_last else "short"] += 1
        return "skip"

    try:
        table = arrow_csv.read_csv(
            pa.OSFile(str(source)) if isinstance(source, Path) else pa.BufferReader(source),
            arrow_csv.ReadOptions(
                column_names=header, skip_rows_after_names=1, block_size=_BLOCK_BYTES
            ),
            arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=["", *missing],
                strings_can_be_null=True,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _refusal(path, header, str(error)) from None
    return table.unify_dictionaries().combine_chunks(), odd


def _refusal(path: Path, header: Sequence[str], message: str) -> ProfileReadError:
    match = _NOT_PARSED.search(message)
    if not match:
        return _damaged(path, f"invalid CSV ({message[: 2 * _SHOWN]})")
    column, shown = header[int(match[1])], match[2].strip('"')[:_SHOWN]
    kind = "a number" if "to double" in message else "an integer"
    return ProfileReadError(
        path,
        f"{shown!r} in the column {column!r} isn't {kind}",
        "the file is cut off or damaged, another program changed it, or its times aren't in"
        " nanoseconds",
        "copy the original file again, and read the copy without changing it",
    )


def _damaged(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(path, finding, *DAMAGED)


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
    cells = array_of(texts).to_pandas().cat.remove_unused_categories().cat
    return cells.codes.to_numpy(), cells.categories.tolist()


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
