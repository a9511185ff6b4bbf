"""Finds names with quotes in rocprofv3's CSV files, which the tool writes as they are.

rocprofv3 puts quotes around texts and does not double those within (csv_encoder in
source/lib/output/csv.hpp of https://github.com/ROCm/rocprofiler-sdk). A CSV parser then loses quotes, or a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tidyprof.io.csv_files import CsvFile, Utf8Check
from tidyprof.io.errors import ProfileReadError

CHECKED_BYTES = 2**26
"""Kernel traces up to this size are checked for quotes in names; larger ones only if they fail to parse.

Kernel names have no quotes, except where `--kernel-rename` put a user's text in their place.
"""

_QUOTE = ord('"')
_LINE_END = ord("\n")
_QUOTED_CELL = re.compile(rb'(?<![^,])"[^"\n]*"(?=,|\r?\n|\Z)')


def is_regular(chunks: Iterable[bytes]) -> bool:
    """Whether a file is UTF-8 and each row has as many quotes as the first one, where all of them enclose a cell."""
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
            first = chunk[header_end:].partition(b"\n")[0]
            if b'"' in _QUOTED_CELL.sub(b"", first):
                return False
            in_row = first.count(b'"')
            cells = cells[header_end:]
        quotes += np.count_nonzero(cells == _QUOTE)
        rows += np.count_nonzero(cells == _LINE_END)
    rows += not chunk.endswith(b"\n")
    return quotes == rows * (in_row or 0) and characters.accepts(b"", final=True)


def sound_rows(file: CsvFile, text: bytes) -> bytes:
    """The text of a file with irregular quotes if it is CSV nevertheless, as other programs write it.

    Raises ProfileReadError where it is not.
    """
    try:
        return file.rewritten(text)
    except ProfileReadError as error:
        raise ProfileReadError(
            file.path,
            error.found,
            "a marker's text, or a range of --kernel-rename, has quotes in it, which rocprofv3 writes as they are; "
            "or the file is damaged",
            "record with --output-format json or rocpd, or without quotes in the marked texts",
        ) from None
