"""What an rpd file says about itself, and what to be wary of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.errors import ProfileReadError
from tidyprof.io.sqlite import Database
from tidyprof.io.text_cells import whole_number
from tidyprof.tables.kinds import KIND_CODE
from tidyprof.tables.origin import MARK, stated_origin
from tidyprof.tables.records import Records

SCHEMA_VERSIONS = ("2", "3")
"""Versions of the schema that this reader knows: those of 2024 and of 2026."""

REQUIRED_TABLES = {
    "rocpd_op": ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    "rocpd_api": ("id", "pid", "tid", "start", "end", "apiName_id", "args_id"),
    "rocpd_api_ops": ("api_id", "op_id"),
    "rocpd_string": ("id", "string"),
}
"""Tables and columns without which nothing can be read."""

_ACTIVE_LOCK = "resourceLock::"


def read_facts(database: Database) -> dict[str, Any]:
    """Entries of `Profile.meta` from rocpd_metadata; raises ProfileReadError if the schema is not rpd's."""
    tables = database.tables
    if any(name.startswith("rocpd_kernel_dispatch") for name in tables):
        raise ProfileReadError(
            database.path,
            "a rocpd database of ROCm 7, not a file of rocmProfileData",
            "both tools use the name rocpd",
            "read it with read_rocpd",
        )
    database.require("rocpd_metadata", ("tag", "value"))
    stated = dict(database.rows("SELECT tag, value FROM rocpd_metadata"))
    version = str(stated.get("schema_version", ""))
    if version not in SCHEMA_VERSIONS:
        raise ProfileReadError(
            database.path,
            f"schema version {version!r}" if version else "no schema version in rocpd_metadata",
            "a version of rocmProfileData that is older or newer than this reader",
            f"use a version that writes schema {' or '.join(SCHEMA_VERSIONS)}",
        )
    for table, columns in REQUIRED_TABLES.items():
        database.require(table, columns)
    facts: dict[str, Any] = {
        "tool": "rocmProfileData",
        "tool_version": f"schema version {version}",
        "schema_version": int(version),
        "clock": "monotonic clock of the node",
    }
    if origin := stated_origin(stated.get(MARK)):
        facts["origin"] = origin
    for tag, key in (("session_count", "sessions"), ("gpu_stride", "node_stride")):
        text = str(stated.get(tag, ""))
        if text.isdecimal() and (number := whole_number(text)) is not None:
            facts[key] = number
    facts["unfinished"] = sorted(
        tag.removeprefix(_ACTIVE_LOCK)
        for tag, value in stated.items()
        if str(tag).startswith(_ACTIVE_LOCK) and str(value) != "0"
    )
    return facts


def refuse_empty(path: Path, operations: Records, calls: Records) -> None:
    """Refuse a file in which nothing was recorded."""
    if not operations.total and not calls.total:
        raise ProfileReadError(
            path,
            "no GPU operation and no host call in it",
            "recording was never switched on (loadTracer.sh sets RPDT_AUTOSTART=0), or the program ended at once",
            "record with runTracer.sh, or call rpdTracerControl().start()",
        )


def device_numbering(database: Database, device: np.ndarray) -> dict[str, str]:
    """What the device numbers count, where that is certain.

    rpd counts GPUs from 0 since June 2024 (commit 194259a of rocmProfileData); before, it wrote ROCm's agents, of which
    number 0 is a CPU. The columns of the view `top` are younger than that (f90a3a6), and so is the domain of calls
    (a8b269d). A file without them may be of either time; its schema version does not tell.
    """
    known = device[device >= 0]
    view = database.rows("SELECT sql FROM sqlite_master WHERE type = 'view' AND name = 'top'")
    is_newer = "domain_id" in database.tables["rocpd_api"] or any("TotalDuration_us" in str(sql) for (sql,) in view)
    return {"device_numbering": "index"} if len(known) and (is_newer or (known == 0).any()) else {}


def warnings_about(path: Path, operations: Records, facts: dict[str, Any]) -> list[str]:
    """Sentences about what is readable but suspicious."""
    found = []
    if not len(operations):
        found.append(
            f"{path.name}: no operation on a GPU. Likely cause: the program did not use one, or another "
            "profiler (torch.profiler, rocprofv3) ran at the same time and got the GPU's records."
        )
    elif not np.isin(operations["kind"], (KIND_CODE["kernel"], KIND_CODE["collective"])).any():
        found.append(
            f"{path.name}: copies but no kernel. Likely cause: recording stopped before the first kernel ended, "
            "or the file was cut with rpd_trim."
        )
    if facts.pop("unfinished"):
        found.append(
            f"{path.name}: the tracer was not shut down properly, so the last records may be missing. "
            "Likely cause: the program was killed, or still runs."
        )
    return found
