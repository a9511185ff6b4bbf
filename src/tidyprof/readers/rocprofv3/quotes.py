"""Names with quotes or line breaks in rocprofv3's CSV files, which the tool writes as they are.

rocprofv3 puts quotes around texts and does not double those within (csv_encoder in
source/lib/output/csv.hpp of https://github.com/ROCm/rocprofiler-sdk). A CSV parser then loses quotes,
or a row. Since all cells but the name are plain words and numbers, the name is what lies between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tidyprof.io.csv_files import Utf8Check
from tidyprof.readers.rocprofv3.headers import FREE_TEXTS, TEXTS, canonical

CHECKED_BYTES = 2**26
"""Kernel traces up to this size are checked for quotes in names; larger ones only if they fail to parse.

Kernel names have no quotes, except where `--kernel-rename` put a user's text in their place.
"""

_QUOTE = ord('"')
_LINE_END = ord("\n")
_TEXT_CELL = rb'("[^"\n]*"|[^",\n]*)'
_NUMBER_CELL = rb'("?[-+.\deE]*"?)'


def is_regular(chunks: Iterable[bytes], header: list[str]) -> bool:
    """Whether a file is UTF-8 and each row has as many quotes as the first one, whose name has none within."""
    characters = Utf8Check()
    in_row: int | None = None
    quotes = rows = 0
    chunk = b""
    for chunk in chunks:
        if not characters.accepts(chunk):
            return False
        cells = np.frombuffer(chunk, np.uint8)
        if in_row is None:
            header_end = chunk.find(b"\n") + 1
            first = _row_pattern(header).match(chunk, header_end)
            if first is None or any(b'"' in cell for cell in _free_cells(header, first)):
                return False
            in_row = first.group().count(b'"')
            cells = cells[header_end:]
        quotes += np.count_nonzero(cells == _QUOTE)
        rows += np.count_nonzero(cells == _LINE_END)
    rows += not chunk.endswith(b"\n")
    return quotes == rows * (in_row or 0) and characters.accepts(b"", final=True)


def with_doubled_quotes(text: bytes, header: list[str]) -> tuple[bytes, int] | None:
    """The text as a CSV file should be, and the number of names that were mended.

    None if the text does not follow the tool's own way of writing, or needs no mending.
    """
    row = _row_pattern(header)
    header_end = text.find(b"\n") + 1
    rows, place, mended, doubled = [text[:header_end]], header_end, 0, 0
    while place < len(text):
        match = row.match(text, place)
        if match is None or match.end() == place:
            return None
        place = match.end()
        cells = []
        for name, cell in zip(header, match.groups(), strict=True):
            if canonical(name) in FREE_TEXTS:
                mended += b'"' in cell or b"\n" in cell
                doubled += _is_doubled(cell)
                cell = b'"' + cell.replace(b'"', b'""') + b'"'
            cells.append(cell)
        rows.append(b",".join(cells) + b"\n")
    return (b"".join(rows), mended) if mended > doubled else None


def _row_pattern(header: list[str]) -> re.Pattern[bytes]:
    """One row whose names may hold anything but a line break and what the next row begins with.

    Without that bound, a damaged row would be read as a name that goes on into the next row.
    """
    names = [canonical(column) for column in header]
    plain = [_TEXT_CELL if name in TEXTS else _NUMBER_CELL for name in names]
    first = next((place for place, name in enumerate(names) if name in FREE_TEXTS), len(names))
    next_row = b",".join([*plain[:first], b'"']).replace(b"(", b"(?:")
    free = rb'"((?:(?!\r?\n' + next_row + rb')[\s\S])*?)"'
    cells = [free if name in FREE_TEXTS else cell for name, cell in zip(names, plain, strict=True)]
    return re.compile(b",".join(cells) + rb"\r?(?:\n|\Z)")


def _free_cells(header: list[str], row: re.Match[bytes]) -> list[bytes]:
    """The names in a row."""
    cells = zip(header, row.groups(), strict=True)
    return [cell for column, cell in cells if canonical(column) in FREE_TEXTS]


def _is_doubled(cell: bytes) -> bool:
    """Whether the quotes in a cell are all doubled, as another program than rocprofv3 writes them."""
    return b'"' in cell and b'"' not in cell.replace(b'""', b"")
