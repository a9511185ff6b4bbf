"""Columns of a CSV file, parsed by pyarrow, its complaints turned into ProfileReadError."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.io.byte_stream import ByteStream, compression_of
from tidyprof.io.errors import ProfileReadError
from tidyprof.tables.event_blocks import used_codes

MAXIMUM_BYTES = 2 * 2**30
"""Uncompressed bytes of one CSV or JSON file that a reader accepts unless told otherwise: it is held in memory."""

ABSENT_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "None", "null"})
"""How tools write that they have no value."""

LARGEST_WHOLE = 2**62
"""Whole numbers from here on are damage: as nanoseconds they are 146 years."""

_BLOCK_BYTES = 2**22
_HEAD_BYTES = 4096
_NUMBER = re.compile(r"[+-]?(\d+)(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True)
class TextColumn:
    """A column of text: for each row the place of its text in `values`, which are distinct.

    codes -- int32; values -- as in the file, missing texts included.
    """

    codes: np.ndarray
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> np.ndarray:
        """The text of each row."""
        return np.array(self.values, dtype=object)[self.codes] if len(self.codes) else np.array([], dtype=object)

    def category(self) -> pd.Categorical:
        """The column as a categorical with sorted categories of the texts in use; absent texts are missing."""
        used = [
            code for code in used_codes(self.codes, len(self.values)).tolist() if self.values[code] not in ABSENT_TEXTS
        ]
        names = sorted({self.values[code] for code in used})
        place = {name: number for number, name in enumerate(names)}
        translation = np.full(len(self.values) + 1, -1, np.int32)
        for code in used:
            translation[code] = place[self.values[code]]
        return pd.Categorical.from_codes(translation[self.codes], pd.Index(names, dtype="str"))

    def whole_numbers(self, path: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The column as int64, and where it is missing (0 stands there). Fractions are rounded to the nearest.

        Raises ProfileReadError for text that is no number, and for numbers beyond LARGEST_WHOLE.
        """
        numbers = np.zeros(len(self.values) + 1, np.int64)
        missing = np.zeros(len(self.values) + 1, bool)
        for place in used_codes(self.codes, len(self.values)).tolist():
            number = whole_number(self.values[place])
            if number is None and self.values[place] not in ABSENT_TEXTS:
                raise ProfileReadError(
                    path,
                    f"{self.values[place][:40]!r} in the column {name!r}, which is for whole numbers",
                    "the file is damaged, or another program changed it",
                    "copy the original again",
                )
            numbers[place], missing[place] = (0, True) if number is None else (number, False)
        return numbers[self.codes], missing[self.codes]


def whole_number(text: str) -> int | None:
    """The nearest whole number, None for text that is none or is beyond LARGEST_WHOLE."""
    text = text.strip(" ")
    match = _NUMBER.fullmatch(text)
    if not match or len(match[1]) > 30 or abs(float(text)) >= LARGEST_WHOLE:
        return None
    return int(text) if match[2] is None and match[3] is None else round(Decimal(text))


@dataclass(frozen=True)
class WholeColumn:
    """A column of whole numbers.

    values -- int64, 0 where missing; missing -- bool; rounded -- whether the file has fractions.
    """

    values: np.ndarray
    missing: np.ndarray
    rounded: bool = False


class CsvText:
    """The text of a CSV file with a header.

    names -- its columns; warnings -- what was mended in the text.
    """

    def __init__(self, path: Path, text: bytes) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._text = text.removeprefix(b"\xef\xbb\xbf")
        self.names = self._header()

    @classmethod
    def read(cls, path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> CsvText:
        """The file at `path`, which may be compressed. Raises ProfileReadError if it is no complete CSV file."""
        text = read_bytes(path, maximum_bytes)
        if not text.endswith(b"\n"):
            raise ProfileReadError(
                path,
                "its last line has no end",
                "the file is half written, or its copy is incomplete",
                "copy it again, or record again if the tool was stopped while it wrote",
            )
        return cls(path, text)

    def _header(self) -> list[str]:
        line = self._text[: self._text.find(b"\n")].decode("utf-8", "replace").rstrip("\r")
        try:
            names = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            raise self._refusal(f"a header that is no CSV ({error})") from None
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self._refusal(f"the column {twice[:40]!r} {names.count(twice)} times")
        return names

    def columns(
        self, texts: Iterable[str] = (), numbers: Iterable[str] = (), wholes: Iterable[str] = ()
    ) -> tuple[dict[str, TextColumn], dict[str, np.ndarray], dict[str, WholeColumn]]:
        """These columns: as text, as float64 (NaN where the cell is empty), as whole numbers.

        Raises ProfileReadError for rows of another length and for cells that are no numbers.
        """
        import pyarrow as pa

        texts, numbers, wholes = list(texts), list(numbers), list(wholes)
        text, real, whole = pa.dictionary(pa.int32(), pa.string()), pa.float64(), pa.int64()
        kinds = dict.fromkeys(texts, text) | dict.fromkeys(numbers, real)
        try:
            table = self._parsed(kinds | dict.fromkeys(wholes, whole))
        except ProfileReadError:
            # Something else may be wrong, or whole numbers are written with a fraction or as `NA`: look at each.
            table = self._parsed(kinds | dict.fromkeys(wholes, text))
        return (
            {name: _text_column(table.column(name)) for name in texts},
            {name: table.column(name).to_numpy() for name in numbers},
            {name: self._whole_column(table.column(name), name) for name in wholes},
        )

    def _parsed(self, kinds: dict[str, Any]) -> Any:
        """The columns with these Arrow types as a table."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        read = arrow_csv.ReadOptions(block_size=_BLOCK_BYTES)
        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        convert = arrow_csv.ConvertOptions(
            column_types=kinds, include_columns=list(kinds), null_values=[""], strings_can_be_null=False
        )
        try:
            return arrow_csv.read_csv(pa.BufferReader(self._text), read, parse, convert)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            if self._mend_encoding():
                return self._parsed(kinds)
            raise self._refusal(f"no sound CSV ({_one_line(error)})") from None

    def _mend_encoding(self) -> bool:
        """Replace what is no UTF-8; returns whether there was any."""
        try:
            self._text.decode("utf-8")
        except UnicodeDecodeError:
            self.warnings.append(f"{self.path.name}: broken UTF-8, unreadable characters were replaced.")
            self._text = self._text.decode("utf-8", "replace").encode()
            self.names = self._header()
            return True
        return False

    def _whole_column(self, column: Any, name: str) -> WholeColumn:
        if str(column.type) != "int64":
            text = _text_column(column)
            values, missing = text.whole_numbers(self.path, name)
            return WholeColumn(values, missing, any(_has_fraction(value) for value in text.values))
        values = column.fill_null(0).to_numpy() if column.null_count else column.to_numpy()
        if len(values) and max(abs(int(values.min())), abs(int(values.max()))) >= LARGEST_WHOLE:
            raise self._refusal(f"a number beyond 2^62 in the column {name!r}")
        missing = column.is_null().to_numpy() if column.null_count else np.zeros(len(values), bool)
        return WholeColumn(values, missing)

    def _refusal(self, found: str) -> ProfileReadError:
        return ProfileReadError(
            self.path,
            found,
            "the file is cut off or damaged, or another program changed it",
            "compare its size with the original and copy it again",
        )


def read_bytes(path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> bytes:
    """The uncompressed content. Raises ProfileReadError if it cannot be read, is too large or has only spaces."""
    stream = ByteStream(path, maximum_bytes)
    stream.head(1)  # Whatever is wrong with the path shows here.
    if compression_of(_first_bytes(path)) == "none" and path.stat().st_size <= maximum_bytes:
        text = path.read_bytes()
    else:
        with stream.chunks() as chunks:
            text = b"".join(chunks)
    if not text[:_HEAD_BYTES].strip() and not text.strip():
        raise ProfileReadError(
            path, "the file is empty", "the run ended before the tool wrote its results", "record again"
        )
    return text


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _text_column(column: Any) -> TextColumn:
    if not len(column):
        return TextColumn(np.array([], np.int32), [])
    whole = column.unify_dictionaries().combine_chunks()
    chunk = whole.chunk(0) if hasattr(whole, "chunk") else whole
    return TextColumn(chunk.indices.to_numpy().astype(np.int32), chunk.dictionary.to_pylist())


def _has_fraction(text: str) -> bool:
    return "." in text and bool(text.partition(".")[2].strip("0 "))


def _one_line(error: Exception) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text[:160] + ("..." if len(text) > 160 else "")
