"""`rocpd summary` and `rocpd query`: tables on the terminal or in files."""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from cifar_train.errors import UserError
from proflab.standins.deliver import place
from proflab.standins.rocpd_window import windowed

WIDEST_NAME = 60
"""Characters of a name on the terminal."""

_EVENTS = {
    "kernels": 'SELECT guid, pid, name, duration, start, "end" FROM kernels',
    "memory_copies": 'SELECT guid, pid, name, duration, start, "end" FROM memory_copies',
    "memory_allocations": 'SELECT guid, pid, type AS name, duration, start, "end" FROM memory_allocations',
}
_CALLS = """
SELECT guid, pid, duration, start, "end",
  CASE WHEN category LIKE 'MARKER%' THEN COALESCE(json_extract(extdata, '$.message'), name) ELSE name END AS name
FROM regions WHERE category LIKE ?"""
_CALL_TABLES = {"HIP": "hip", "HSA": "hsa", "RCCL": "rccl", "MARKER": "markers"}
_DOMAINS = {"kernels": "KERNEL_DISPATCH", "memory_copies": "MEMORY_COPY", "memory_allocations": "MEMORY_ALLOCATION"}


def query(databases: sqlite3.Connection, options: argparse.Namespace) -> None:
    """One statement, its rows shown or written. Raises UserError for wrong SQL and for a format without model."""
    try:
        if options.script:
            databases.executescript(options.script.read_text())
        rows = databases.execute(options.query)
        table = pd.DataFrame(rows.fetchall(), columns=[column[0] for column in rows.description or ()])
    except sqlite3.Error as error:
        raise UserError(f"SQL: {error}; sqlite3 DB .schema shows tables and views") from error
    except OSError as error:
        raise UserError(f"{options.script}: {error.strerror}") from error
    if table.empty:
        print("Query returned no rows.")
        return
    _show(table, "query", options)


def summary(databases: sqlite3.Connection, options: argparse.Namespace) -> None:
    """Statistics by name, for each kind of event that occurs."""
    tables = {name: pd.read_sql_query(sql, databases) for name, sql in _EVENTS.items()}
    for category in _categories(options):
        table = pd.read_sql_query(_CALLS, databases, params=(f"{category}%",))
        tables[_CALL_TABLES[category]] = table
    tables = {name: windowed(table, databases, options) for name, table in tables.items()}
    tables = {name: table for name, table in tables.items() if len(table)}
    for name, table in tables.items():
        _show(_statistics(table, ["name"]), f"{name}_summary", options)
        if options.summary_by_rank:
            _show(_by_rank(table, databases), f"{name}_summary_by_rank", options)
    if options.domain_summary and tables:
        parts = [table.assign(name=_DOMAINS.get(name, name.upper())) for name, table in tables.items()]
        _show(_statistics(pd.concat(parts), ["name"]), "domain_summary", options)


def _categories(options: argparse.Namespace) -> list[str]:
    asked = options.region_categories or list(_CALL_TABLES)
    return [name for name in _CALL_TABLES if name in asked]


def _statistics(events: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """rocpd's columns, the largest total first; percent of the total of each process where rows are by process."""
    grouped = events.groupby(by, sort=False)["duration"].agg(["size", "sum", "mean", "min", "max", "std"])
    grouped = grouped.fillna({"std": 0.0}).sort_values(["sum", "size"], ascending=False, kind="stable")
    totals = grouped["sum"].groupby(level=by[:-1]).transform("sum") if len(by) > 1 else grouped["sum"].sum()
    rows = grouped.reset_index()
    return pd.DataFrame(
        {
            "Name": rows["name"],
            "Calls": rows["size"],
            "DURATION (nsec)": rows["sum"],
            "AVERAGE (nsec)": rows["mean"],
            "PERCENT (INC)": (100 * grouped["sum"] / totals).to_numpy(),
            "MIN (nsec)": rows["min"],
            "MAX (nsec)": rows["max"],
            "STD_DEV": rows["std"],
            **{column: rows[column] for column in by[:-1]},
        }
    )


def _by_rank(events: pd.DataFrame, databases: sqlite3.Connection) -> pd.DataFrame:
    hosts = dict(databases.execute("SELECT guid, hostname FROM processes"))
    rows = _statistics(events, ["guid", "pid", "name"])
    front = {"ProcessID": rows["pid"], "Hostname": rows["guid"].map(hosts)}
    return pd.DataFrame(front | {name: rows[name] for name in rows.columns if name not in ("guid", "pid")})


_WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": lambda table, path: table.to_csv(path, index=False),
    "json": lambda table, path: table.to_json(path, orient="records", indent=2),
    "html": lambda table, path: table.to_html(path, index=False),
    "md": lambda table, path: path.write_text(_markdown(table)),
}


def _show(table: pd.DataFrame, name: str, options: argparse.Namespace) -> None:
    if options.format == "console":
        # Names of kernels run to hundreds of characters; files have them in full.
        text = table.to_string(index=False, max_colwidth=WIDEST_NAME)
        print(f"\n{name.upper()}:" if name != "query" else "", text, sep="\n")
        return
    if options.format not in _WRITERS:
        raise UserError(f"format {options.format} is not modelled; there are console, {', '.join(_WRITERS)}")
    stem = f"{options.output_file}_{name}" if options.output_file else name
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{stem}.{options.format}"
        _WRITERS[options.format](table, path)
        print(place(path, options.output_path / path.name))


def _markdown(table: pd.DataFrame) -> str:
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
