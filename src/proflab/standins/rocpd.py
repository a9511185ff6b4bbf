"""Stand-in for rocpd: query and summary of rocprofv3's databases; it reads real databases, too."""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from proflab.standins.release import sdk_version
from tidyprof.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

WIDEST_NAME = 60
"""Most characters of a name on the terminal."""

_EVENTS = {
    "kernels": "SELECT name, duration FROM kernels",
    "memory_copies": "SELECT name, duration FROM memory_copies",
    "memory_allocations": "SELECT type AS name, duration FROM memory_allocations",
}
_CALLS = """
SELECT duration,
  CASE WHEN category LIKE 'MARKER%' THEN COALESCE(json_extract(extdata, '$.message'), name)
  ELSE name END AS name
FROM regions WHERE category LIKE '{}%'"""
_CALL_TABLES = {"HIP": "hip", "HSA": "hsa", "RCCL": "rccl", "MARKER": "markers"}


def version(tool: str) -> str:
    """The output of --version."""
    return sdk_version()


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int | None:
    """Query or sum up. Returns 0. Raises UserError for a wrong database and for options that are
    not modelled.
    """
    if options.command is None:
        return None
    if len(options.input) > 1:
        raise UserError("several databases as one are not modelled here; give one")
    print(
        f"{tool}: stand-in, nothing was measured here: it reads {options.input[0]}", file=sys.stderr
    )
    with closing(_opened(options.input[0])) as database:
        (_query if options.command == "query" else _summary)(database, options)
    return 0


def _opened(file: Path) -> sqlite3.Connection:
    """A connection that can't change the file."""
    if not file.is_file():
        raise UserError(f"{file}: no such file; rocprofv3 writes FOLDER/HOST/PID_results.db")
    connection = sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro", uri=True)
    try:
        views = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")
        }
    except sqlite3.DatabaseError as error:
        connection.close()
        raise UserError(f"{file}: {error}; give the _results.db of rocprofv3") from error
    if not {"kernels", "rocpd_metadata"} <= views:
        connection.close()
        raise UserError(
            f"{file} has no view `kernels`, so it is no database of rocprofv3 (an .rpd file has"
            " another layout)"
        )
    return connection


def _query(database: sqlite3.Connection, options: argparse.Namespace) -> None:
    """Run one statement, and show its rows or write them."""
    import pandas as pd

    try:
        if options.script:
            database.executescript(options.script.read_text())
        rows = database.execute(options.query)
        table = pd.DataFrame(
            rows.fetchall(), columns=[column[0] for column in rows.description or ()]
        )
    except sqlite3.Error as error:
        raise UserError(f"SQL: {error}; sqlite3 DB .schema shows tables and views") from error
    except OSError as error:
        raise UserError(f"{options.script}: {error.strerror}") from error
    if table.empty:
        print("Query returned no rows.")
        return
    _show(table, "query", options)


def _summary(database: sqlite3.Connection, options: argparse.Namespace) -> None:
    """Show statistics by name, for each kind of event that occurs, the largest total first."""
    import pandas as pd

    asked = options.region_categories or _CALL_TABLES
    queries = _EVENTS | {
        table: _CALLS.format(name) for name, table in _CALL_TABLES.items() if name in asked
    }
    for name, sql in queries.items():
        times = pd.read_sql_query(sql, database).groupby("name", sort=False)["duration"]
        # A single event has no standard deviation; 0 stands for it.
        table = times.agg(["size", "sum", "mean", "min", "max", "std"]).fillna({"std": 0.0})
        if table.empty:
            continue
        table.insert(3, "percent", 100 * table["sum"] / table["sum"].sum())
        table = table.sort_values(["sum", "size"], ascending=False, kind="stable").reset_index()
        units = [f"{what} (nsec)" for what in ("DURATION", "AVERAGE")]
        table.columns = [
            "Name",
            "Calls",
            *units,
            "PERCENT (INC)",
            "MIN (nsec)",
            "MAX (nsec)",
            "STD_DEV",
        ]
        _show(table, f"{name}_summary", options)


def _show(table: pd.DataFrame, name: str, options: argparse.Namespace) -> None:
    """Print the table, or write it as CSV."""
    from proflab.standins.output_files import put_file

    if options.format == "console":
        # Names of kernels may have hundreds of characters; files have them in full.
        text = table.to_string(index=False, max_colwidth=WIDEST_NAME)
        print(f"\n{name.upper()}:" if name != "query" else "", text, sep="\n")
        return
    if options.format != "csv":
        raise UserError(f"format {options.format} is not modelled here; there are console and csv")
    stem = f"{options.output_file}_{name}" if options.output_file else name
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{stem}.csv"
        table.to_csv(path, index=False)
        print(put_file(path, options.output_path / path.name))
