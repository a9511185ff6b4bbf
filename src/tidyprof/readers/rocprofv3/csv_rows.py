"""Rows of rocprofv3's CSV files under the names of `headers`, as polars frames."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidyprof.io.csv_files import CsvFile, coded_texts, mapped, without_cut_rows
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.rocprofv3.files import OutputFile
from tidyprof.readers.rocprofv3.headers import SIZES, TEXTS, canonical, counter_columns, is_known
from tidyprof.readers.rocprofv3.quotes import CHECKED_BYTES, is_regular, sound_rows

if TYPE_CHECKING:
    import polars as pl

_UNUSED = frozenset({"address", "flags", "duration", "kernel_id", "graph_exec_id", "graph_node_id"})
_AGENTS = ("agent", "source_agent", "destination_agent")
_AGENT = re.compile(r"(?:(Agent|GPU|CPU) )?(\d{1,9})")
_DECIMALS = ("value",)
_TIMES = ("start", "end")


class RowFrame:
    """The rows of one file.

    rows     -- one column for each known one of the file: times and identifiers as Int64 or null, texts as
                Categorical, agents as Int32 numbers.
    cut      -- rows that lack their last cells; they are not in `rows`.
    indexed  -- whether agents are numbered among the GPUs only (`GPU 0` instead of `Agent 4`).
    warnings -- sentences about what was mended.
    """

    def __init__(self, rows: pl.DataFrame, cut: int, indexed: bool, warnings: list[str]) -> None:
        self.rows = rows
        self.cut = cut
        self.indexed = indexed
        self.warnings = warnings


def read_rows(file: OutputFile, maximum_bytes: int) -> RowFrame:
    """All rows of a file of traces, samples or counters. Raises ProfileReadError if it is damaged."""
    import polars as pl

    csv_file = CsvFile(file.path, file.header, maximum_bytes)
    rows, warnings = _parsed(csv_file, _types(file))
    warnings += csv_file.open_end()
    complete, cut = without_cut_rows(file.path, file.header, rows)
    indexed = False
    frame = _renamed(complete, file)
    for column in _AGENTS:
        if column in frame.columns:
            indexed |= _has_index(frame[column])
            frame = frame.with_columns(mapped(frame[column], _agent_number, pl.Int32).alias(column))
    return RowFrame(frame, cut, indexed, warnings)


def _types(file: OutputFile) -> dict[str, pl.DataType]:
    """Types of the columns that are read; the last one always is, since it tells whether a row is complete."""
    import polars as pl

    counters = counter_columns(file.header) if file.role == "wide counters" else []
    types: dict[str, Any] = {}
    for column in file.header:
        name = canonical(column)
        is_unused = name in _UNUSED or not (is_known(column) or column in counters)
        if is_unused and column != file.header[-1]:
            continue
        if is_unused:
            types[column] = pl.String
        elif name in TEXTS:
            types[column] = pl.Categorical
        elif column in counters or name in _DECIMALS:
            types[column] = pl.Float64
        elif name in SIZES:
            types[column] = pl.UInt32
        else:
            # Identifiers have 64 bits without a sign; a tool may write all ones for `none`.
            types[column] = pl.Int64 if name in _TIMES else pl.UInt64
    return types


def _parsed(file: CsvFile, types: dict[str, pl.DataType]) -> tuple[pl.DataFrame, list[str]]:
    """The frame of the file, or of its text with readable characters, and warnings."""
    import polars as pl

    if file.size > CHECKED_BYTES and any(canonical(column) == "kernel_id" for column in file.header):
        with suppress(ProfileReadError):
            frame = file.frame(types)
            if _has_plain_texts(frame.select(pl.col(pl.Categorical))):
                return frame, []
    elif is_regular(file.chunks()):
        return file.frame(types), []
    readable = file.text.decode("utf-8", "replace").encode()
    warning = f"{file.path.name}: broken UTF-8, unreadable characters were replaced."
    return file.frame(types, sound_rows(file, readable)), [warning] * (readable != file.text)


def _has_plain_texts(texts: pl.DataFrame) -> bool:
    """Whether no text holds a line break, as one does that swallowed a row, and all are UTF-8, which polars trusts."""
    import polars as pl

    for column in texts:
        for text in coded_texts(column)[1].cast(pl.String).cast(pl.Binary):
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                return False
            if b"\n" in text:
                return False
    return True


def _renamed(rows: pl.DataFrame, file: OutputFile) -> pl.DataFrame:
    """Columns under their names here; of columns that mean the same, the first. Identifiers become Int64."""
    import polars as pl

    counters = counter_columns(file.header) if file.role == "wide counters" else []
    chosen: dict[str, pl.Expr] = {}
    for column in rows.columns:
        name = column if column in counters else canonical(column)
        expression = pl.col(column)
        if rows.schema[column] == pl.UInt64 and name != "exec_mask":
            is_small = (rows[column].max() or 0) < 2**63
            # The same bits without a copy.
            expression = expression.reinterpret(signed=True) if is_small else expression.cast(pl.Int64, strict=False)
        if column in counters or (is_known(column) and name not in _UNUSED):
            chosen.setdefault(name, expression.alias(name))
    return rows.select(chosen.values())


def _agent_number(text: str) -> int | None:
    match = _AGENT.fullmatch(text)
    return int(match[2]) if match else None


def _has_index(agents: pl.Series) -> bool:
    import polars as pl

    return any(text.startswith("GPU") for text in agents.unique().drop_nulls().cast(pl.String))


def counters_long(rows: pl.DataFrame, counters: Iterable[str]) -> pl.DataFrame:
    """A row per dispatch and counter, of a frame with a column per counter."""
    import polars as pl

    counters = list(counters)
    kept = [column for column in rows.columns if column not in counters]
    long = rows.unpivot(on=counters, index=kept, variable_name="counter", value_name="value")
    return long.with_columns(pl.col("counter").cast(pl.Categorical)).drop_nulls("value")
