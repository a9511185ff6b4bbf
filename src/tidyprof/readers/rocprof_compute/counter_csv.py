"""CSV files with the counters of rocprof-compute as columns; what is no sound CSV is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, ByteStream
from tidyprof.io.csv_files import CsvFile
from tidyprof.io.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS, LARGEST_WHOLE, TextColumn, whole_number

if TYPE_CHECKING:
    import polars as pl


_HEADER_BYTES = 2**20


@dataclass(frozen=True)
class WholeColumn:
    """A column of whole numbers.

    values -- int64, 0 where missing; missing -- bool; rounded -- whether the file has fractions.
    """

    values: np.ndarray
    missing: np.ndarray
    rounded: bool = False


class CounterCsv:
    """A CSV file with a header whose rows all have its length.

    names -- its columns; warnings -- what was mended in the text.
    Raises ProfileReadError if the file is none, or is not complete.
    """

    def __init__(self, path: Path, maximum_bytes: int = MAXIMUM_HELD_BYTES) -> None:
        self.path = path
        self.names = self._header(ByteStream(path, maximum_bytes).head(_HEADER_BYTES))
        self._file = CsvFile(path, self.names, maximum_bytes)
        if not self._file.ends_with_line():
            raise self._refusal("its last line has no end")

    @property
    def warnings(self) -> list[str]:
        """What was mended in the text when it was read."""
        return self._file.warnings

    def columns(
        self, texts: Iterable[str] = (), numbers: Iterable[str] = (), wholes: Iterable[str] = ()
    ) -> tuple[dict[str, TextColumn], dict[str, np.ndarray], dict[str, WholeColumn]]:
        """These columns: as text, as float64 (NaN where the cell is empty), as whole numbers.

        Raises ProfileReadError for cells that are no numbers.
        """
        import polars as pl

        texts, numbers, wholes = list(texts), list(numbers), list(wholes)
        types = dict.fromkeys(texts, pl.Categorical) | dict.fromkeys(numbers, pl.Float64)
        try:
            frame = self._file.frame(types | dict.fromkeys(wholes, pl.Int64), complete=True)
        except ProfileReadError:
            # Something else may be wrong, or whole numbers are written with a fraction or as `NA`: look at each.
            frame = self._file.frame(types | dict.fromkeys(wholes, pl.Categorical), complete=True)
        return (
            {name: TextColumn.of(frame[name]) for name in texts},
            {name: frame[name].fill_null(np.nan).to_numpy() for name in numbers},
            {name: self._whole_column(frame[name]) for name in wholes},
        )

    def _header(self, head: bytes) -> list[str]:
        if not head.strip():
            raise ProfileReadError(
                self.path, "the file is empty", "the run ended before the tool wrote its results", "record again"
            )
        rows = csv.reader(io.StringIO(head.decode("utf-8-sig", "replace"), newline=""), strict=True)
        try:
            return next(rows)
        except csv.Error as error:
            raise self._refusal(f"no sound CSV in line 1 ({error})") from None

    def _whole_column(self, column: pl.Series) -> WholeColumn:
        if column.dtype.is_integer():
            values = column.fill_null(0).to_numpy()
            if len(values) and max(abs(int(values.min())), abs(int(values.max()))) >= LARGEST_WHOLE:
                raise self._refusal(f"a number beyond 2^62 in the column {column.name!r}")
            return WholeColumn(values, column.is_null().to_numpy())
        text = TextColumn.of(column)
        numbers = [whole_number(value) for value in text.values]
        for value, number in zip(text.values, numbers, strict=True):
            if number is None and value not in ABSENT_TEXTS:
                raise self._refusal(f"{value[:40]!r} in the column {column.name!r}, which is for whole numbers")
        values = np.array([number or 0 for number in numbers], np.int64)
        missing = np.array([number is None for number in numbers], bool)
        return WholeColumn(values[text.codes], missing[text.codes], any(map(_has_fraction, text.values)))

    def _refusal(self, found: str) -> ProfileReadError:
        return ProfileReadError(
            self.path,
            found,
            "the file is cut off or damaged, or another program changed it",
            "compare its size with the original and copy it again, or record again",
        )


def _has_fraction(text: str) -> bool:
    return "." in text and bool(text.partition(".")[2].strip("0 "))
