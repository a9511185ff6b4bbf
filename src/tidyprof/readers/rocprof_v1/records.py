"""Records of the first rocprof as frames with the columns of `rocprofv3.headers`, from its database and its tables.

Tables and columns are those of bin/tblextr.py and bin/sqlitedb.py in https://github.com/ROCm/rocprofiler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import polars as pl

from tidyprof.io.csv_files import CsvFile, mapped, without_cut_rows
from tidyprof.io.sqlite import open_database
from tidyprof.readers.rocprof_v1.recognition import V1File
from tidyprof.tables.codes import ABSENT

if TYPE_CHECKING:
    from tidyprof.io.sqlite import Database

TABLES = ("HIP", "HSA", "rocTX", "OPS", "COPY", "KERN")
"""Tables of the database, each a domain of records."""

_NAMES = {
    "BeginNs": "start",
    "EndNs": "end",
    "pid": "process",
    "tid": "thread",
    "Name": "name",
    "KernelName": "name",
    "Index": "correlation_id",
    "dev-id": "agent",
    "gpu-id": "agent",
    "queue-id": "queue",
    "stream-id": "stream",
    "DispatchNs": "launch",
    "grd": "grid_x",
    "wgr": "block_x",
    "lds": "lds_bytes",
    "scr": "scratch_bytes",
    "vgpr": "vgprs",
    "arch_vgpr": "vgprs",
    "accum_vgpr": "accum_vgprs",
    "sgpr": "sgprs",
}
_NOT_COUNTERS = frozenset({"queue-index", "wave_size", "sig", "obj", "CompleteNs", "DurationNs"})
_BARRIER = "<barrier packet>"


def kind_of_domain(domain: str) -> str | None:
    """Which kind of event the records of a table are, None for barriers, which keep order and run nothing."""
    return {"HIP": "runtime", "HSA": "runtime", "rocTX": "annotation", "COPY": "copy", "OPS": "kernel"}.get(domain)


def database_records(file: V1File, maximum_bytes: int) -> tuple[list[pl.DataFrame], list[str]]:
    """One frame per table that has rows, and warnings. Raises ProfileReadError if the database is damaged."""
    with open_database(file.path, maximum_bytes) as database:
        frames = {name: _table(database, name) for name in TABLES if name in database.tables}
        warnings = database.doubts(dict.fromkeys(TABLES, ("BeginNs", "EndNs")))
    frames = {name: frame for name, frame in frames.items() if frame is not None and len(frame)}
    if "OPS" in frames:
        # With --hip-trace the dispatches are in OPS, with --hsa-trace in KERN: never count them twice.
        frames.pop("KERN", None)
    return list(frames.values()), warnings


def _table(database: Database, table: str) -> pl.DataFrame | None:
    present = database.tables[table]
    if not {"BeginNs", "EndNs"} <= set(present):
        return None
    text = "KernelName" if table == "KERN" else "Name"
    numbers = [column for column in present if column in _NAMES and column != text]
    columns = [pl.Series(_NAMES[name], values) for name, values in database.integers(table, numbers).items()]
    frame = pl.DataFrame(columns).with_columns(pl.when(pl.all() != ABSENT).then(pl.all()))
    frame = frame.with_columns(_texts(database, table, text).alias("name"))
    if table == "HIP" and "args" in present:
        sizes = _texts(database, table, "args").cast(pl.String).str.extract(r"\bsizeBytes\((\d{1,18})\)")
        frame = frame.with_columns(sizes.cast(pl.Int64).alias("bytes"))
    if table == "KERN":
        return _as_domain(frame.rename({"correlation_id": "dispatch_id"}), "OPS")
    return _as_domain(frame, table)


def _texts(database: Database, table: str, column: str) -> pl.Series:
    codes, labels = database.coded_texts(table, column)
    return pl.Series([label.strip('"') for label in labels], dtype=pl.String).gather(codes).cast(pl.Categorical)


def _as_domain(frame: pl.DataFrame, domain: str) -> pl.DataFrame:
    """The frame with its domain; barrier packets, which stand among the kernels, have their own."""
    if domain != "OPS":
        return frame.with_columns(pl.lit(domain).cast(pl.Categorical).alias("category"))
    domains = mapped(frame["name"], lambda name: "BARRIER" if name == _BARRIER else "OPS", pl.Categorical)
    return frame.with_columns(domains.alias("category"))


def counters_of_header(file: V1File) -> list[str]:
    """The columns of a results.csv that are counters."""
    return [column for column in file.header if column and column not in _NAMES and column not in _NOT_COUNTERS]


def kernel_records(file: V1File, maximum_bytes: int) -> tuple[pl.DataFrame, pl.DataFrame | None, int, list[str]]:
    """Dispatches of a results.csv, their counters (a row per dispatch and counter), rows cut short, warnings.

    Raises ProfileReadError if it is damaged.
    """
    counters, named = counters_of_header(file), [column for column in file.header if column]
    types: dict[str, Any] = {}
    for column in file.header:
        if column in counters:
            types[column] = pl.Float64
        elif column in _NAMES:
            types[column] = pl.Categorical if column == "KernelName" else pl.Int64
    # The last cell tells whether a row is complete, so that `None`, for no value, must not become an empty cell.
    types[named[-1]] = pl.String
    csv_file = CsvFile(file.path, list(file.header), maximum_bytes)
    rows = csv_file.frame(types, absent=dict.fromkeys(set(counters) - {named[-1]}, "None"))
    rows, cut = without_cut_rows(file.path, named, rows)
    rows = rows.with_columns(_numbers(pl.col(named[-1]), counters))
    kept = {column: _NAMES.get(column, column) for column in types if column in _NAMES or column in counters}
    rows = rows.select(pl.col(column).alias(name) for column, name in kept.items())
    rows = _as_domain(rows.rename({"correlation_id": "dispatch_id"}), "OPS")
    samples = _long(rows, counters) if counters else None
    return rows.drop(counters), samples, cut, csv_file.warnings + csv_file.open_end()


def _numbers(last: pl.Expr, counters: Iterable[str]) -> pl.Expr:
    """The last column as it would have been read: numbers of a counter, or of a column with a known name."""
    number = last.cast(pl.Float64, strict=False).fill_null(float("nan"))
    if last.meta.output_name() in counters:
        return pl.when(last != "None").then(number).alias(last.meta.output_name())
    return last.cast(pl.Int64, strict=False)


def _long(rows: pl.DataFrame, counters: Iterable[str]) -> pl.DataFrame:
    counters = list(counters)
    kept = [column for column in rows.columns if column not in counters and column != "launch"]
    long = rows.unpivot(on=counters, index=kept, variable_name="counter", value_name="value").drop_nulls("value")
    sizes = {"grid_x": "work_items", "block_x": "workgroup_size"}
    return long.with_columns(pl.col("counter").cast(pl.Categorical)).rename(sizes, strict=False)
