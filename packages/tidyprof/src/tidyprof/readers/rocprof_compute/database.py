"""Reader for SQLite files from `rocprof-compute analyze --output-format db`. These files contain
metrics per kernel but no raw counters.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.sqlite import Database, open_database
from tidyprof.readers.rocprof_compute.counter_csv import no_dispatches
from tidyprof.readers.rocprof_compute.recognition import MARKER_TABLE
from tidyprof.readers.rocprof_compute.workload import common_facts, system_facts
from tidyprof.tables.codes import KIND_CODE, Codes, nullable, refined
from tidyprof.tables.contract import COUNTER_DTYPES
from tidyprof.tables.damage import durations, without_damage
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records

METRIC_COLUMNS = COUNTER_DTYPES | {
    "kernel": "category",
    "metric_id": "category",
    "statistic": "category",
}

_LINES_CORRECTED_IN = (3, 7)
_LONG_LINES = ("gfx942", "gfx950")
"""GPUs with cache lines of 128 B. For these GPUs, rooflines from earlier releases assumed cache
lines and requests of 64 B.
"""

_NEEDED = {
    MARKER_TABLE: ("workload_id", "name", "sys_info_extdata", "roofline_bench_extdata"),
    "compute_metadata": ("compute_version", "schema_version"),
    "compute_kernel": ("kernel_uuid", "kernel_name"),
    "compute_dispatch": (
        "kernel_uuid",
        "dispatch_id",
        "gpu_id",
        "start_timestamp",
        "end_timestamp",
    ),
}
_DEFINITIONS = (
    "compute_metric_definition",
    ("metric_uuid", "metric_id", "name", "unit", "sub_table_name"),
)
_KERNEL_VALUES = (
    "compute_kernel_metric_value",
    ("metric_uuid", "kernel_uuid", "value_name", "value"),
)
_WORKLOAD_VALUES = (
    "compute_workload_metric_value",
    ("metric_uuid", "workload_id", "value_name", "value"),
)
_ROOFLINE = (
    "compute_kernel_roofline_data",
    ("kernel_uuid", "total_flops", "l1_cache_data", "l2_cache_data", "hbm_cache_data"),
)


def read_analysis(path: Path, maximum_bytes: int, texts: Codes) -> tuple[Part, pd.DataFrame]:
    """Read the dispatches and metadata from an analysis database, and the tool's metrics for each
    kernel.
    """
    with open_database(path, maximum_bytes) as database:
        for table, columns in _NEEDED.items():
            database.require(table, columns)
        kernels = dict(database.rows("SELECT kernel_uuid, kernel_name FROM compute_kernel"))
        records = _dispatches(database, kernels, texts)
        facts, warnings = _workload(database)
        facts |= _versions(database)
        facts["metric_tables"] = _workload_tables(database)
        facts["kernel_rates"] = _kernel_rates(database, kernels, facts)
        facts = {name: value for name, value in facts.items() if value}
        metrics = _metrics(_kernel_metrics(database, kernels), records, list(texts))
        warnings += database.doubts(
            dict([_DEFINITIONS, _KERNEL_VALUES, _WORKLOAD_VALUES, _ROOFLINE])
        )
        return Part(path, records, facts={"layout": "database"} | facts, warnings=warnings), metrics


def _metrics(metrics: pd.DataFrame, records: Records, texts: list[str]) -> pd.DataFrame:
    """Return the counter table. The time of each metric is the start of the kernel's first
    dispatch.
    """
    events = pd.DataFrame(
        {name: records[name] for name in ("name", "start_ns", "device")}
    ).sort_values("start_ns")
    first = events.drop_duplicates("name")
    first = first.assign(
        name=[texts[code] for code in first["name"]],
        device=nullable(first["device"].to_numpy(copy=True), "Int32"),
    )
    first = first.rename(columns={"name": "kernel", "start_ns": "time_ns"})
    table = metrics.merge(first, on="kernel").astype({"unit": "object", "value": "float64"})
    return table.sort_values("time_ns", kind="stable", ignore_index=True)[
        list(METRIC_COLUMNS)
    ].astype(METRIC_COLUMNS)


def _workload(database: Database) -> tuple[dict[str, Any], list[str]]:
    rows = database.rows(
        "SELECT name, sys_info_extdata, roofline_bench_extdata FROM compute_workload"
    )
    if len(rows) != 1:
        raise _refusal(database, f"the database has {len(rows)} workloads instead of one")
    name, system, ceilings = rows[0]
    sysinfo, warnings = system_facts(
        _document(database, system, "sys_info_extdata"), database.path.name
    )
    measured = _document(database, ceilings, "roofline_bench_extdata")
    measured = {key: value for key, value in measured.items() if _is_number(value) and value > 0}
    return (
        common_facts(sysinfo)
        | {
            "workload": str(name),
            "roofline": [measured] if measured else None,
        },
        warnings,
    )


def _document(database: Database, text: Any, column: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        document = "damaged"
    if document is None or isinstance(document, dict):
        return document or {}
    raise _refusal(database, f"{column} isn't a JSON object")


def _versions(database: Database) -> dict[str, str | None]:
    rows = database.rows("SELECT compute_version, schema_version FROM compute_metadata LIMIT 1")
    names = ("tool_version", "schema_version")
    return {
        name: None if text is None else str(text)
        for row in rows
        for name, text in zip(names, row, strict=True)
    }


def _dispatches(database: Database, kernels: dict[Any, Any], texts: Codes) -> Records:
    columns = database.integers("compute_dispatch", _NEEDED["compute_dispatch"])
    found = [kernels.get(number) for number in columns["kernel_uuid"].tolist()]
    if not found:
        raise no_dispatches(database.path)
    if not all(isinstance(name, str) for name in found):
        raise _refusal(database, "some dispatches belong to kernels without a name")
    records = Records(
        {
            name: columns[column]
            for name, column in (("dispatch_id", "dispatch_id"), ("device", "gpu_id"))
        }
    )
    if pd.DataFrame(records.columns).duplicated().any():
        raise _refusal(database, "some dispatch numbers occur repeatedly")
    records["start_ns"] = columns["start_timestamp"]
    records["duration_ns"] = durations(columns["start_timestamp"], columns["end_timestamp"])
    records["name"] = texts.of(found)
    records["kind"] = refined(
        np.full(len(found), KIND_CODE["kernel"], np.int8), records["name"], texts
    )
    without_damage(database.path, records)
    return records


def _kernel_metrics(database: Database, kernels: dict[Any, Any]) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    if _has(database, _DEFINITIONS, _KERNEL_VALUES):
        rows = database.rows(
            "SELECT kernel_uuid, metric_id, name, unit, value_name, value FROM"
            " compute_kernel_metric_value JOIN compute_metric_definition USING (metric_uuid)"
        )
    kept = [
        (kernels[kernel], *rest)
        for kernel, *rest in rows
        if kernel in kernels and _is_number(rest[-1])
    ]
    return pd.DataFrame(kept, columns=["kernel", "metric_id", "name", "unit", "statistic", "value"])


def _workload_tables(database: Database) -> dict[str, list[dict[str, Any]]]:
    if not _has(database, _DEFINITIONS, _WORKLOAD_VALUES):
        return {}
    rows = database.rows(
        "SELECT metric_id, sub_table_name, name, unit, value_name, value FROM"
        " compute_workload_metric_value JOIN compute_metric_definition USING (metric_uuid)"
    )
    tables: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for metric, table, name, unit, statistic, value in rows:
        number = ".".join(str(metric).split(".")[:2])
        row = tables[f"{number} {table}"].setdefault(str(metric), {"Metric": name, "Unit": unit})
        if _is_number(value):
            row[str(statistic)] = value
    return {table: list(metrics.values()) for table, metrics in tables.items()}


def _kernel_rates(
    database: Database, kernels: dict[Any, Any], facts: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the performance of each kernel. Each entry has the keys `kernel`, `gflops_per_second`,
    `l1_intensity`, `l2_intensity` and `hbm_intensity`. Intensities are in FLOP/B.
    """
    if not _has(database, _ROOFLINE):
        return []
    # The column names say totals, but the values are rates. total_flops equals the FLOP rate of
    # table 4.1. Each other column times its bandwidth in that table gives the same rate, so these
    # columns are in FLOP/B.
    table, columns = _ROOFLINE
    names = ("gflops_per_second", "l1_intensity", "l2_intensity", "hbm_intensity")
    rates = [
        {
            "kernel": kernels[kernel],
            **{n: v for n, v in zip(names, values, strict=True) if _is_number(v)},
        }
        for kernel, *values in database.rows(f"SELECT {', '.join(columns)} FROM {table}")
        if isinstance(kernels.get(kernel), str)
    ]
    release = re.match(r"(\d+)\.(\d+)", facts.get("tool_version") or "")
    is_old = release is None or tuple(map(int, release.groups())) < _LINES_CORRECTED_IN
    if is_old and facts["sysinfo"].get("gpu_arch") in _LONG_LINES:
        for rate in rates:
            # L1 lines have 128 B. The number of 128 B requests to the L2 is unknown.
            rate.pop("l2_intensity", None)
            if "l1_intensity" in rate:
                rate["l1_intensity"] /= 2
    return rates


def _has(database: Database, *tables: tuple[str, tuple[str, ...]]) -> bool:
    """Return True if the database has these tables and columns. Older databases may lack them."""
    return all(set(columns) <= set(database.tables.get(table, ())) for table, columns in tables)


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    )


def _refusal(database: Database, finding: str) -> ProfileReadError:
    return ProfileReadError(
        database.path,
        finding,
        "several analyses were merged, or the file is damaged",
        "pass the .db file from one rocprof-compute analyze run, or the workload folder",
    )
