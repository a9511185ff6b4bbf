"""Tables of statistics and agents from ROCm's profilers. These tables have few rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tidyprof.errors import DAMAGED, NO_ROWS, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.csv_files import open_end
from tidyprof.readers.columns import ColumnTable

AGENT_FACTS: list[Any] = [
    *((name, int | None, None) for name in ("node_id", "logical_node_id", "cu_count", "num_xcc")),
    *((name, int | None, None) for name in ("lds_size_in_kb", "max_engine_clk_fcompute")),
    *((name, str, "") for name in ("name", "product_name", "model_name")),
]
"""Facts about a CPU or GPU that are kept, with their type and the value if they are missing."""

_Agent: Any = msgspec.defstruct("_Agent", [("agent_type", str), *AGENT_FACTS])


def stated_facts(kind: str | None, agent: Any) -> dict[str, Any]:
    """Return the `type` of an agent (CPU or GPU) and its known AGENT_FACTS."""
    facts = {name: getattr(agent, name) for name, *_ in AGENT_FACTS}
    return {name: fact for name, fact in ({"type": kind} | facts).items() if fact not in (None, "")}


def read_agents(path: Path, maximum_bytes: int) -> list[dict[str, Any]]:
    """Return the rows of an agent_info.csv file. Each row contains `type` (CPU or GPU),
    `logical_node_id` (the number in `Agent 4`), names and sizes.

    Raises ProfileReadError if a row doesn't describe an agent.
    """
    header, *rows = _rows(path, read_bytes(path, maximum_bytes, in_lines))
    names = [name.lower() for name in header]
    cells = [dict(zip(names, row, strict=False)) for row in rows]
    try:
        agents = [
            msgspec.convert(
                {name: cell for name, cell in one.items() if cell}, _Agent, strict=False
            )
            for one in cells
        ]
    except msgspec.ValidationError as error:
        raise ProfileReadError(path, f"a row isn't a CPU or GPU ({error})", *DAMAGED) from None
    return [stated_facts(agent.agent_type, agent) for agent in agents]


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
    text, numbers = read_bytes(path, maximum_bytes, in_lines), len(header) - 1
    rows = [[",".join(row[:-numbers]), *row[-numbers:]] for row in _rows(path, text)[1:]]
    if not rows:
        raise NothingRecordedError(path, *NO_ROWS)
    entries = (columns.columns.get(column.lower(), column) for column in header)
    try:
        if any(len(row) != len(header) for row in rows):
            raise ValueError("a row has too few cells")
        table = pd.DataFrame(rows, columns=[entry.split()[0] for entry in entries])
        table = table.reindex(columns=list(STATISTICS_COLUMNS)).astype(STATISTICS_COLUMNS)
    except (ValueError, OverflowError) as error:
        finding = f"a row doesn't have the numbers of a statistic ({error})"
        raise ProfileReadError(path, finding, *DAMAGED) from None
    # Missing values pass each check.
    calls, total, mean = (table[name].to_numpy(float) for name in ("calls", "total_ns", "mean_ns"))
    wrong = (calls < 1) | (total < 0)
    wrong |= np.abs(total / np.maximum(calls, 1) - mean) > _ROUNDING_NS + 1e-3 * mean
    shortest, longest = table[["min_ns", "max_ns"]].to_numpy(float, na_value=np.nan).T
    wrong |= (shortest > mean + _ROUNDING_NS) | (longest < mean - _ROUNDING_NS)
    if wrong.any():
        finding = f"{wrong.sum()} of {len(table)} rows have contradictory numbers"
        raise ProfileReadError(path, finding, *DAMAGED)
    return table, open_end(path, text)


def _rows(path: Path, text: bytes) -> list[list[str]]:
    lines = io.StringIO(text.decode("utf-8-sig", "replace"), newline="")
    try:
        return [row for row in csv.reader(lines, strict=True) if row]
    except csv.Error as error:
        raise ProfileReadError(path, f"invalid CSV ({error})", *DAMAGED) from None
