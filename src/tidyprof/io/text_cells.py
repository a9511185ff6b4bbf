"""Cells of text files: columns of them, and what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from tidyprof.io.csv_files import coded

if TYPE_CHECKING:
    import polars as pl

ABSENT_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "None", "null"})
"""How tools write that they have no value."""

LARGEST_WHOLE = 2**62
"""Whole numbers from here on are damage: as nanoseconds they are 146 years."""

_NUMBER = re.compile(r"[+-]?(\d+)(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True)
class TextColumn:
    """A column of text: for each row the place of its text in `values`, which are distinct.

    codes -- int32; values -- as in the file, missing texts included.
    """

    codes: np.ndarray
    values: list[str]

    @classmethod
    def of(cls, column: pl.Series) -> TextColumn:
        """A column of polars, whose missing texts become empty ones."""
        codes, values = coded(column)
        if column.null_count():
            codes, values = np.where(codes < 0, len(values), codes), [*values, ""]
        return cls(codes, values)

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> np.ndarray:
        """The text of each row."""
        return np.array(self.values, dtype=object)[self.codes]


def whole_number(text: str) -> int | None:
    """The nearest whole number, None for text that is none or is beyond LARGEST_WHOLE."""
    text = text.strip(" ")
    match = _NUMBER.fullmatch(text)
    if not match or len(match[1]) > 30 or abs(float(text)) >= LARGEST_WHOLE:
        return None
    return int(text) if match[2] is None and match[3] is None else round(Decimal(text))
