"""Reader for rocmProfileData files (`.rpd`).

The SQL files in this folder are the queries, and `schema.toml` lists the tables that they use.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import NothingRecordedError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.io.sqlite import NAMELESS, NOT_KEPT, open_database
from tidyprof.readers.databases import Tables, read_databases, samples_of, schema_of
from tidyprof.readers.rpd.recognition import PATTERNS, is_rpd
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    Codes,
    by_code,
    counted,
    first_equal,
    mapped,
    refined,
    taken,
)
from tidyprof.tables.contract import MARK, Origin, Profile, stated_origin
from tidyprof.tables.damage import cut_hip_overlaps, left_out, without_damage
from tidyprof.tables.launches import callers
from tidyprof.tables.profiles import (
    Part,
)
from tidyprof.tables.records import Records, joined

SCHEMA = schema_of("rpd")
_ACTIVE_LOCK = "resourceLock::"
_LOST = "rows were deleted (rpd_trim keeps rows that refer to deleted calls and operations)"
MARKER = "UserMarker"
"""Name of the calls for ranges that the program marked."""

_COPY_OR_FILL = re.compile(r"(copy|memcpy|memory_copy)|fill|memset", re.IGNORECASE)
_NO_WORK = re.compile(r"barrier|marker", re.IGNORECASE)
_RUNTIME_CALL = re.compile(
    r"_*(hip[A-Z]|hsa_|cu(da)?[A-Z]|[nr]ccl[A-Z])|(hcc_activity_callback|BLOCKING"
    r"|\w+(Table|DataSource)::\w+)$"
)
"""Names of calls to runtime libraries, and of the tracer's own work. Other calls are ranges."""

_OPERATOR_MARKER = re.compile(r"(.+?)(, seq = \d+)?, op_id = \d+(, sizes = .*)?", re.DOTALL)
_STREAM_ARGUMENT = re.compile(r'\bstream"?\s*[=:]\s*"?(0x[0-9a-fA-F]{1,16})')
_SDK_COPY_TYPE = "MEMORY_COPY_"


def _read_facts(tables: Tables) -> dict[str, Any]:
    """Return the `Profile.meta` entries from rocpd_metadata. Raises ProfileReadError if the schema
    isn't from rpd.
    """
    stated = tables.metadata()
    version = stated["schema_version"]
    facts: dict[str, Any] = {
        "tool": "rocmProfileData",
        "tool_version": f"schema version {version}",
        "schema_version": int(version),
        "clock": "monotonic clock of the node",
        "unfinished": any(
            tag.startswith(_ACTIVE_LOCK) and str(value) != "0" for tag, value in stated.items()
        ),
    }
    if origin := stated_origin(stated.get(MARK)):
        facts["origin"] = origin
    return facts


def read_calls(tables: Tables, texts: Codes) -> Records:
    """Return host calls and ranges with the columns of the event table. The correlation ID is the
    row's identifier.
    """
    columns = tables.columns("calls", texts)
    call, operator = columns.pop("call"), columns["operator"]
    arguments = tables.database.text_codes(
        columns.pop("arguments_id"), texts, ("rocpd_ustring", "string")
    )
    columns["arguments_text"] = arguments
    message = np.where(call == texts.get(MARKER, ABSENT), arguments, NO_TEXT)
    is_runtime = [bool(_RUNTIME_CALL.match(text)) for text in texts]
    operators = {
        code: texts[match[1]]
        for text, code in [*texts.items()]
        if ", op_id = " in text and (match := _OPERATOR_MARKER.fullmatch(text))
    }
    operator = np.where(operator == NO_TEXT, mapped(message, operators), operator)
    name = np.where((message == NO_TEXT) | (message == texts[""]), call, message)
    kind = np.where(by_code(is_runtime, call, False), KIND_CODE["runtime"], KIND_CODE["annotation"])
    columns["name"] = np.where(operator >= 0, operator, name).astype(np.int32)
    columns["kind"] = np.where(operator >= 0, KIND_CODE["operator"], kind).astype(np.int8)
    category = columns["source_category"]
    columns["source_category"] = np.where(category == texts[""], np.int32(NO_TEXT), category)
    records = Records(columns)
    without_damage(tables.database.path, records, {NAMELESS: records["name"] == NO_TEXT})
    records["operator"] = _operators_of_calls(records)
    return records


def _operators_of_calls(calls: Records) -> np.ndarray:
    """Return the name code of the innermost operator around each runtime call, or -1."""
    threads = pd.DataFrame({name: calls[name] for name in ("process", "thread")})
    thread = threads.groupby(["process", "thread"], sort=False).ngroup().to_numpy()
    start, end = calls["start_ns"], calls["start_ns"] + calls["duration_ns"]
    order, caller = callers(start, np.maximum(end, start + 1), thread)
    kind, name, end = calls["kind"][order], calls["name"][order], end[order]
    rows = inner = np.flatnonzero(kind == KIND_CODE["runtime"])
    # If the caller isn't an operator, or ends too early, its own caller is tried, and so on.
    while len(rows := rows[caller[rows] >= 0]):
        is_operator = kind[caller[rows]] == KIND_CODE["operator"]
        rows = rows[~is_operator | (end[caller[rows]] < end[rows])]
        caller[rows] = caller[caller[rows]]
    names = np.full(len(calls), NO_TEXT, np.int32)
    names[order[inner]] = taken(name, caller[inner], NO_TEXT)
    return names


def read_operations(tables: Tables, calls: Records, texts: Codes) -> Records:
    """Return the GPU work with the columns of the event table."""
    path = tables.database.path
    columns = tables.columns("operations", texts)
    category = columns["source_category"]
    columns["name"] = np.where(columns["name"] == texts[""], category, columns["name"])
    columns["kind"] = by_code(map(_operation_kind, texts), category, NOT_KEPT, np.int8)
    columns["kind"][(columns["kind"] == NOT_KEPT) & (columns["name"] != category)] = KIND_CODE[
        "kernel"
    ]
    records = Records(columns)
    without_damage(path, records, {NAMELESS: records["name"] == NO_TEXT})
    is_work = records["kind"] != NOT_KEPT
    records.not_kept = counted(records["source_category"][~is_work], texts)
    records.keep(is_work)
    call = _add_launches(tables, records, calls, texts)
    records.columns |= {
        "launch_ns": taken(calls["start_ns"], call),
        "launch_thread": taken(calls["thread"], call),
        "process": taken(calls["process"], call),
        "operator": taken(calls["operator"], call, NO_TEXT),
    }
    stream, arguments = records.columns.pop("stream_text"), calls.columns.pop("arguments_text")
    stream = np.where(call < 0, NO_TEXT, stream)
    graph = taken(arguments, call, NO_TEXT)
    addresses = [*map(_address, texts)]
    records["stream"] = by_code(addresses, np.where(graph == NO_TEXT, stream, graph), ABSENT)
    # The file has one row per call, so it doesn't show which of several operations the row
    # describes.
    is_copy = _only_of_call(records["kind"] == KIND_CODE["copy"], call)
    is_kernel = _only_of_call(records["kind"] == KIND_CODE["kernel"], call)
    records["bytes"] = np.where(is_copy, records["bytes"], ABSENT)
    launched = records.columns.pop("launched")
    for column in ("grid", "block"):
        records[column] = np.where(is_kernel, records[column], np.int32(NO_TEXT))
    nameless = is_kernel & (records["name"] == records["source_category"]) & (launched >= 0)
    records["name"] = np.where(nameless, launched, records["name"])
    records["kind"] = refined(records["kind"], records["name"], texts)
    return records


def _add_launches(tables: Tables, records: Records, calls: Records, texts: Codes) -> np.ndarray:
    """Add the columns of `launches.sql` to the operations. Return the row of each launching call,
    or -1. If several calls launched an operation, use the first one in the file.
    """
    launches = tables.columns("launches", texts)
    call = first_equal(calls["correlation_id"], launches["correlation_id"])
    launch = first_equal(launches.pop("op_id"), records.columns.pop("id"))
    for name in [*launches]:
        values = launches.pop(name)
        absent = NO_TEXT if values.dtype == np.int32 else ABSENT
        records[name] = taken(values, launch, absent)
    return taken(call, launch, -1)


def _operation_kind(category: str) -> int:
    if category in ("KernelExecution", "Task"):  # Task: a kernel in a HIP graph
        return KIND_CODE["kernel"]
    work = _COPY_OR_FILL.match(category)
    return NOT_KEPT if work is None else KIND_CODE["copy" if work[1] else "fill"]


def _only_of_call(chosen: np.ndarray, call: np.ndarray) -> np.ndarray:
    """Return a mask of the chosen operations whose call launched no other chosen operation."""
    chosen = chosen & (call >= 0)
    return chosen & (np.bincount(call[chosen], minlength=call.max(initial=0) + 1)[call] == 1)


def _address(text: str) -> int:
    """Return HIP's pointer to a stream, which is 0 for the default stream."""
    stated = _STREAM_ARGUMENT.search(text)
    try:
        address = 0 if text == "(nil)" else int(stated[1] if stated else text, 16)
    except ValueError:
        return ABSENT
    return address if 0 <= address < 2**63 else ABSENT


def _device_numbering(tables: Tables, device: np.ndarray) -> dict[str, str]:
    """Return the `Profile.meta` entry that says what the device numbers count. Return an empty
    dictionary if this is uncertain.

    Since June 2024 (commit 194259a of rocmProfileData), rpd numbers GPUs, starting with 0. Earlier
    versions number ROCm agents, and agent 0 is a CPU. The column for the domain of calls is newer
    than this change (a8b269d).
    """
    is_newer = "domain_id" in tables.database.tables["rocpd_api"]
    is_index = (device >= 0).any() and (is_newer or (device == 0).any())
    return {"device_numbering": "index"} if is_index else {}


def _warnings_about(path: Path, operations: Records, facts: dict[str, Any]) -> list[str]:
    """Return warnings about suspicious contents."""
    found = []
    if not np.isin(operations["kind"], (KIND_CODE["kernel"], KIND_CODE["collective"])).any():
        what = "copies but no kernels" if len(operations) else "no GPU operations"
        found.append(
            f"{path.name}: the file has {what}. Likely cause: the program didn't use a GPU,"
            " recording stopped too early, or another profiler (torch.profiler, rocprofv3) ran at"
            " the same time and received the GPU's records."
        )
    if facts.pop("unfinished"):
        found.append(
            f"{path.name}: the tracer was not shut down properly. The last records may be missing."
        )
    return found


def _read_file(path: Path, texts: Codes, maximum_bytes: int) -> list[Part]:
    """Read one file.

    - texts: collects the names and their codes
    """
    with open_database(path, maximum_bytes) as database:
        tables = Tables(database, SCHEMA, others={"rocpd_ustring": "rocpd_string"})
        facts = _read_facts(tables)
        calls = read_calls(tables, texts)
        operations = read_operations(tables, calls, texts)
        if not operations.total and not calls.total:
            raise NothingRecordedError(
                path,
                "the file has no GPU operations and no host calls",
                "recording was never switched on (loadTracer.sh sets RPDT_AUTOSTART=0), or the"
                " program ended immediately",
                "record with runTracer.sh, or call rpdTracerControl().start()",
            )
        monitors = tables.columns("monitors", texts)
        values = by_code(texts, monitors.pop("value_text"), None, object)
        monitors["value"] = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(np.float64)
        samples = [
            samples_of(columns, texts) for columns in (monitors, tables.columns("counters", texts))
        ]
        warnings = tables.losses(_LOST) + _warnings_about(path, operations, facts)
        warnings += tables.doubts()
        facts |= _device_numbering(tables, operations["device"])
    unread = operations.not_kept.copy()
    for name in filter(_NO_WORK.search, operations.not_kept):
        del unread[name]
    warnings += left_out(path, unread)
    _forget_false_devices(operations, texts)
    records = joined([operations, calls])
    for _, lost in samples:
        records.dropped += lost
    warnings += cut_hip_overlaps(path, records)
    return [Part(path, records, [table for table, _ in samples], facts, warnings=warnings)]


def _forget_false_devices(operations: Records, texts: Codes) -> None:
    """Remove the device from copies that rocprofiler-sdk recorded, because the tracer always
    records these copies as GPU 0 (rpd_tracer/RocprofDataSource.cpp). The copies keep the device if
    all other work is on GPU 0.
    """
    types = [code for text, code in texts.items() if text.startswith(_SDK_COPY_TYPE)]
    copies = np.isin(operations["source_category"], types)
    if (operations["device"][~copies] != 0).any():
        operations["device"][copies] = ABSENT


@guarded
def read_rpd(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a rocmProfileData file (schema version 2 or 3).

    - path: path to an .rpd file, or to a folder with one file per rank. In a folder, the name of
      each file or of its subfolder must contain `rank0`, `rank1`, and so on.
    - rank: see `tidyprof.read`.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    The times in `events` are in nanoseconds on the node's monotonic clock. These columns of
    `tables.contract` have a special meaning:

    - source_category: type of the operation, such as `KernelExecution` or `CopyHostToDevice`. For
      host calls, this column contains the domain, which doesn't exist in schema 2.
    - operator: name of the enclosing operator. The name is known if the program ran inside
      `torch.autograd.profiler.emit_nvtx()`.
    - bytes: size of a copy, or `<NA>` above 2 GiB, because the file leaves it blank. Above 4 GiB,
      the size is modulo `2**32`.
    - grid: argument of the launching call. The unit is workgroups for hipLaunchKernel. For
      hipExtModuleLaunchKernel and with rocprofiler-sdk, the unit is work-items.
    - correlation_id: identifier of the call. Work that the call launched has the same ID. If a call
      such as hipGraphLaunch launches several operations, they have the same ID and no grid, block
      or bytes.
    - stream: HIP's pointer to the stream, or 0 for the default stream

    Kernels in a HIP graph have the type `Task`. Ranges that the program marked become annotations,
    which are named after their message. Device events have no thread, and their process comes from
    the call.

    `counters` contains the monitors and, in schema 3, hardware counters. The monitor `sclk` is the
    GPU's clock in MHz. `device` is rocm-smi's number.

    `meta` contains the common entries and these, if known:

    - schema_version: version of the file's schema
    - clock: name of the clock
    - device_numbering: `index`, if it is certain that the numbers count GPUs. Files from before
      June 2024 contain the numbers of ROCm agents instead, but they don't say so.

    Raises ProfileReadError if a file can't be read.
    """
    return read_databases(
        Path(path),
        is_rpd,
        PATTERNS,
        "rpd files",
        lambda file, texts: _read_file(file, texts, maximum_bytes),
        rank,
        {},
        origin,
    )
