"""Rows of rocprofv3's CSV files under the names of `headers`, as polars frames."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import polars as pl

from tidyprof.io.csv_files import CsvFile, mapped, without_cut_rows
from tidyprof.readers.rocprofv3.files import OutputFile
from tidyprof.readers.rocprofv3.headers import SIZES, TEXTS, UNUSED, canonical, counter_columns, is_known

_AGENTS = ("agent", "source_agent", "destination_agent")
_AGENT = re.compile(r"(?:(Agent|GPU|CPU) )?(\d{1,9})")
_DECIMALS = ("value",)
_TIMES = ("start", "end")
# rocprofv3 encloses texts in quotes and does not double those within (csv_encoder in source/lib/output/csv.hpp of
# https://github.com/ROCm/rocprofiler-sdk).
_QUOTED_MARKS = (
    "a marker's text, or a range of --kernel-rename, has quotes in it, which rocprofv3 writes as they are; "
    "or the file is damaged",
    "record with --output-format json or rocpd, or without quotes in the marked texts",
)


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
    csv_file = CsvFile(file.path, file.header, maximum_bytes)
    rows = csv_file.frame(_types(file), quotes=_QUOTED_MARKS)
    warnings = csv_file.warnings + csv_file.open_end()
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
    counters = counter_columns(file.header) if file.role == "wide counters" else []
    types: dict[str, Any] = {}
    for column in file.header:
        name = canonical(column)
        is_unused = name in UNUSED or not (is_known(column) or column in counters)
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


def _renamed(rows: pl.DataFrame, file: OutputFile) -> pl.DataFrame:
    """Columns under their names here; of columns that mean the same, the first. Identifiers become Int64."""
    counters = counter_columns(file.header) if file.role == "wide counters" else []
    chosen: dict[str, pl.Expr] = {}
    for column in rows.columns:
        name = column if column in counters else canonical(column)
        expression = pl.col(column)
        if rows.schema[column] == pl.UInt64 and name != "exec_mask":
            is_small = (rows[column].max() or 0) < 2**63
            # The same bits without a copy.
            expression = expression.reinterpret(signed=True) if is_small else expression.cast(pl.Int64, strict=False)
        if column in counters or (is_known(column) and name not in UNUSED):
            chosen.setdefault(name, expression.alias(name))
    return rows.select(chosen.values())


def _agent_number(text: str) -> int | None:
    match = _AGENT.fullmatch(text)
    return int(match[2]) if match else None


def _has_index(agents: pl.Series) -> bool:
    return any(text.startswith("GPU") for text in agents.unique().drop_nulls().cast(pl.String))


def counters_long(rows: pl.DataFrame, counters: Iterable[str]) -> pl.DataFrame:
    """A row per dispatch and counter, of a frame with a column per counter."""
    counters = list(counters)
    kept = [column for column in rows.columns if column not in counters]
    long = rows.unpivot(on=counters, index=kept, variable_name="counter", value_name="value")
    return long.with_columns(pl.col("counter").cast(pl.Categorical)).drop_nulls("value")
