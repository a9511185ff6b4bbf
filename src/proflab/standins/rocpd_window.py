"""The time window of rocpd: `--start` and `--end` in percent of the run or in ns."""

from __future__ import annotations

import argparse
import sqlite3

import pandas as pd

from cifar_train.errors import UserError

_SPAN = """
SELECT MIN(start), MAX("end") FROM (
  SELECT start, "end" FROM kernels
  UNION ALL SELECT start, "end" FROM memory_copies
  UNION ALL SELECT start, "end" FROM regions)"""


def windowed(table: pd.DataFrame, databases: sqlite3.Connection, options: argparse.Namespace) -> pd.DataFrame:
    """The rows of a table with columns start and end that lie in the window, or with --inclusive False touch it."""
    if options.start is None and options.end is None:
        return table
    first, last = databases.execute(_SPAN).fetchone()
    if first is None:
        return table
    begin = _moment(options.start, first, last, first)
    end = _moment(options.end, first, last, last)
    if options.inclusive in ("True", "true", "1"):
        return table[(table["start"] >= begin) & (table["end"] <= end)]
    return table[(table["end"] >= begin) & (table["start"] <= end)]


def _moment(text: str | None, first: int, last: int, default: int) -> float:
    if text is None:
        return default
    try:
        if text.endswith("%"):
            return first + float(text[:-1]) / 100 * (last - first)
        return int(text)
    except ValueError:
        raise UserError(f"a window begins and ends at percent (30%) or ns, not at {text!r}") from None
