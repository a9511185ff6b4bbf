"""Profile tables that rocprof-sys writes with the timemory library, as JSON or text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
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
_LABEL = re.compile(r"(?:(?:\|([0-9]{1,9}))?\|([0-9]{1,9}))?(?:>>> ?)?(?: *\|_)?(.*)", re.DOTALL)
"""Parts of a string such as `|0>>>   |_label`: the rank, if there are two numbers, the thread and
the label.
"""

_HEADER = re.compile(r"\|\s*LABEL\s*\|\s*COUNT\s*\|")
_PROCESS = re.compile(rb'"pid"\s*:\s*\[\s*([0-9]{1,9})')
_NUMBERS = {"SUM": "total", "MEAN": "mean", "MIN": "min", "MAX": "max", "STDDEV": "std"}


class _Entry(msgspec.Struct):
    laps: int
    value: Any = None
    repr_data: Any = None


class _Node(msgspec.Struct):
    prefix: str
    depth: int
    entry: _Entry
    stats: dict[str, Any] = {}


class _Rank(msgspec.Struct):
    graph: list[_Node]


class _Metric(msgspec.Struct):
    ranks: list[_Rank]
    unit_repr: Any = ""
    description: str = ""
    mpi_size: int = 1


class _Document(msgspec.Struct):
    timemory: dict[str, _Metric]


@dataclass(frozen=True)
class Table:
    """The table of one metric in a file.

    - rows: the columns that `read_rocprof_sys` documents, without rank and process. The rows are in
      file order, so every label comes after its caller.
    - process: process number, if the file contains it
    - is_mpi: True if the file comes from one of several ranks
    """

    file: TableFile
    metric: str
    description: str
    rows: pd.DataFrame
    process: int | None = None
    is_mpi: bool = False
    warnings: list[str] = field(default_factory=list)


def read_tables(file: TableFile, maximum_bytes: int) -> list[Table]:
    """Return the tables in one file. Metrics with several numbers per label are left out."""
    if file.format == "json":
        return _from_json(file, read_bytes(file.path, maximum_bytes, in_texts))
    return [_from_text(file, read_bytes(file.path, maximum_bytes, in_lines).decode("latin-1"))]


def _from_json(file: TableFile, data: bytes) -> list[Table]:
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        document = _lax_document(file, data, error)
    process = _PROCESS.search(data)
    tables = []
    for metric, content in document.timemory.items():
        unit = content.unit_repr if isinstance(content.unit_repr, str) else ""
        nodes = [node for rank in content.ranks for node in rank.graph]
        if any(isinstance(node.entry.repr_data, list | dict) for node in nodes):
            continue
        scale = NANOSECONDS.get(unit, 1)
        value = scale * _floats([node.entry.value for node in nodes])
        shown = scale * _floats([node.entry.repr_data for node in nodes])
        # Clocks store whole nanoseconds in `value` and a rounded time in `repr_data`.
        nanoseconds = _floats([node.entry.value for node in nodes])
        is_exact = (unit in NANOSECONDS) & (np.abs(nanoseconds - shown) < 1)
        missing = [node.entry.repr_data is None for node in nodes]
        numbers = {"total": np.where(missing, value, np.where(is_exact, nanoseconds, shown))}
        for name in ("mean", "min", "max", "stddev"):
            stated = _floats([node.stats.get(name) for node in nodes])
            numbers[_NUMBERS[name.upper()]] = scale * stated
        rows = _rows(
            file,
            unit,
            [node.prefix for node in nodes],
            [node.depth for node in nodes],
            [node.entry.laps for node in nodes],
            numbers,
        )
        number = int(process[1]) if process else None
        is_mpi = content.mpi_size > 1
        tables.append(Table(file, metric, content.description, rows, number, is_mpi))
    return tables


def _floats(values: list[Any]) -> np.ndarray:
    """Return numbers as float64, and NaN for other values and for numbers far too large."""
    is_number = [type(value) in (int, float) and abs(value) < 1e200 for value in values]
    known = [value if sound else np.nan for value, sound in zip(values, is_number, strict=True)]
    return np.array(known, np.float64)


def _lax_document(file: TableFile, data: bytes, error: Exception) -> _Document:
    """Parse the document less strictly. timemory writes NaN and infinite numbers, which JSON
    doesn't allow. It also writes names from the binary without decoding them.
    """
    if b"NaN" in data or b"Inf" in data or isinstance(error, UnicodeDecodeError):
        try:
            return msgspec.convert(json.loads(data.decode("utf-8", "replace")), _Document)
        except (ValueError, msgspec.ValidationError) as other:
            error = other
    raise _damaged(file, str(error)) from None


def _from_text(file: TableFile, text: str) -> Table:
    lines = text.splitlines()
    header = next((row for row, line in enumerate(lines[:20]) if _HEADER.match(line)), len(lines))
    if header + 1 >= len(lines):
        raise _damaged(file, "the line with the column names is missing")
    # Labels may contain vertical bars, so the line below the names defines the columns.
    edges = [column for column, character in enumerate(lines[header + 1]) if character == "|"]
    names = [lines[header][start + 1 : end].strip() for start, end in pairwise(edges)]
    body = [line for line in lines[header + 2 :] if not line.startswith("|--")]
    if any(len(line) <= edges[-1] or line[edges[-1]] != "|" for line in body):
        raise _damaged(file, "a line has another length than the first one")
    if not lines[-1].startswith("|--"):
        raise _damaged(file, "the separator line at the end is missing")
    cells = pd.DataFrame(
        [[line[start + 1 : end] for start, end in pairwise(edges)] for line in body], columns=names
    )
    try:
        labels = cells["LABEL"].str[1:].str.rstrip()
        first = cells.iloc[0].str.strip() if len(cells) else {}
        unit = first.get("UNITS", "")
        known = {key: name for key, name in _NUMBERS.items() if key in cells}
        scale = NANOSECONDS.get(unit, 1)
        rows = _rows(
            file,
            unit,
            [label.encode("latin-1").decode("utf-8", "replace") for label in labels],
            [int(depth) for depth in cells["DEPTH"]],
            [int(count) for count in cells["COUNT"]],
            {name: scale * _floats([*map(float, cells[key])]) for key, name in known.items()},
        )
        metric = first.get("METRIC") or file.metric
    except (KeyError, ValueError) as error:
        raise _damaged(file, str(error)) from None
    warnings = []
    if cut := int(labels.str.endswith(_CUT).sum()):
        warnings.append(
            f"{file.path.name}: {cut} of {len(rows)} labels are truncated. All text tables"
            " truncate long labels. Next step: pass the folder with the JSON table, which has"
            " complete labels."
        )
    return Table(file, metric, lines[1].strip("| "), rows, warnings=warnings)


def _damaged(file: TableFile, what: str) -> ProfileReadError:
    return ProfileReadError(
        file.path,
        f"the file isn't a timemory table in {'JSON' if file.format == 'json' else 'text'} format"
        f" ({' '.join(what.split())[:100]})",
        *CUT_SHORT,
    )


def _rows(
    file: TableFile,
    unit: str,
    prefixes: list[str],
    depths: list[int],
    counts: list[int],
    numbers: dict[str, np.ndarray],
) -> pd.DataFrame:
    """Return a table as `read_rocprof_sys` documents it.

    - numbers: times in nanoseconds, or other numbers in the table's unit. Missing numbers are NaN.

    Raises ProfileReadError if a number makes no sense.
    """
    total = numbers["total"]
    for row, (depth, count) in enumerate(zip(depths, counts, strict=True)):
        if not (0 <= depth < 2**31 and 0 <= count < 2**63 and abs(total[row]) < _LATEST_NS):
            raise ProfileReadError(
                file.path,
                f"entry {row + 1} has count {count}, depth {depth} and sum {total[row]}",
                *DAMAGED,
            )
    labels = pd.Series(prefixes, dtype="str").str.extract(_LABEL)
    parent = _parents(depths)
    columns = {
        "thread": pd.to_numeric(labels[1]).astype("Int64"),
        "label": labels[2],
        "depth": pd.array(depths, "Int32"),
        "parent": pd.array(parent, "Int64"),
        "count": pd.array(counts, "Int64"),
    }
    threads = columns["thread"].fillna(-1).tolist()
    own = total.copy()
    for row, caller in enumerate(parent):
        # Callees on another thread run concurrently.
        if caller is not None and threads[row] == threads[caller]:
            own[caller] -= total[row]
    is_time = unit in NANOSECONDS
    for name in ("total", "mean", "min", "max", "std", "self"):
        values = own if name == "self" else numbers.get(name, np.full(len(total), np.nan))
        # Means and standard deviations of whole nanoseconds have fractions.
        if is_time and name not in ("mean", "std"):
            whole = np.where(np.abs(values) < _LATEST_NS, np.rint(values), np.nan)
            columns[f"{name}_ns"] = pd.array(whole, "Int64")
        else:
            columns[f"{name}_ns" if is_time else name] = pd.array(values, "Float64")
    share = np.divide(100 * own, total, out=np.zeros(len(total)), where=total != 0)
    columns["self_percent"] = pd.array(share, "Float64")
    if not is_time:
        columns["unit"] = pd.Categorical([unit or None] * len(parent))
    return pd.DataFrame(columns)


def _parents(depths: list[int]) -> list[int | None]:
    parents: list[int | None] = []
    above: list[int] = []
    for row, depth in enumerate(depths):
        while above and depths[above[-1]] >= depth:
            above.pop()
        parents.append(above[-1] if above else None)
        above.append(row)
    return parents
