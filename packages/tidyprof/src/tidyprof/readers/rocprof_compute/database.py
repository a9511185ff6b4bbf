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
from tidyprof.io.sqlite import open_database
from tidyprof.readers.databases import Schema, Tables
from tidyprof.readers.rocprof_compute.workload import common_facts, system_facts
from tidyprof.tables.codes import KIND_CODE, NO_TEXT, Codes, by_code, nullable, refined
from tidyprof.tables.contract import COUNTER_DTYPES
from tidyprof.tables.damage import without_damage
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

_NUMBER_OF_VALUES = """
SELECT count(*) FROM compute_kernel_metric_value
UNION ALL SELECT count(*) FROM compute_workload_metric_value
WHERE metric_uuid NOT IN (SELECT metric_uuid FROM compute_metric_definition)
"""
"""The query for the numbers of metric values of kernels, and of dangling values of the workload."""

SCHEMA = Schema(__package__)


def read_analysis(
    path: Path, maximum_bytes: int, texts: Codes
) -> tuple[Part, pd.DataFrame, dict[str, int]]:
    """Read the dispatches and metadata from an analysis database, and the tool's metrics for each
    kernel. Also return the number of values that were left out, for each reason.
    """
    with open_database(path, maximum_bytes) as database:
        tables = Tables(database, SCHEMA)
        tables.require()
        records = _dispatches(tables, texts)
        facts, warnings = _workload(tables)
        facts |= _versions(tables)
        facts["metric_tables"] = _workload_tables(tables)
        facts["kernel_rates"] = _kernel_rates(tables, facts)
        facts = {name: value for name, value in facts.items() if value}
        found = tables.columns("metrics", texts)
        metrics = pd.DataFrame(
            {
                name: by_code(texts, values, None, object) if values.dtype == np.int32 else values
                for name, values in found.items()
            }
        ).rename(columns=lambda name: name.removesuffix("_text"))
        metrics["device"] = nullable(found["device"], "Int32")
        values = sum(number for (number,) in tables.rows(_NUMBER_OF_VALUES))
        alone = values - len(metrics)
        metrics = metrics[metrics["value"].notna()]
        metrics = metrics.sort_values("time_ns", kind="stable", ignore_index=True)
        warnings += tables.doubts()
    part = Part(path, records, facts={"layout": "database"} | facts, warnings=warnings)
    dropped = {"metric values without a metric or a kernel": alone} if alone else {}
    return part, metrics[list(METRIC_COLUMNS)].astype(METRIC_COLUMNS), dropped


def _workload(tables: Tables) -> tuple[dict[str, Any], list[str]]:
    rows = tables.rows(
        "SELECT name, sys_info_extdata, roofline_bench_extdata FROM compute_workload"
    )
    if len(rows) != 1:
        raise _refusal(tables, f"the database has {len(rows)} workloads instead of one")
    name, system, ceilings = rows[0]
    sysinfo, warnings = system_facts(
        _document(tables, system, "sys_info_extdata"), tables.database.path.name
    )
    measured = _document(tables, ceilings, "roofline_bench_extdata")
    measured = {key: value for key, value in measured.items() if _is_number(value) and value > 0}
    return (
        common_facts(sysinfo)
        | {
            "workload": str(name),
            "roofline": [measured] if measured else None,
        },
        warnings,
    )


def _document(tables: Tables, text: Any, column: str) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        document = "damaged"
    if document is None or isinstance(document, dict):
        return document or {}
    raise _refusal(tables, f"{column} isn't a JSON object")


def _versions(tables: Tables) -> dict[str, str | None]:
    rows = tables.rows("SELECT compute_version, schema_version FROM compute_metadata LIMIT 1")
    names = ("tool_version", "schema_version")
    return {
        name: None if text is None else str(text)
        for row in rows
        for name, text in zip(names, row, strict=True)
    }


def _dispatches(tables: Tables, texts: Codes) -> Records:
    records = Records(tables.columns("dispatches", texts))
    if not len(records):
        raise _refusal(tables, "the database contains no kernel dispatches")
    if (records["name"] == NO_TEXT).any():
        raise _refusal(tables, "some dispatches belong to kernels without a name")
    if pd.DataFrame({name: records[name] for name in ("device", "dispatch_id")}).duplicated().any():
        raise _refusal(tables, "some dispatch numbers occur repeatedly")
    kind = np.full(len(records), KIND_CODE["kernel"], np.int8)
    records["kind"] = refined(kind, records["name"], texts)
    without_damage(tables.database.path, records)
    return records


def _workload_tables(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    rows = tables.rows(
        "SELECT metric_id, sub_table_name, name, unit, value_name, value FROM"
        " compute_workload_metric_value JOIN compute_metric_definition USING (metric_uuid)"
    )
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for metric, table, name, unit, statistic, value in rows:
        number = ".".join(str(metric).split(".")[:2])
        row = found[f"{number} {table}"].setdefault(str(metric), {"Metric": name, "Unit": unit})
        if _is_number(value):
            row[str(statistic)] = value
    return {table: list(metrics.values()) for table, metrics in found.items()}


def _kernel_rates(tables: Tables, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the performance of each kernel. Each entry has the keys `kernel`, `gflops_per_second`,
    `l1_intensity`, `l2_intensity` and `hbm_intensity`. Intensities are in FLOP/B.
    """
    # The column names say totals, but the values are rates. total_flops equals the FLOP rate of
    # table 4.1. Each other column times its bandwidth in that table gives the same rate, so these
    # columns are in FLOP/B.
    names = ("gflops_per_second", "l1_intensity", "l2_intensity", "hbm_intensity")
    rates = [
        {"kernel": kernel, **{n: v for n, v in zip(names, values, strict=True) if _is_number(v)}}
        for kernel, *values in tables.rows(
            "SELECT kernel_name, total_flops, l1_cache_data, l2_cache_data, hbm_cache_data FROM"
            " compute_kernel_roofline_data JOIN compute_kernel USING (kernel_uuid)"
        )
        if isinstance(kernel, str)
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


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    )


def _refusal(tables: Tables, finding: str) -> ProfileReadError:
    return ProfileReadError(
        tables.database.path,
        finding,
        "several analyses were merged, or the file is damaged",
        "pass the .db file from one rocprof-compute analyze run, or the workload folder",
    )
