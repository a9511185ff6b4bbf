"""The SQLite file that `rocprof-compute analyze --output-format db` writes: metrics per kernel, no raw counters."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES
from tidyprof.io.errors import ProfileReadError
from tidyprof.io.sqlite import Database, open_database
from tidyprof.io.text_cells import LARGEST_WHOLE
from tidyprof.readers.rocprof_compute.dispatches import damaged_times, no_dispatches, refuse_lost
from tidyprof.readers.rocprof_compute.recognition import MARKER_TABLE
from tidyprof.readers.rocprof_compute.workload import system_facts

_NEEDED = {
    MARKER_TABLE: ("workload_id", "name", "sys_info_extdata", "roofline_bench_extdata"),
    "compute_metadata": ("compute_version", "schema_version"),
    "compute_kernel": ("kernel_uuid", "kernel_name"),
    "compute_dispatch": ("kernel_uuid", "dispatch_id", "gpu_id", "start_timestamp", "end_timestamp"),
}
_DEFINITIONS = ("compute_metric_definition", ("metric_uuid", "metric_id", "name", "unit", "sub_table_name"))
_KERNEL_VALUES = ("compute_kernel_metric_value", ("metric_uuid", "kernel_uuid", "value_name", "value"))
_WORKLOAD_VALUES = ("compute_workload_metric_value", ("metric_uuid", "workload_id", "value_name", "value"))
_ROOFLINE = (
    "compute_kernel_roofline_data",
    ("kernel_uuid", "total_flops", "l1_cache_data", "l2_cache_data", "hbm_cache_data"),
)


@dataclass
class Analysis:
    """What an analysis database holds of its one workload.

    events   -- dispatches: `dispatch_id`, `device`, `name`, `start_ns`, `duration_ns`, in order of time.
    metrics  -- one row per kernel and figure: `kernel`, `metric_id`, `name`, `unit`, `statistic`, `value`.
    tables   -- figures of the whole workload, as `_compute_workload.read_metric_tables` gives them.
    ceilings -- as in roofline.csv; roofline -- one entry per kernel: `kernel`, `gflops_per_second`, `l1_intensity`,
                `l2_intensity`, `hbm_intensity` (FLOP/B).
    """

    workload: str
    sysinfo: dict[str, Any]
    ceilings: dict[str, float]
    tool_version: str | None
    schema_version: str | None
    events: pd.DataFrame
    metrics: pd.DataFrame
    tables: dict[str, list[dict[str, Any]]]
    roofline: list[dict[str, Any]]
    dropped: Counter[str]
    warnings: list[str] = field(default_factory=list)


def read_analysis(path: Path, maximum_bytes: int = MAXIMUM_HELD_BYTES) -> Analysis:
    """The analysis database at `path`. Raises ProfileReadError if it is none, or damaged."""
    with open_database(path, maximum_bytes) as database:
        for table, columns in _NEEDED.items():
            database.require(table, columns)
        database.check(database.tables)
        kernels = dict(database.rows("SELECT kernel_uuid, kernel_name FROM compute_kernel"))
        events, dropped = _dispatches(database, kernels)
        version, schema = _versions(database)
        workload, sysinfo, ceilings, warnings = _workload(database)
        return Analysis(
            workload=workload,
            sysinfo=sysinfo,
            ceilings=ceilings,
            tool_version=version,
            schema_version=schema,
            events=events,
            metrics=_kernel_metrics(database, kernels),
            tables=_workload_tables(database),
            roofline=_roofline(database, kernels),
            dropped=dropped,
            warnings=warnings,
        )


def _workload(database: Database) -> tuple[str, dict[str, Any], dict[str, float], list[str]]:
    rows = database.rows("SELECT name, sys_info_extdata, roofline_bench_extdata FROM compute_workload")
    if len(rows) != 1:
        raise _refusal(database, f"{len(rows)} workloads instead of one")
    name, system, ceilings = rows[0]
    facts, warnings = system_facts(_document(database, system, "sys_info_extdata"), database.path.name)
    measured = _document(database, ceilings, "roofline_bench_extdata")
    return (
        str(name),
        facts,
        {key: value for key, value in measured.items() if _is_number(value) and value > 0},
        warnings,
    )


def _document(database: Database, text: Any, column: str) -> dict[str, Any]:
    """The JSON object in a column, empty where there is none."""
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        document = "damaged"
    if document is None or isinstance(document, dict):
        return document or {}
    raise _refusal(database, f"{column} is no JSON object")


def _versions(database: Database) -> tuple[str | None, str | None]:
    rows = database.rows("SELECT compute_version, schema_version FROM compute_metadata LIMIT 1")
    return tuple(None if text is None else str(text) for text in rows[0]) if rows else (None, None)


def _dispatches(database: Database, kernels: dict[Any, Any]) -> tuple[pd.DataFrame, Counter[str]]:
    rows = database.rows(
        "SELECT dispatch_id, gpu_id, kernel_uuid, start_timestamp, end_timestamp FROM compute_dispatch"
    )
    if not rows:
        raise no_dispatches(database.path)
    if not all(isinstance(kernels.get(row[2]), str) for row in rows):
        raise _refusal(database, "dispatches of kernels that it does not name")
    if not all(_is_whole(value) for row in rows for value in row):
        raise _refusal(database, "dispatches whose numbers or times are none")
    frame = pd.DataFrame(rows, columns=["dispatch_id", "device", "kernel", "start", "end"]).astype("Int64")
    if frame.duplicated(["device", "dispatch_id"]).any():
        raise _refusal(database, "dispatch numbers more than once")
    known = frame[["start", "end"]].notna().all(axis=1).to_numpy()
    start, end = (frame[name].fillna(0).to_numpy(np.int64) for name in ("start", "end"))
    damaged, dropped = damaged_times(start, end - start, known)
    refuse_lost(database.path, "dispatches", dropped, len(frame))
    frame["name"] = [kernels[kernel] for kernel in frame["kernel"]]
    frame = frame.assign(start_ns=start, duration_ns=end - start)[~damaged].drop(columns=["kernel", "start", "end"])
    return frame.sort_values("start_ns", ignore_index=True), dropped


def _kernel_metrics(database: Database, kernels: dict[Any, Any]) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    if _has(database, _DEFINITIONS, _KERNEL_VALUES):
        rows = database.rows(
            "SELECT kernel_uuid, metric_id, name, unit, value_name, value FROM compute_kernel_metric_value "
            "JOIN compute_metric_definition USING (metric_uuid)"
        )
    kept = [(kernels[kernel], *rest) for kernel, *rest in rows if kernel in kernels and _is_number(rest[-1])]
    return pd.DataFrame(kept, columns=["kernel", "metric_id", "name", "unit", "statistic", "value"])


def _workload_tables(database: Database) -> dict[str, list[dict[str, Any]]]:
    if not _has(database, _DEFINITIONS, _WORKLOAD_VALUES):
        return {}
    rows = database.rows(
        "SELECT metric_id, sub_table_name, name, unit, value_name, value FROM compute_workload_metric_value "
        "JOIN compute_metric_definition USING (metric_uuid)"
    )
    tables: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for metric, table, name, unit, statistic, value in rows:
        number = ".".join(str(metric).split(".")[:2])
        row = tables[f"{number} {table}"].setdefault(str(metric), {"Metric": name, "Unit": unit})
        if _is_number(value):
            row[str(statistic)] = value
    return {table: list(metrics.values()) for table, metrics in tables.items()}


def _roofline(database: Database, kernels: dict[Any, Any]) -> list[dict[str, Any]]:
    if not _has(database, _ROOFLINE):
        return []
    # The columns are called after totals but hold rates: total_flops equals the FLOP rate of table 4.1, and each of
    # the others times its bandwidth of that table equals it too, so they are FLOP/B.
    table, columns = _ROOFLINE
    names = ("gflops_per_second", "l1_intensity", "l2_intensity", "hbm_intensity")
    return [
        {"kernel": kernels[kernel], **{n: v for n, v in zip(names, values, strict=True) if _is_number(v)}}
        for kernel, *values in database.rows(f"SELECT {', '.join(columns)} FROM {table}")
        if isinstance(kernels.get(kernel), str)
    ]


def _has(database: Database, *tables: tuple[str, tuple[str, ...]]) -> bool:
    """Whether these tables are there with these columns: older databases lack some."""
    return all(set(columns) <= set(database.tables.get(table, ())) for table, columns in tables)


def _is_whole(value: Any) -> bool:
    return value is None or (isinstance(value, int) and abs(value) < LARGEST_WHOLE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _refusal(database: Database, found: str) -> ProfileReadError:
    return ProfileReadError(
        database.path,
        found,
        "several analyses were put together, or the file is damaged",
        "pass the .db file of one rocprof-compute analyze run, or the workload folder",
    )
