"""Cutters that keep only the needed columns and rows of a CSV file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable


def columns(*names: str) -> Callable[[bytes], bytes]:
    """Return a cutter that keeps only these columns."""
    return lambda text: _cut(text, set(names).__contains__)


def without(pattern: str) -> Callable[[bytes], bytes]:
    """Return a cutter that drops columns whose names match the pattern."""
    return lambda text: _cut(text, lambda name: not re.search(pattern, name))


def without_rows(pattern: str) -> Callable[[bytes], bytes]:
    """Return a cutter that drops rows whose first cell matches the pattern."""
    return lambda text: _cut(text, is_row=lambda row: not re.search(pattern, row[0]))


def _cut(
    text: bytes,
    is_column: Callable[[str], bool] = lambda name: True,
    is_row: Callable[[list[str]], bool] = lambda row: True,
) -> bytes:
    rows = csv.reader(io.StringIO(text.decode(), newline=""))
    header = next(rows)
    places = [place for place, name in enumerate(header) if is_column(name)]
    written = io.StringIO(newline="")
    # A damaged row is shorter than the header and doesn't change.
    lines = [
        [row[place] for place in places if place < len(row)]
        for row in (header, *filter(is_row, rows))
    ]
    csv.writer(written, lineterminator="\n").writerows(lines)
    return written.getvalue().encode()
