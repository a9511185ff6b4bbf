"""Reader for SQLite files from `rocprof-compute analyze --output-format db`. These files contain
metrics per kernel but no raw counters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.sqlite import open_database
from tidyprof.readers.databases import Tables, schema_of
from tidyprof.readers.rocprof_compute.workload import common_facts, system_facts
from tidyprof.tables.codes import KIND_CODE, NO_TEXT, Codes, by_code, nullable, refined
from tidyprof.tables.contract import COUNTER_DTYPES
from tidyprof.tables.damage import REPEATED_ID, without_damage
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records

METRIC_COLUMNS = COUNTER_DTYPES | {
    "kernel": "category",
    "metric_id": "category",
    "statistic": "category",
}

SCHEMA = schema_of("rocprof_compute")


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
        for (version,) in tables.database.rows(
            "SELECT compute_version FROM compute_metadata LIMIT 1"
        ):
            facts["tool_version"] = version and str(version)
        facts = {name: value for name, value in facts.items() if value}
        found = tables.columns("metrics", texts)
        metrics = pd.DataFrame(
            {
                name: by_code(texts, values, None, object) if values.dtype == np.int32 else values
                for name, values in found.items()
            }
        ).rename(columns=lambda name: name.removesuffix("_text"))
        metrics["device"] = nullable(found["device"], "Int32")
        ((values,),) = tables.database.rows(
            "SELECT count(metric_uuid) FROM compute_kernel_metric_value"
        )
        alone = values - len(metrics)
        metrics = metrics[metrics["value"].notna()]
        metrics = metrics.sort_values("time_ns", kind="stable", ignore_index=True)
        warnings += tables.doubts()
    part = Part(path, records, facts={"layout": "database"} | facts, warnings=warnings)
    dropped = {"metric values without a metric or a kernel": alone} if alone else {}
    return part, metrics[list(METRIC_COLUMNS)].astype(METRIC_COLUMNS), dropped


def _workload(tables: Tables) -> tuple[dict[str, Any], list[str]]:
    rows = tables.database.rows(
        "SELECT name, sys_info_extdata, roofline_bench_extdata FROM compute_workload"
    )
    if len(rows) != 1:
        raise _refusal(tables, f"the database has {len(rows)} workloads instead of one")
    name, system, ceilings = rows[0]
    sysinfo, warnings = system_facts(
        _document(tables, system, "sys_info_extdata"), tables.database.path.name
    )
    measured = _document(tables, ceilings, "roofline_bench_extdata")
    measured = {
        name: rate
        for name, rate in measured.items()
        if isinstance(rate, int | float) and 0 < rate < float("inf")
    }
    facts = {"workload": str(name), "roofline": [measured] if measured else None}
    return common_facts(sysinfo) | facts, warnings


def _document(tables: Tables, text: Any, column: str) -> dict[str, Any]:
    try:
        document = json.loads(text or "{}") or {}
    except (TypeError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _refusal(tables, f"{column} isn't a JSON object")
    return document


def _dispatches(tables: Tables, texts: Codes) -> Records:
    records = Records(tables.columns("dispatches", texts))
    if not len(records):
        raise _refusal(tables, "the database contains no kernel dispatches")
    numbers = pd.DataFrame({name: records[name] for name in ("device", "dispatch_id")})
    kind = np.full(len(records), KIND_CODE["kernel"], np.int8)
    records["kind"] = refined(kind, records["name"], texts)
    faults = {
        "without a kernel's name": records["name"] == NO_TEXT,
        REPEATED_ID: numbers.duplicated().to_numpy(),
    }
    without_damage(tables.database.path, records, faults)
    return records


def _refusal(tables: Tables, finding: str) -> ProfileReadError:
    return ProfileReadError(
        tables.database.path,
        finding,
        "several analyses were merged, or the file is damaged",
        "pass the .db file from one rocprof-compute analyze run, or the workload folder",
    )
