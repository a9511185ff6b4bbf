"""Profile tables that rocprof-sys writes with the timemory library, as JSON or text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple

import msgspec
import pandas as pd

from tidyprof.errors import CUT_SHORT, DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import in_lines, in_texts, read_bytes
from tidyprof.readers.rocprof_sys.recognition import TableFile

NANOSECONDS = {"nsec": 1, "usec": 1e3, "msec": 1e6, "sec": 1e9, "min": 6e10, "hr": 3.6e12}
"""Nanoseconds per time unit. The units are spelled as in timemory (source/timemory/units.hpp of
https://github.com/ROCm/timemory).
"""

_CUT = "..."
_LATEST_NS = 2**62
_PREFIX = re.compile(r"(?:\|([0-9]{1,9}))?(?:\|([0-9]{1,9}))?>>> ?")
_BRANCH = re.compile(r" *\|_")
_PROCESS = re.compile(rb'"pid"\s*:\s*\[\s*([0-9]{1,9})')
_TEXT_NUMBERS = {"SUM": "total", "MEAN": "mean", "MIN": "min", "MAX": "max", "STDDEV": "std"}


class _Statistics(msgspec.Struct, rename={"std": "stddev"}):
    mean: Any = None
    min: Any = None
    max: Any = None
    std: Any = None


class _Entry(msgspec.Struct):
    laps: int
    value: Any = None
    repr_data: Any = None


class _Node(msgspec.Struct):
    prefix: str
    depth: int
    entry: _Entry
    stats: _Statistics = msgspec.field(default_factory=_Statistics)


class _Rank(msgspec.Struct):
    rank: int
    graph: list[_Node]


class _Metric(msgspec.Struct):
    ranks: list[_Rank]
    unit_repr: Any = ""
    description: str = ""
    mpi_size: int = 1


class _Document(msgspec.Struct):
    timemory: dict[str, _Metric]


class Row(NamedTuple):
    """One row of a table. Times are in nanoseconds, and other numbers are in the table's unit.
    Missing numbers are None.
    """

    thread: int | None
    label: str
    depth: int
    count: int
    total: float | None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    std: float | None = None


@dataclass(frozen=True)
class Table:
    """The table of one metric in a file.

    - rows: rows in file order, so every label comes after its caller
    - unit: unit of the numbers in the file, or None
    - process: process number, if the file contains it
    - is_mpi: True if the file comes from one of several ranks
    - cut: number of labels that the file truncates
    """

    file: TableFile
    metric: str
    description: str
    unit: str | None
    rows: list[Row]
    process: int | None = None
    is_mpi: bool = False
    cut: int = 0


def read_tables(file: TableFile, maximum_bytes: int) -> list[Table]:
    """Return the tables in one file. Metrics with several numbers per label are left out."""
    data = read_bytes(file.path, maximum_bytes, in_lines if file.format == "text" else in_texts)
    tables = (
        _from_json(file, data)
        if file.format == "json"
        else [_from_text(file, data.decode("latin-1"))]
    )
    for table in tables:
        _refuse_nonsense(table)
    return tables


def _from_json(file: TableFile, data: bytes) -> list[Table]:
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        document = _lax_document(file, data, error)
    process = _PROCESS.search(data)
    tables = []
    for metric, content in document.timemory.items():
        unit = content.unit_repr if isinstance(content.unit_repr, str) else None
        nodes = [node for rank in content.ranks for node in rank.graph]
        if any(isinstance(node.entry.repr_data, list | dict) for node in nodes):
            continue
        tables.append(
            Table(
                file=file,
                metric=metric,
                description=content.description,
                unit=unit or None,
                rows=[_row_of_node(node, unit) for node in nodes],
                process=int(process[1]) if process else None,
                is_mpi=content.mpi_size > 1,
            )
        )
    return tables


def _lax_document(file: TableFile, data: bytes, error: Exception) -> _Document:
    """Parse the document less strictly. timemory writes NaN and infinite numbers, which JSON
    doesn't allow. It also writes names from the binary without decoding them.
    """
    if b"NaN" in data or b"Inf" in data or isinstance(error, UnicodeDecodeError):
        try:
            return msgspec.convert(json.loads(data.decode("utf-8", "replace")), _Document)
        except (ValueError, RecursionError, msgspec.ValidationError) as other:
            error = other
    raise _damaged(file, str(error)) from None


def _row_of_node(node: _Node, unit: str | None) -> Row:
    entry = node.entry
    total = _number(entry.value if entry.repr_data is None else entry.repr_data, unit)
    # Clocks store whole nanoseconds in `value` and a rounded time in `repr_data`.
    if (
        unit in NANOSECONDS
        and isinstance(entry.value, int)
        and total is not None
        and abs(entry.value - total) < 1
    ):
        total = entry.value
    statistics = (_number(value, unit) for value in msgspec.structs.astuple(node.stats))
    return Row(*_taken_apart(node.prefix), node.depth, entry.laps, total, *statistics)


def _number(value: Any, unit: str | None) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return value * NANOSECONDS.get(unit or "", 1)


def _taken_apart(prefix: str) -> tuple[int | None, str]:
    """Return the thread and the label from a string such as `|0>>>   |_label`. If the string starts
    with two numbers, the first one is the rank.
    """
    found = _PREFIX.match(prefix)
    thread = (found[2] or found[1]) if found else None
    label = prefix[found.end() :] if found else prefix
    branch = _BRANCH.match(label)
    return (None if thread is None else int(thread)), label[branch.end() :] if branch else label


def _from_text(file: TableFile, text: str) -> Table:
    lines = text.splitlines()
    header = next(
        (number for number, line in enumerate(lines[:20]) if "LABEL" in line and "COUNT" in line),
        None,
    )
    if header is None or header + 1 >= len(lines):
        raise _damaged(file, "the line with the column names is missing")
    # Labels may contain vertical bars, so the line below the names defines the columns.
    edges = [column for column, character in enumerate(lines[header + 1]) if character == "|"]
    names = [lines[header][start + 1 : end].strip() for start, end in pairwise(edges)]
    if not {"LABEL", "COUNT", "DEPTH", "METRIC", "SUM"} <= set(names):
        raise _damaged(file, f"unexpected columns {', '.join(names)[:80]!r}")
    rows, cut = [], 0
    body = [line for line in lines[header + 2 :] if not line.startswith("|--")]
    cells: dict[str, str] = {}
    for number, line in enumerate(body, 1):
        if len(line) <= edges[-1] or line[edges[-1]] != "|":
            raise _damaged(file, f"line {header + 2 + number} is {len(line)} characters long")
        cells = {
            name: line[start + 1 : end]
            for name, (start, end) in zip(names, pairwise(edges), strict=True)
        }
        label = cells["LABEL"][1:].rstrip().encode("latin-1").decode("utf-8", "replace")
        cut += label.endswith(_CUT)
        rows.append(_row_of_cells(file, cells, label))
    if not lines[-1].startswith("|--"):
        raise _damaged(file, "the separator line at the end is missing")
    unit = cells.get("UNITS", "").strip() or None
    metric = cells.get("METRIC", "").strip() or file.metric
    return Table(file, metric, lines[1].strip("| "), unit, rows, cut=cut)


def _row_of_cells(file: TableFile, cells: dict[str, str], label: str) -> Row:
    unit = cells.get("UNITS", "").strip()
    try:
        depth, count = int(cells["DEPTH"]), int(cells["COUNT"])
        numbers = {
            name: _number(float(cells[column]), unit)
            for column, name in _TEXT_NUMBERS.items()
            if column in cells
        }
    except ValueError as error:
        raise _damaged(file, str(error)) from None
    return Row(*_taken_apart(label), depth, count, **numbers)


def _damaged(file: TableFile, what: str) -> ProfileReadError:
    return ProfileReadError(
        file.path,
        f"the file isn't a timemory table in {'JSON' if file.format == 'json' else 'text'} format"
        f" ({' '.join(what.split())[:100]})",
        *CUT_SHORT,
    )


def _refuse_nonsense(table: Table) -> None:
    for number, row in enumerate(table.rows, 1):
        total = row.total
        if (
            not 0 <= row.depth < 2**31
            or not 0 <= row.count < 2**63
            or total is None
            or abs(total) >= _LATEST_NS
        ):
            raise ProfileReadError(
                table.file.path,
                f"entry {number} of {table.metric} has count {row.count}, depth {row.depth} and"
                f" sum {total}",
                *DAMAGED,
            )


def frame(table: Table) -> pd.DataFrame:
    """Return the table that `read_rocprof_sys` documents, without the columns rank and process."""
    is_time = table.unit in NANOSECONDS
    of_rows = {name: [getattr(row, name) for row in table.rows] for name in Row._fields}
    parent = _parents(of_rows["depth"])
    numbers = {name: of_rows[name] for name in ("total", "mean", "min", "max", "std")}
    numbers["self"] = _self(numbers["total"], parent, of_rows["thread"])
    columns: dict[str, Any] = {
        "thread": pd.array(of_rows["thread"], "Int64"),
        "label": pd.array(of_rows["label"], "str"),
        "depth": pd.array(of_rows["depth"], "Int32"),
        "parent": pd.array(parent, "Int64"),
        "count": pd.array(of_rows["count"], "Int64"),
    }
    # Means and standard deviations of whole nanoseconds have fractions.
    for name, values in numbers.items():
        if is_time and name not in ("mean", "std"):
            whole = [
                None if value is None or abs(value) >= _LATEST_NS else round(value)
                for value in values
            ]
            columns[f"{name}_ns"] = pd.array(whole, "Int64")
        else:
            columns[f"{name}_ns" if is_time else name] = pd.array(values, "Float64")
    shares = [
        100 * alone / total if total else 0.0
        for alone, total in zip(numbers["self"], numbers["total"], strict=True)
    ]
    columns["self_percent"] = pd.array(shares, "Float64")
    if not is_time:
        columns["unit"] = pd.Categorical([table.unit] * len(parent))
    return pd.DataFrame(columns)


def _parents(depths: list[int]) -> list[int | None]:
    parents: list[int | None] = []
    above: list[tuple[int, int]] = []
    for row, depth in enumerate(depths):
        while above and above[-1][0] >= depth:
            above.pop()
        parents.append(above[-1][1] if above else None)
        above.append((depth, row))
    return parents


def _self(
    totals: list[float | None], parents: list[int | None], threads: list[int | None]
) -> list[float]:
    """Return each row's total minus the totals of its direct callees. Totals of callees on another
    thread aren't subtracted, because these callees run concurrently.
    """
    alone = [total or 0 for total in totals]
    for row, parent in enumerate(parents):
        if parent is not None and threads[row] == threads[parent]:
            alone[parent] -= totals[row] or 0
    return alone
