"""Columns of CSV files: what is short, long, quoted or large in them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidyprof import ProfileReadError
from tidyprof.io.csv_files import TEXT, read_columns

HEADER = ["name", "start", "value"]
TYPES = {"name": TEXT, "start": pa.int64(), "value": pa.float64()}
ROWS = "a,1,0.5\nb,2,1.5\n"


def read(folder: Path, rows: str) -> tuple[list[tuple], int]:
    """The complete rows and the number of others."""
    path = folder / "a.csv"
    path.write_bytes((",".join(HEADER) + "\n" + rows).encode())
    table, cut, _ = read_columns(path, HEADER, TYPES, "value", maximum_bytes=2**30)
    return [tuple(row.values()) for row in table.to_pylist()], cut


@pytest.mark.parametrize(
    ("rows", "found"),
    {
        "a long row": (f"{'n' * 500_000},3,4\n", [("n" * 500_000, 3, 4)]),
        "a line end in quotes": ('"a\nb",3,4\n', [("a\nb", 3, 4)]),
        "a comma in quotes": ('"a, b",3,4\n', [("a, b", 3, 4)]),
        "doubled quotes": ('"a ""b""",3,4\n', [('a "b"', 3, 4)]),
        "quoted numbers": ('c,"3","4"\n', [("c", 3, 4)]),
        "empty cells": (',,\n"","",""\n', []),
        "empty lines": ("\n\r\n\nc,3,4\n\n", [("c", 3, 4)]),
        "lines of Windows": ("c,3,4\r\nd,5,6\r\n", [("c", 3, 4), ("d", 5, 6)]),
        "the last line without an end": ("c,3,4", [("c", 3, 4)]),
    }.values(),
)  # fmt: skip
def test_rows_beside_plain_ones(rows, found, tmp_path):
    assert read(tmp_path, ROWS + rows) == ([("a", 1, 0.5), ("b", 2, 1.5), *found], 0)


@pytest.mark.parametrize(
    "rows", ["c,3\n" + ROWS, "c\n" + ROWS, "c,3,\n" + ROWS, "\0\n" + ROWS, '"c\n1,2,3"\n' + ROWS]
)
def test_a_short_row_is_counted_and_the_others_are_read(rows, tmp_path):
    assert read(tmp_path, rows) == ([("a", 1, 0.5), ("b", 2, 1.5)], 1)


@pytest.mark.parametrize("last", ["c,3", "c", "c,3,", "c,3\n", "c,3\n\n", "\0\0\0", '"c\nd",3'])
def test_a_file_that_ends_in_a_row_is_refused(last, tmp_path):
    with pytest.raises(ProfileReadError, match="last row"):
        read(tmp_path, "c,3\n" + ROWS + last)


@pytest.mark.parametrize(
    ("row", "found"),
    {
        "c,3,4,5": "more cells than the header",
        "c,3,4,": "more cells than the header",
        "c,soon,4": "'soon' in the column 'start'",
        "c,1.5,4": "'1.5' in the column 'start'",
        "c,9223372036854775808,4": "'9223372036854775808' in the column 'start'",
        "c,3,many": "'many' in the column 'value'",
        '"c,3,4': "a quote",
        'a "b",3,4': "a quote",
    }.items(),
)
@pytest.mark.parametrize("end", ["\n", "\nd,4,5\n"])
def test_a_bad_row_is_refused(row, found, end, tmp_path):
    with pytest.raises(ProfileReadError, match=found):
        read(tmp_path, ROWS + row + end)
