"""Tables of an rpd file as columns. They contain the operations on the GPUs and the calls on the
host.

The schema is defined in rocpd_python/rocpd/schema_data/tableSchema.cmd of
https://github.com/ROCm/rocmProfileData, versions 2 and 3.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import NothingRecordedError, ProfileReadError
from tidyprof.io.sqlite import NAMELESS, Database, Link, dangling, losses_told, text_codes
from tidyprof.io.text_cells import whole_number
from tidyprof.tables.codes import KIND_CODE, NO_TEXT, Codes, counted, first_equal, refined
from tidyprof.tables.contract import MARK, stated_origin
from tidyprof.tables.damage import durations, refuse_repeated, without_damage
from tidyprof.tables.records import Records

SCHEMA_VERSIONS = ("2", "3")
"""Schema versions that this reader supports, from 2024 and 2026."""

REQUIRED_TABLES = {
    "rocpd_op": ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    "rocpd_api": ("id", "pid", "tid", "start", "end", "apiName_id", "args_id"),
    "rocpd_api_ops": ("api_id", "op_id"),
    "rocpd_string": ("id", "string"),
}
"""Required tables and their required columns."""

_CALLS, _OPERATIONS = "host calls", "GPU operations"
LINKS = (
    Link("rocpd_api_ops", "op_id", "rocpd_op", _OPERATIONS, vital=True),
    Link("rocpd_api_ops", "api_id", "rocpd_api", _CALLS),
    Link("rocpd_copyapi", "api_ptr_id", "rocpd_api", _CALLS),
    Link("rocpd_kernelapi", "api_ptr_id", "rocpd_api", _CALLS),
    Link("ext_autogradapi", "api_ptr_id", "rocpd_api", _CALLS),
    Link("rocpd_counter", "op_id", "rocpd_op", _OPERATIONS),
)
"""References between tables. The tracer writes an operation and its link together
(OpTable::writeRows of rpd_tracer), so a file that contains only one of them is incomplete.
"""

_ACTIVE_LOCK = "resourceLock::"


def read_facts(database: Database) -> dict[str, Any]:
    """Return the `Profile.meta` entries from rocpd_metadata. Raises ProfileReadError if the schema
    isn't from rpd.
    """
    tables = database.tables
    if any(name.startswith("rocpd_kernel_dispatch") for name in tables):
        raise ProfileReadError(
            database.path,
            "the file is a rocpd database from ROCm 7, not a rocmProfileData file",
            "both tools use the name rocpd for their files",
            "read the file with read_rocpd",
        )
    database.require("rocpd_metadata", ("tag", "value"))
    stated = dict(database.rows("SELECT tag, value FROM rocpd_metadata"))
    version = str(stated.get("schema_version", ""))
    if version not in SCHEMA_VERSIONS:
        raise ProfileReadError(
            database.path,
            f"schema version {version!r}" if version else "no schema version in rocpd_metadata",
            "this reader doesn't support the version of rocmProfileData",
            f"use a version with schema {' or '.join(SCHEMA_VERSIONS)}",
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
    """Raise ProfileReadError if a file has no records."""
    if not operations.total and not calls.total:
        raise NothingRecordedError(
            path,
            "the file has no GPU operations and no host calls",
            "recording was never switched on (loadTracer.sh sets RPDT_AUTOSTART=0), or the program"
            " ended immediately",
            "record with runTracer.sh, or call rpdTracerControl().start()",
        )


def device_numbering(database: Database, device: np.ndarray) -> dict[str, str]:
    """Return the `Profile.meta` entry that says what the device numbers count. Return an empty
    dictionary if this is uncertain.

    Since June 2024 (commit 194259a of rocmProfileData), rpd numbers GPUs, starting with 0. Earlier
    versions number ROCm agents, and agent 0 is a CPU. Some columns are newer than this change: the
    columns of the view `top` (f90a3a6) and the domain of calls (a8b269d). A file without these
    columns may be older or newer than the change, because the schema version stayed the same.
    """
    known = device[device >= 0]
    view = database.rows("SELECT sql FROM sqlite_master WHERE type = 'view' AND name = 'top'")
    is_newer = "domain_id" in database.tables["rocpd_api"] or any(
        "TotalDuration_us" in str(sql) for (sql,) in view
    )
    return {"device_numbering": "index"} if len(known) and (is_newer or (known == 0).any()) else {}


def warnings_of_losses(database: Database) -> list[str]:
    """Return warnings about rows with broken references. Raises ProfileReadError if nearly all
    operations have broken references.
    """
    cause = "rows were deleted (rpd_trim keeps rows that refer to deleted calls and operations)"
    return losses_told(database, dangling(database, LINKS), cause)


def warnings_about(path: Path, operations: Records, facts: dict[str, Any]) -> list[str]:
    """Return warnings about suspicious contents."""
    found = []
    if not len(operations):
        found.append(
            f"{path.name}: the file has no GPU operations. Likely cause: the program didn't use a"
            " GPU, or another profiler (torch.profiler, rocprofv3) ran at the same time and"
            " received the GPU's records."
        )
    elif not np.isin(operations["kind"], (KIND_CODE["kernel"], KIND_CODE["collective"])).any():
        found.append(
            f"{path.name}: the file has copies but no kernels. Likely cause: recording stopped"
            " before the first kernel ended, or rpd_trim removed the kernels."
        )
    if facts.pop("unfinished"):
        found.append(
            f"{path.name}: the tracer was not shut down properly. The last records may be missing."
            " Likely cause: the program was killed, or it is still running."
        )
    return found


MARKER = "UserMarker"
"""Name of the calls for ranges that the program marked. The arguments of the call contain the
message.
"""

KERNEL_TYPES = ("KernelExecution", "Task")
"""Operation types of kernels. roctracer uses `Task` for kernels in a HIP graph."""

NOT_KEPT = -1
"""The kind of operations that aren't device work, such as barriers."""

GRID = ("gridX", "gridY", "gridZ")
BLOCK = ("workgroupX", "workgroupY", "workgroupZ")
LARGE_TABLES = {
    "rocpd_api": ("id", "pid", "tid", "start", "end", "apiName_id"),
    "rocpd_op": ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    "rocpd_api_ops": ("api_id", "op_id"),
    "rocpd_copyapi": ("api_ptr_id", "size"),
    "rocpd_kernelapi": ("api_ptr_id", *GRID, *BLOCK, "kernelName_id"),
}
"""Columns to read from the tables with one row per call or operation."""

UNUSED = frozenset(
    {
        "vgpr",
        "sgpr",
        "fbar",
        "op_ptr_id",
        "signalCount",
        "aquireFence",
        "releaseFence",
        "from_op_id",
        "to_op_id",
        "sequenceId",
        "completionSignal",
        "groupSegmentSize",
        "privateSegmentSize",
        "kernelArgAddress",
        "codeObject_id",
        "width",
        "height",
        "dst",
        "src",
        "dstDevice",
        "srcDevice",
        "sync",
        "pinned",
        "deviceType",
        "category_id",
        "depth",
    }
)
"""Known columns that this reader doesn't use."""

OPTIONAL_TABLES = {
    "rocpd_monitor": (),
    "rocpd_counter": (),
    "rocpd_copyapi": (),
    "rocpd_kernelapi": (),
    "rocpd_ustring": (),
    "ext_autogradapi": (),
    "rocpd_api": ("domain_id",),
}
"""Tables and columns that are missing from some files."""

_COPY_TYPE = re.compile(r"copy|memcpy|memory_copy", re.IGNORECASE)
_FILL_TYPE = re.compile(r"fill|memset", re.IGNORECASE)
_NO_WORK = re.compile(r"barrier|marker", re.IGNORECASE)
_RUNTIME_CALL = re.compile(r"_*(hip[A-Z]|hsa_|cu(da)?[A-Z]|[nr]ccl[A-Z])")
_TRACER_CALL = re.compile(r"hcc_activity_callback|BLOCKING|\w+(Table|DataSource)::\w+")
_OPERATOR_MARKER = re.compile(r"(.+?)(, seq = \d+)?, op_id = \d+(, sizes = .*)?", re.DOTALL)


def read_operations(database: Database, texts: Codes) -> Records:
    """Return the GPU work with `id` and the columns of the event table. The name of a copy is its
    type.

    Raises ProfileReadError if too many rows are unusable.
    """
    found = database.integers("rocpd_op", LARGE_TABLES["rocpd_op"])
    category = text_codes(database, found["opType_id"], texts)
    name = text_codes(database, found["description_id"], texts)
    name = np.where(name == texts[""], category, name)
    records = Records(
        {
            "id": found["id"],
            "start_ns": found["start"],
            "duration_ns": durations(found["start"], found["end"]),
            "device": found["gpuId"],
            "queue": found["queueId"],
            "source_category": category,
            "name": name,
            "kind": _operation_kinds(category, name, texts),
        }
    )
    refuse_repeated(database.path, "GPU operations", records["id"])
    without_damage(database.path, records, {NAMELESS: records["name"] == NO_TEXT})
    is_work = records["kind"] != NOT_KEPT
    records.not_kept = counted(records["source_category"][~is_work], texts)
    records.keep(is_work)
    records["kind"] = refined(records["kind"], records["name"], texts)
    return records


def unread_operations(operations: Records) -> Counter[str]:
    """Return the number of operations of each type that were left out although they may be GPU
    work.
    """
    types = operations.not_kept.items()
    return Counter({name: count for name, count in types if not _NO_WORK.search(name)})


def read_calls(database: Database, texts: Codes) -> Records:
    """Return host calls and ranges with the columns of the event table. In schema 3, they also have
    a category, which is the domain. The correlation ID is the row's identifier.
    """
    found = database.integers("rocpd_api", LARGE_TABLES["rocpd_api"])
    name = text_codes(database, found["apiName_id"], texts)
    # The last kind is for names that are missing from the file (code -1).
    kind_of_text = np.array(
        [*(_call_kind(text) for text in texts), KIND_CODE["annotation"]], np.int8
    )
    records = Records(
        {
            "correlation_id": found["id"],
            "process": found["pid"],
            "thread": found["tid"],
            "start_ns": found["start"],
            "duration_ns": durations(found["start"], found["end"]),
            "name": name,
            "kind": kind_of_text[name],
        }
    )
    if "domain_id" in database.tables["rocpd_api"]:
        domain = text_codes(
            database, database.integers("rocpd_api", ("domain_id",))["domain_id"], texts
        )
        records["source_category"] = np.where(domain == texts[""], NO_TEXT, domain).astype(np.int32)
    refuse_repeated(database.path, "host calls", found["id"])
    _name_markers(database, records, texts, np.unique(found["apiName_id"][name == texts[MARKER]]))
    _add_operators(database, records, texts)
    without_damage(database.path, records, {NAMELESS: records["name"] == NO_TEXT})
    return records


def _operation_kinds(category: np.ndarray, name: np.ndarray, texts: Codes) -> np.ndarray:
    """Return the kinds of operations (int8), based on their type. If the type is unknown, the
    operation is a `kernel` if its name differs from its type.
    """
    of_type = np.array([*(_operation_kind(text) for text in texts), NOT_KEPT], np.int8)
    kind = of_type[category]
    kind[(kind == NOT_KEPT) & (name != category)] = KIND_CODE["kernel"]
    return kind


def _operation_kind(category: str) -> int:
    if category in KERNEL_TYPES:
        return KIND_CODE["kernel"]
    if _COPY_TYPE.match(category):
        return KIND_CODE["copy"]
    return KIND_CODE["fill"] if _FILL_TYPE.match(category) else NOT_KEPT


def _call_kind(name: str) -> int:
    """Return `runtime` for runtime calls and tracer overhead. Return `annotation` for all other
    calls, because they are marked ranges.
    """
    is_call = _RUNTIME_CALL.match(name) or _TRACER_CALL.fullmatch(name)
    return KIND_CODE["runtime" if is_call else "annotation"]


def _name_markers(database: Database, records: Records, texts: Codes, name_ids: np.ndarray) -> None:
    """Name markers after their messages. Markers that PyTorch's emit_nvtx writes for operators
    become operators.
    """
    if not len(name_ids):
        return
    condition = f'"apiName_id" IN ({", ".join(map(str, name_ids.tolist()))})'
    markers = database.integers("rocpd_api", ("id", "args_id"), where=condition)
    # Parse each distinct string once. Schema 3 stores argument strings in a separate table.
    positions, unique = pd.factorize(markers["args_id"])
    table = "rocpd_ustring" if "rocpd_ustring" in database.tables else "rocpd_string"
    texts_of = database.texts(table, unique)
    names = np.full(len(unique), texts[MARKER], np.int32)
    kinds = np.full(len(unique), KIND_CODE["annotation"], np.int8)
    for index, number in enumerate(unique.tolist()):
        text = texts_of.get(number)
        operator = _OPERATOR_MARKER.fullmatch(text) if text and ", op_id = " in text else None
        if operator:
            kinds[index] = KIND_CODE["operator"]
        if text:
            names[index] = texts[operator[1] if operator else text]
    call = first_equal(records["correlation_id"], markers["id"])
    records["name"][call] = names[positions]
    records["kind"][call] = kinds[positions]


def _add_operators(database: Database, records: Records, texts: Codes) -> None:
    """Add operators from the table that rocmProfileData's `rocpd.autograd` creates from markers."""
    if "ext_autogradapi" not in database.tables:
        return
    found = database.integers("ext_autogradapi", ("api_ptr_id", "autogradName_id"))
    name = text_codes(database, found["autogradName_id"], texts)
    call = first_equal(records["correlation_id"], found["api_ptr_id"])
    known = (call >= 0) & (name >= 0)
    records["name"][call[known]] = name[known]
    records["kind"][call[known]] = KIND_CODE["operator"]
