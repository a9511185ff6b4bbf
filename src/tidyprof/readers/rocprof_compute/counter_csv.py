"""CSV files with the counters of rocprof-compute; what is no sound CSV is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from tidyprof.errors import DAMAGED, EMPTY, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, ByteStream
from tidyprof.io.csv_files import CsvFile, mapped, text_codes, whole_numbers
from tidyprof.io.text_cells import ABSENT_TEXTS, whole_number
from tidyprof.tables.codes import ABSENT, Codes, shape_codes
from tidyprof.tables.damage import durations
from tidyprof.tables.kinds import KIND_CODE, refined
from tidyprof.tables.records import Records

NAME = "Kernel_Name"
START, END = "Start_Timestamp", "End_Timestamp"
WHOLE_COLUMNS = {
    "Dispatch_ID": "dispatch_id",
    "GPU_ID": "device",
    START: "start_ns",
    END: "end_ns",
    "Grid_Size": "grid",
    "Workgroup_Size": "block",
    "LDS_Per_Workgroup": "lds_bytes",
    "Scratch_Per_Workitem": "scratch_bytes",
    "Arch_VGPR": "vgprs",
    "Accum_VGPR": "accum_vgprs",
    "SGPR": "sgprs",
    "Wave_Size": "wave_size",
    "wave_size": "wave_size",
}
"""Columns of whole numbers about dispatches, in any version -> their names in the event table."""

_HEADER_BYTES = 2**20


class CounterCsv:
    """A CSV file with a header whose rows all have its length.

    names -- its columns; rounded -- whether the times that were read have fractions of a nanosecond.
    Raises ProfileReadError if the file is none, or is not complete.
    """

    def __init__(self, path: Path, maximum_bytes: int = MAXIMUM_HELD_BYTES) -> None:
        self.path = path
        self.rounded = False
        self.names = self._header(ByteStream(path, maximum_bytes).head(_HEADER_BYTES))
        self._file = CsvFile(path, self.names, maximum_bytes)
        if not self._file.ends_with_line():
            raise self._refusal("its last line has no end")

    @property
    def warnings(self) -> list[str]:
        """What was mended in the text when it was read."""
        return self._file.warnings

    def frame(self, texts: Iterable[str], numbers: Iterable[str]) -> pl.DataFrame:
        """These columns as text and as float64, and all of WHOLE_COLUMNS as int64, with null for empty cells.

        Raises ProfileReadError if a column that every dispatch needs is missing, and for cells that are no numbers.
        """
        self._require()
        wholes = [name for name in self.names if name in WHOLE_COLUMNS]
        types = dict.fromkeys(texts, pl.Categorical) | dict.fromkeys(numbers, pl.Float64)
        try:
            return self._file.frame(types | dict.fromkeys(wholes, pl.Int64), complete=True)
        except ProfileReadError:
            # Something else may be wrong, or whole numbers are written with a fraction or as `NA`: look at each.
            found = self._file.frame(types | dict.fromkeys(wholes, pl.Categorical), complete=True)
        return found.with_columns(mapped(found[name], partial(self._whole, name), pl.Int64) for name in wholes)

    def _header(self, head: bytes) -> list[str]:
        if not head.strip():
            raise ProfileReadError(self.path, *EMPTY)
        rows = csv.reader(io.StringIO(head.decode("utf-8-sig", "replace"), newline=""), strict=True)
        try:
            return next(rows)
        except csv.Error as error:
            raise self._refusal(f"no sound CSV in line 1 ({error})") from None

    def _require(self) -> None:
        missing = [name for name in ("Dispatch_ID", NAME) if name not in self.names]
        if missing:
            shown = ", ".join(repr(name[:30]) for name in self.names[:4])
            raise ProfileReadError(
                self.path,
                f"no column {' and no column '.join(missing)} (it begins with {shown})",
                "another tool wrote it, or a version before omniperf 2",
                "pass the folder with pmc_perf.csv that rocprof-compute profile wrote",
            )

    def _whole(self, column: str, text: str) -> int | None:
        number = whole_number(text)
        if number is None and text not in ABSENT_TEXTS:
            raise self._refusal(f"{text[:40]!r} in the column {column!r}, which is for whole numbers")
        self.rounded |= column in (START, END) and bool(text.partition(".")[2].strip("0 "))
        return number

    def _refusal(self, found: str) -> ProfileReadError:
        return ProfileReadError(self.path, found, *DAMAGED)


def dispatch_records(path: Path, rows: pl.DataFrame, texts: Codes) -> Records:
    """An event for each of these rows of a file, not checked for damage; without times start and duration are ABSENT.

    Raises ProfileReadError for a row without a dispatch number or a kernel name, and for a file without a row.
    """
    if not len(rows):
        raise no_dispatches(path)
    columns = {own: whole_numbers(rows[name]) for name, own in WHOLE_COLUMNS.items() if name in rows.columns}
    name = text_codes(rows[NAME], texts)
    is_unnamed = np.array([*(text in ABSENT_TEXTS for text in texts), True])[name]
    lost = int((is_unnamed | (columns["dispatch_id"] == ABSENT)).sum())
    if lost:
        raise ProfileReadError(path, f"{lost} rows without a dispatch number or a kernel name", *DAMAGED)
    nothing = np.full(len(rows), ABSENT, np.int64)
    start, end = columns.pop("start_ns", nothing), columns.pop("end_ns", nothing)
    kind = refined(np.full(len(rows), KIND_CODE["kernel"], np.int8), name, texts)
    shapes = {shape: shape_codes([columns.pop(shape)], texts) for shape in ("grid", "block") if shape in columns}
    times = {"start_ns": start, "duration_ns": durations(start, end)}
    columns.setdefault("device", nothing.copy())
    return Records({"kind": kind, "name": name, **times, **columns, **shapes})


def no_dispatches(path: Path) -> ProfileReadError:
    """The error for a file without a single dispatch."""
    return ProfileReadError(
        path,
        "no dispatch of any kernel",
        "the program launched no kernel, ended early, or a filter (-k, -d) matched nothing",
        "run it without filters, and read log.txt in the same folder",
    )
