"""Statistics tables from ROCm's profilers, with the number of calls and the durations for each
name.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tidyprof.errors import DAMAGED, NO_ROWS, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.csv_files import CsvFile

_NUMBERS = (
    "node_id",
    "logical_node_id",
    "cu_count",
    "num_xcc",
    "lds_size_in_kb",
    "max_engine_clk_fcompute",
)
_TEXTS = ("name", "product_name", "model_name")


def read_agents(path: Path, maximum_bytes: int) -> list[dict[str, Any]]:
    """Return the rows of an agent_info.csv file. Each row contains `type` (CPU or GPU),
    `logical_node_id` (the number in `Agent 4`), names and sizes.

    Raises ProfileReadError if a row doesn't describe an agent.
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
            f"row {len(agents) + 1} doesn't describe a CPU or GPU"
            f" ({' '.join(str(error).split())[:80]})",
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
"""Columns of the tables in `meta["stats"]`. `percent` (0 to 100) is the share of the total in the
tool's table. `std_ns` is the sample standard deviation. rocprof 1 doesn't write `min_ns`, `max_ns`
and `std_ns`.
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
"""Rounding error in nanoseconds, because rocprof 1 truncates mean durations to integers."""


def read_statistics(
    path: Path,
    header: list[str],
    maximum_bytes: int,
    rank: int | None = None,
    process: int | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a `*_stats.csv` file in file order, with the columns STATISTICS_COLUMNS.
    Also return warnings.

    Raises ProfileReadError if a cell has the wrong type or if the numbers are inconsistent.
    """
    types: dict[str, Any] = {}
    for column in header:
        name = _NAMES.get(column.lower())
        if name:
            types[column] = (
                pa.int64() if name in _WHOLE else pa.float64() if name in _DECIMAL else pa.string()
            )
    csv_file = CsvFile(path, header, maximum_bytes, _with_quoted_names)
    rows = csv_file.frame(types)
    columns: dict[str, Any] = {_NAMES[column.lower()]: rows[column].to_pylist() for column in types}
    if not len(rows) + csv_file.short:
        raise NothingRecordedError(path, *NO_ROWS)
    columns["percent"] = [_decimal(text) for text in columns["percent"]]
    _refuse_contradictions(path, columns, csv_file.short)
    table = (
        pd.DataFrame(columns)
        .assign(rank=rank, process=process)
        .reindex(columns=list(STATISTICS_COLUMNS))
    )
    return table.astype(STATISTICS_COLUMNS), csv_file.warnings + csv_file.open_end()


def _with_quoted_names(text: bytes) -> bytes:
    """Return the text of a table with quotes around all names, because rocprof 1 may omit the
    quotes even if a name contains commas.

    The last four cells of each row are numbers, so the name consists of all cells before them.
    """
    lines = text.split(b"\n")
    for number, line in enumerate(lines[1:], 1):
        name, *figures = line.rsplit(b",", lines[0].count(b","))
        if b"," in name and b'"' not in line:
            lines[number] = b",".join([b'"%b"' % name, *figures])
    return b"\n".join(lines)


def _decimal(text: str | None) -> float:
    """Return a number from the column `percent`. If nothing took time, the tool writes `-nan`,
    which becomes NaN.
    """
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _refuse_contradictions(path: Path, columns: dict[str, list[Any]], short: int) -> None:
    figures = {
        name: np.array(cells, np.float64) for name, cells in columns.items() if name != "name"
    }
    calls, total, mean, percent = (
        figures[name] for name in ("calls", "total_ns", "mean_ns", "percent")
    )
    # Missing numbers are NaN, so all comparisons with them are False.
    with np.errstate(invalid="ignore", divide="ignore"):
        right = (calls >= 1) & (total >= 0) & np.isfinite(mean)
        right &= np.abs(total / calls - mean) <= _ROUNDING_NS + 1e-3 * np.abs(mean)
    right &= ((percent >= 0) & (percent <= 100.01)) | (np.isnan(percent) & (total == 0))
    if "min_ns" in figures:
        right &= (figures["min_ns"] >= 0) & (figures["min_ns"] <= mean + _ROUNDING_NS)
        right &= figures["max_ns"] >= mean - _ROUNDING_NS
        right &= np.isfinite(figures["std_ns"]) & (figures["std_ns"] >= 0)
    wrong = np.flatnonzero(~right)
    if len(wrong) or short:
        first = f" (the first is {str(columns['name'][wrong[0]])[:40]!r})" if len(wrong) else ""
        found = (
            f"{len(wrong) + short} of {len(right) + short} rows have missing or contradictory"
            f" numbers{first}"
        )
        raise ProfileReadError(path, found, *DAMAGED)
