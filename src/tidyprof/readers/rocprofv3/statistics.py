"""Tables of statistics that ROCm's profilers write themselves: calls and durations by name."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl

from tidyprof.errors import DAMAGED, NO_ROWS, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.csv_files import CsvFile

_NUMBERS = ("node_id", "logical_node_id", "cu_count", "num_xcc", "lds_size_in_kb", "max_engine_clk_fcompute")
_TEXTS = ("name", "product_name", "model_name")


def read_agents(path: Path, maximum_bytes: int) -> list[dict[str, Any]]:
    """The rows of an agent_info.csv: `type` (CPU or GPU), `logical_node_id` (as in `Agent 4`), names and sizes.

    Raises ProfileReadError for rows that are no agents.
    """
    text = read_bytes(path, maximum_bytes, in_lines).decode("utf-8-sig", "replace")
    agents = []
    try:
        for row in csv.DictReader(io.StringIO(text), strict=True):
            cells = {name.lower(): cell for name, cell in row.items() if name and cell}
            agent: dict[str, Any] = {"type": cells["agent_type"]}
            agent |= {name: int(cells[name]) for name in _NUMBERS if name in cells}
            agents.append(agent | {name: cells[name] for name in _TEXTS if name in cells})
    except (csv.Error, KeyError, ValueError) as error:
        raise ProfileReadError(
            path,
            f"a row {len(agents) + 1} that describes no CPU or GPU ({' '.join(str(error).split())[:80]})",
            *DAMAGED,
        ) from None
    return agents


STATISTICS_COLUMNS = {
    "rank": "Int32",
    "process": "Int64",
    "name": "string",
    "calls": "int64",
    "total_ns": "int64",
    "mean_ns": "float64",
    "min_ns": "Int64",
    "max_ns": "Int64",
    "std_ns": "Float64",
    "percent": "float64",
}
"""Columns of a table in `meta["stats"]`; percent (0-100) is of the table that the tool wrote, std_ns of the sample.

rocprof 1 does not write min_ns, max_ns and std_ns.
"""

_NAMES = {
    "name": "name",
    "calls": "calls",
    "totaldurationns": "total_ns",
    "averagens": "mean_ns",
    "minns": "min_ns",
    "maxns": "max_ns",
    "stddev": "std_ns",
    "percentage": "percent",
}
_WHOLE = ("calls", "total_ns", "min_ns", "max_ns")
_DECIMAL = ("mean_ns", "std_ns")
_ROUNDING_NS = 1.0
"""rocprof 1 cuts mean durations to whole nanoseconds."""


def read_statistics(
    path: Path, header: list[str], maximum_bytes: int, rank: int | None = None, process: int | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a `*_stats.csv` file in the columns STATISTICS_COLUMNS, in the file's order; and warnings.

    Raises ProfileReadError for cells of a wrong type and for figures that contradict each other.
    """
    types: dict[str, Any] = {}
    for column in header:
        name = _NAMES.get(column.lower())
        if name:
            types[column] = pl.Int64 if name in _WHOLE else pl.Float64 if name in _DECIMAL else pl.String
    csv_file = CsvFile(path, header, maximum_bytes)
    rows = csv_file.frame(types)
    rows = rows.rename({column: _NAMES[column.lower()] for column in types})
    # 0 / 0 where nothing took any time: `-nan` is what the tool writes then.
    rows = rows.with_columns(pl.col("percent").cast(pl.Float64, strict=False).fill_null(float("nan")))
    if not len(rows):
        raise ProfileReadError(path, *NO_ROWS)
    _refuse_contradictions(path, rows)
    columns: dict[str, Any] = {name: rows[name].to_list() for name in rows.columns}
    table = pd.DataFrame(columns).assign(rank=rank, process=process).reindex(columns=list(STATISTICS_COLUMNS))
    return table.astype(STATISTICS_COLUMNS), csv_file.warnings + csv_file.open_end()


def _refuse_contradictions(path: Path, rows: Any) -> None:
    """Rows with missing or impossible figures mean that the file is not what the profiler wrote."""
    calls, total, mean = pl.col("calls"), pl.col("total_ns"), pl.col("mean_ns")
    wrong = (calls < 1) | (total < 0) | ((total / calls - mean).abs() > _ROUNDING_NS + 1e-3 * mean.abs())
    wrong |= ~mean.is_finite() | ~(
        pl.col("percent").is_between(0, 100.01) | (pl.col("percent").is_nan() & (total == 0))
    )
    if "min_ns" in rows.columns:
        wrong |= (pl.col("min_ns") < 0) | (pl.col("min_ns") > mean + _ROUNDING_NS)
        wrong |= pl.col("max_ns") < mean - _ROUNDING_NS
        wrong |= ~pl.col("std_ns").is_finite() | (pl.col("std_ns") < 0)
    bad = rows.filter(wrong.fill_null(True))
    if len(bad):
        name = str(bad["name"][0])[:40]
        raise ProfileReadError(
            path, f"{len(bad)} of {len(rows)} rows with missing or contradictory figures ({name!r} first)", *DAMAGED
        )
