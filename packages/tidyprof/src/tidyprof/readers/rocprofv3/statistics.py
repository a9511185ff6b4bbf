"""Tables of statistics and agents from ROCm's profilers. These tables have few rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import DAMAGED, NO_ROWS, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.csv_files import open_end
from tidyprof.readers.rocprofv3.columns import ColumnTable

_AGENT = {
    "node_id": int,
    "logical_node_id": int,
    "cu_count": int,
    "num_xcc": int,
    "lds_size_in_kb": int,
    "max_engine_clk_fcompute": int,
    "name": str,
    "product_name": str,
    "model_name": str,
}
"""Columns of agent_info.csv that are kept."""


def read_agents(path: Path, maximum_bytes: int) -> list[dict[str, Any]]:
    """Return the rows of an agent_info.csv file. Each row contains `type` (CPU or GPU),
    `logical_node_id` (the number in `Agent 4`), names and sizes.

    Raises ProfileReadError if a row doesn't describe an agent.
    """
    header, *rows = _rows(path, read_bytes(path, maximum_bytes, in_lines))
    agents = []
    try:
        for row in rows:
            cells = {name.lower(): cell for name, cell in zip(header, row, strict=False) if cell}
            stated = {name: kind(cells[name]) for name, kind in _AGENT.items() if name in cells}
            agents.append({"type": cells["agent_type"]} | stated)
    except (KeyError, ValueError) as error:
        finding = f"row {len(agents) + 1} doesn't describe a CPU or GPU ({error})"
        raise ProfileReadError(path, finding, *DAMAGED) from None
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

_ROUNDING_NS = 1.0
"""Rounding error in nanoseconds, because rocprof 1 truncates mean durations to integers."""


def read_statistics(
    path: Path, header: Sequence[str], columns: ColumnTable, maximum_bytes: int
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a `*_stats.csv` file in file order, with the columns STATISTICS_COLUMNS.
    Also return warnings.

    rocprof 1 may omit the quotes around a name with commas. All cells after the name are numbers,
    so the name consists of all cells before them.

    Raises ProfileReadError if a cell has the wrong type or if the numbers are inconsistent.
    """
    text = read_bytes(path, maximum_bytes, in_lines)
    known = [columns.columns.get(column.lower(), ("", "text")) for column in header[1:]]
    found = []
    try:
        for row in _rows(path, text)[1:]:
            cells = zip(known, row[-len(known) :], strict=True)
            figures = {name: _number(kind, cell) for (name, kind), cell in cells if name}
            found.append({"name": ",".join(row[: -len(known)])} | figures)
    except ValueError as error:
        finding = f"row {len(found) + 1} isn't a row of statistics ({error})"
        raise ProfileReadError(path, finding, *DAMAGED) from None
    if not found:
        raise NothingRecordedError(path, *NO_ROWS)
    table = pd.DataFrame(found)
    _refuse_contradictions(path, table)
    return table.reindex(columns=list(STATISTICS_COLUMNS)), open_end(path, text)


def _rows(path: Path, text: bytes) -> list[list[str]]:
    lines = io.StringIO(text.decode("utf-8-sig", "replace"), newline="")
    try:
        return [row for row in csv.reader(lines, strict=True) if row]
    except csv.Error as error:
        raise ProfileReadError(path, f"invalid CSV ({error})", *DAMAGED) from None


def _number(kind: str, text: str) -> float:
    """Return the number in a cell. If nothing took time, the tool writes `-nan` to the column
    `percent`.
    """
    if kind == "value":
        return float(text or "nan")
    if not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"the number {text[:20]!r}... doesn't fit into 64 bits")
    return number


def _refuse_contradictions(path: Path, table: pd.DataFrame) -> None:
    total, mean = table["total_ns"].to_numpy(float), table["mean_ns"].to_numpy(float)
    calls = table["calls"].to_numpy()
    # Comparisons with NaN are False.
    right = (calls >= 1) & (total >= 0)
    right &= np.abs(total / np.maximum(calls, 1) - mean) <= _ROUNDING_NS + 1e-3 * mean
    right &= table["percent"].between(0, 100.01) | (table["percent"].isna() & (total == 0))
    if "min_ns" in table:
        right &= table["min_ns"].between(0, mean + _ROUNDING_NS)
        right &= (table["max_ns"] >= mean - _ROUNDING_NS) & (table["std_ns"] >= 0)
    wrong = np.flatnonzero(~right)
    if len(wrong):
        finding = (
            f"{len(wrong)} of {len(right)} rows have contradictory numbers"
            f" (the first is {table['name'][wrong[0]][:40]!r})"
        )
        raise ProfileReadError(path, finding, *DAMAGED)
