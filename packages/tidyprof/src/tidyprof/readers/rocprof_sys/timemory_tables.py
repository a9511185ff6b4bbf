"""Profile tables that rocprof-sys writes in JSON with the timemory library."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from tidyprof.errors import CUT_SHORT, DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import read_bytes

NANOSECONDS = {"nsec": 1, "usec": 1e3, "msec": 1e6, "sec": 1e9, "min": 6e10, "hr": 3.6e12}
"""Nanoseconds per time unit. The units are spelled as in timemory (source/timemory/units.hpp of
https://github.com/ROCm/timemory).
"""

_LATEST_NS = 2**62
_LABEL = re.compile(r"(?:(?:\|[0-9]{1,9})?\|([0-9]{1,9}))?(?:>>> ?)?(?: *\|_)?(.*)", re.DOTALL)
"""The thread and the label in a string such as `|0>>>   |_label`. If there are two numbers, the
first one is the rank.
"""

_PROCESS = re.compile(rb'"pid"\s*:\s*\[\s*([0-9]{1,9})')
_STATISTICS = {"mean": "mean", "min": "min", "max": "max", "stddev": "std"}


class _Entry(msgspec.Struct):
    laps: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    value: Any = None
    repr_data: Any = None


class _Node(msgspec.Struct):
    prefix: str
    depth: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    entry: _Entry
    stats: dict[str, Any] = {}


class _Rank(msgspec.Struct):
    graph: list[_Node]


class _Metric(msgspec.Struct):
    ranks: list[_Rank]
    unit_repr: Any = ""


class _Document(msgspec.Struct):
    timemory: dict[str, _Metric]


@dataclass(frozen=True)
class Table:
    """The table of one metric in a file.

    - rows: the columns that `read_rocprof_sys` documents, without rank and process. The rows are in
      file order, so every label comes after its caller.
    - process: process number, if the file contains it
    """

    metric: str
    rows: pd.DataFrame
    process: int | None


def read_tables(path: Path, maximum_bytes: int) -> list[Table]:
    """Return the tables in one file. Metrics with several numbers per label are left out."""
    data = read_bytes(path, maximum_bytes)
    try:
        # msgspec can't parse the file, because timemory writes NaN and infinite numbers. timemory
        # also writes names from the binary without decoding them.
        document = msgspec.convert(json.loads(data.decode("utf-8", "replace")), _Document)
    except (ValueError, msgspec.ValidationError) as error:
        found = f"the file isn't a timemory table in JSON ({' '.join(str(error).split())[:100]})"
        raise ProfileReadError(path, found, *CUT_SHORT) from None
    process = _PROCESS.search(data)
    tables = []
    for metric, content in document.timemory.items():
        nodes = [node for rank in content.ranks for node in rank.graph]
        if not any(isinstance(node.entry.repr_data, list | dict) for node in nodes):
            rows = _rows(path, str(content.unit_repr or ""), nodes)
            tables.append(Table(metric, rows, int(process[1]) if process else None))
    return tables


def _rows(path: Path, unit: str, nodes: list[_Node]) -> pd.DataFrame:
    """Return a table as `read_rocprof_sys` documents it. Raises ProfileReadError if a total makes
    no sense.
    """
    is_time = unit in NANOSECONDS
    scale = NANOSECONDS.get(unit, 1)
    exact = _floats([node.entry.value for node in nodes])
    shown = scale * _floats([node.entry.repr_data for node in nodes])
    total = np.where(np.isnan(shown), scale * exact, shown)
    # Clocks store whole nanoseconds in `value` and a rounded time in `repr_data`.
    total = np.where(is_time & (np.abs(exact - shown) < 1), exact, total)
    if not (np.abs(total) < _LATEST_NS).all():
        raise ProfileReadError(path, "the total of a label isn't a possible number", *DAMAGED)
    numbers = {"total": total}
    for key, name in _STATISTICS.items():
        numbers[name] = scale * _floats([node.stats.get(key) for node in nodes])
    labels = pd.Series([node.prefix for node in nodes], dtype="str").str.extract(_LABEL)
    threads = pd.to_numeric(labels[0]).astype("Int64")
    depths = [node.depth for node in nodes]
    parent = _parents(depths)
    numbers["self"] = total.copy()
    thread_of = threads.fillna(-1).tolist()
    for row, caller in enumerate(parent):
        # Callees on another thread run concurrently.
        if caller is not None and thread_of[row] == thread_of[caller]:
            numbers["self"][caller] -= total[row]
    columns = {
        "thread": threads,
        "label": labels[1],
        "depth": pd.array(depths, "Int32"),
        "parent": pd.array(parent, "Int64"),
        "count": pd.array([node.entry.laps for node in nodes], "Int64"),
    }
    for name, values in numbers.items():
        # Means and standard deviations of whole nanoseconds have fractions.
        if is_time and name not in ("mean", "std"):
            whole = np.where(np.abs(values) < _LATEST_NS, np.rint(values), np.nan)
            columns[f"{name}_ns"] = pd.array(whole, "Int64")
        else:
            columns[f"{name}_ns" if is_time else name] = pd.array(values, "Float64")
    share = np.divide(100 * numbers["self"], total, out=np.zeros(len(total)), where=total != 0)
    columns["self_percent"] = pd.array(share, "Float64")
    if not is_time:
        columns["unit"] = pd.Categorical([unit or None] * len(nodes))
    return pd.DataFrame(columns)


def _floats(values: list[Any]) -> np.ndarray:
    """Return numbers as float64, and NaN for other values and for numbers far too large."""
    return np.array(
        [
            value if type(value) in (int, float) and abs(value) < 1e200 else np.nan
            for value in values
        ],
        np.float64,
    )


def _parents(depths: list[int]) -> list[int | None]:
    parents: list[int | None] = []
    above: list[int] = []
    for row, depth in enumerate(depths):
        while above and depths[above[-1]] >= depth:
            above.pop()
        parents.append(above[-1] if above else None)
        above.append(row)
    return parents
