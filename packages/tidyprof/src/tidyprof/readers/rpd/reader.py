"""Reader for rocmProfileData files (`.rpd`)."""

from __future__ import annotations

import math
import re
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import FOREIGN
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.io.sqlite import Database, database_files, open_database, quoted, text_codes
from tidyprof.readers.rpd.recognition import PATTERNS, is_rpd
from tidyprof.readers.rpd.tables import (
    BLOCK,
    GRID,
    LARGE_TABLES,
    OPTIONAL_TABLES,
    device_numbering,
    read_calls,
    read_facts,
    read_operations,
    refuse_empty,
    unread_operations,
    warnings_about,
    warnings_of_losses,
)
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    Codes,
    first_equal,
    nullable,
    refined,
    shape_codes,
    taken,
)
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.damage import LATEST_START_NS, REPEATED, cut_hip_overlaps, left_out
from tidyprof.tables.launches import innermost
from tidyprof.tables.profiles import (
    Part,
    profile_of,
    rank_in_name,
    read_recorded,
    refuse_mixed_ranks,
    selected_rank,
)
from tidyprof.tables.records import Records, joined

_STREAM_ARGUMENT = re.compile(r'\bstream"?\s*[=:]\s*"?(0x[0-9a-fA-F]{1,16})')


def link_operations(database: Database, operations: Records, calls: Records, texts: Codes) -> int:
    """Add data from the launching calls to the operations, and add the enclosing operator to the
    calls.

    The tables rocpd_api_ops, rocpd_kernelapi and rocpd_copyapi link calls and operations. Kernels
    without a name get the name from their launch. Return the number of calls that launched several
    operations, such as hipGraphLaunch.
    """
    # Three tables contain streams of calls, so the operations get their streams last.
    call_id = _launching_calls(database, operations, calls)
    call = first_equal(calls["correlation_id"], call_id)
    stream = np.full(len(calls), ABSENT, np.int64)
    is_copy = operations["kind"] == KIND_CODE["copy"]
    own_copy = np.where(_is_only_one(is_copy, call, len(calls)), call, -1)
    sizes = _read_copies(database, calls, stream)
    kernel = np.isin(operations["kind"], (KIND_CODE["kernel"], KIND_CODE["collective"]))
    own_kernel = np.where(_is_only_one(kernel, call, len(calls)), call, -1)
    shapes = _read_kernels(database, calls, stream, texts)
    _name_kernels(operations, taken(shapes["name"], own_kernel, -1), texts)
    _read_graph_streams(database, calls, stream, texts)
    calls["operator"] = _operators_of_calls(calls)
    operations.columns |= {
        "correlation_id": call_id,
        "launch_ns": taken(calls["start_ns"], call),
        "launch_thread": taken(calls["thread"], call),
        "process": taken(calls["process"], call),
        "stream": taken(stream, call),
        "bytes": np.where(operations["kind"] == KIND_CODE["copy"], taken(sizes, own_copy), ABSENT),
        "operator": taken(calls["operator"], call, -1),
        "grid": taken(shapes["grid"], own_kernel, -1),
        "block": taken(shapes["block"], own_kernel, -1),
    }
    return int((np.bincount(call[call >= 0], minlength=1) > 1).sum())


def _launching_calls(database: Database, operations: Records, calls: Records) -> np.ndarray:
    """Return the identifier of each operation's launching call, or ABSENT if the file contains no
    link.

    If there are several calls, use the earliest one. If several calls start at that time, use the
    longest one, as in `tables.launches`.
    """
    links = database.integers("rocpd_api_ops", LARGE_TABLES["rocpd_api_ops"])
    if len(np.unique(links["op_id"])) < len(links["op_id"]):
        call = first_equal(calls["correlation_id"], links["api_id"])
        start, duration = (
            taken(calls[name], call, LATEST_START_NS) for name in ("start_ns", "duration_ns")
        )
        order = np.lexsort((-duration, start, links["op_id"]))
        links = {name: values[order] for name, values in links.items()}
    return taken(links["api_id"], first_equal(links["op_id"], operations["id"]))


def _is_only_one(chosen: np.ndarray, call: np.ndarray, calls: int) -> np.ndarray:
    """Return a mask of the chosen operations whose call launched no other chosen operation.

    The file has one row per call, so it doesn't show which of several operations the row describes.
    """
    linked = chosen & (call >= 0)
    return linked & (np.bincount(call[linked], minlength=calls)[call] == 1) if calls else linked


def _read_copies(database: Database, calls: Records, stream: np.ndarray) -> np.ndarray:
    """Return the number of bytes for each copy call, and fill in `stream`. The number is missing
    for copies above 2 GiB.
    """
    sizes = np.full(len(calls), ABSENT, np.int64)
    if "rocpd_copyapi" in database.tables:
        found = database.integers("rocpd_copyapi", LARGE_TABLES["rocpd_copyapi"])
        call = first_equal(calls["correlation_id"], found["api_ptr_id"])
        known = call >= 0
        sizes[call[known]] = found["size"][known]
        stream[call[known]] = _streams(database, "rocpd_copyapi")[known]
    return sizes


def _read_kernels(
    database: Database, calls: Records, stream: np.ndarray, texts: Codes
) -> dict[str, np.ndarray]:
    shapes = {column: np.full(len(calls), -1, np.int32) for column in ("grid", "block", "name")}
    if "rocpd_kernelapi" in database.tables:
        found = database.integers("rocpd_kernelapi", LARGE_TABLES["rocpd_kernelapi"])
        call = first_equal(calls["correlation_id"], found["api_ptr_id"])
        known = call >= 0
        for column, axes in (("grid", GRID), ("block", BLOCK)):
            shapes[column][call[known]] = shape_codes([found[axis] for axis in axes], texts)[known]
        shapes["name"][call[known]] = text_codes(database, found["kernelName_id"], texts)[known]
        stream[call[known]] = _streams(database, "rocpd_kernelapi")[known]
    return shapes


def _streams(database: Database, table: str) -> np.ndarray:
    """Return the stream of each row as HIP's pointer. The default stream is 0."""
    codes, texts = database.coded_texts(table, "stream")
    return np.array([_address(text) for text in texts], np.int64)[codes]


def _address(text: str) -> int:
    if text == "(nil)":
        return 0
    try:
        address = int(text, 16)
    except ValueError:
        return ABSENT
    return address if 0 <= address < 2**63 else ABSENT


def _name_kernels(operations: Records, launched_name: np.ndarray, texts: Codes) -> None:
    """If a kernel is named only after its type, replace the name with the name from its launch."""
    nameless = (operations["name"] == operations["source_category"]) & (launched_name >= 0)
    if nameless.any():
        operations["name"][nameless] = launched_name[nameless]
        operations["kind"] = refined(operations["kind"], operations["name"], texts)


def _read_graph_streams(
    database: Database, calls: Records, stream: np.ndarray, texts: Codes
) -> None:
    """Fill in the streams of HIP graph launches. The file contains these streams only in the text
    of the call's arguments.
    """
    names = [code for text, code in texts.items() if text.endswith("GraphLaunch")]
    rows = np.flatnonzero(np.isin(calls["name"], names))
    if not len(rows):
        return
    arguments = database.integers("rocpd_api", ("id", "args_id"))
    ids = taken(arguments["args_id"], first_equal(arguments["id"], calls["correlation_id"][rows]))
    # Parse each distinct string once. Schema 3 stores argument strings in a separate table.
    positions, unique = pd.factorize(ids)
    table = "rocpd_ustring" if "rocpd_ustring" in database.tables else "rocpd_string"
    texts_of = database.texts(table, unique)
    stated = [_STREAM_ARGUMENT.search(texts_of.get(number, "")) for number in unique.tolist()]
    addresses = [_address(match[1]) if match else ABSENT for match in stated]
    stream[rows] = np.array(addresses, np.int64)[positions]


def _operators_of_calls(calls: Records) -> np.ndarray:
    """Return the name code of the innermost operator around each runtime call, or -1."""
    names = np.full(len(calls), -1, np.int32)
    outer = np.flatnonzero(calls["kind"] == KIND_CODE["operator"])
    inner = np.flatnonzero(calls["kind"] == KIND_CODE["runtime"])
    if len(outer) and len(inner):
        start, end = calls["start_ns"], calls["start_ns"] + calls["duration_ns"]
        process, thread = calls["process"], calls["thread"]
        found = innermost(
            (start[outer], end[outer]), (process[outer], thread[outer]),
            (start[inner], end[inner]), (process[inner], thread[inner]),
        )  # fmt: skip
        names[inner[found >= 0]] = calls["name"][outer[found[found >= 0]]]
    return names


_SDK_COPY_TYPE = "MEMORY_COPY_"
_MONITOR_UNITS = {"sclk": "MHz"}
"""Units in the tracer's source code (rpd_tracer/RocmSmiDataSource.cpp). Other monitors have no
unit.
"""


def read_file(path: Path, texts: Codes, maximum_bytes: int) -> tuple[Part, int]:
    """Read one file. Also return the number of calls that launched several operations.

    - texts: collects the names and their codes
    """
    with open_database(path, maximum_bytes) as database:
        facts = read_facts(database)
        calls = read_calls(database, texts)
        operations = read_operations(database, texts)
        refuse_empty(path, operations, calls)
        shared = link_operations(database, operations, calls, texts)
        monitors, lost = _monitors(database)
        values, repeated = _hardware_counters(database, operations, texts)
        warnings = [*warnings_of_losses(database), *warnings_about(path, operations, facts)]
        warnings += database.doubts(OPTIONAL_TABLES)
        warnings += left_out(path, unread_operations(operations))
        _forget_false_devices(path, operations, texts, warnings)
        facts |= device_numbering(database, operations["device"])
    records = joined([operations, calls])
    records.dropped = records.dropped + lost + repeated
    warnings += cut_hip_overlaps(path, records)
    return Part(path, records, [monitors, values], facts, warnings=warnings), shared


def _forget_false_devices(
    path: Path, operations: Records, texts: Codes, warnings: list[str]
) -> None:
    """Remove the device from copies that rocprofiler-sdk recorded, because the tracer always
    records these copies as GPU 0 (rpd_tracer/RocprofDataSource.cpp).
    """
    types = [code for text, code in texts.items() if text.startswith(_SDK_COPY_TYPE)]
    copies = np.isin(operations["source_category"], types)
    others = operations["device"][~copies]
    if copies.any() and (others != 0).any():
        operations["device"][copies] = ABSENT
        warnings.append(
            f"{path.name}: the GPU of {int(copies.sum())} copies is unknown. The tracer records all"
            " copies as GPU 0, so these copies have no device."
        )


def _monitors(database: Database) -> tuple[pd.DataFrame, Counter[str]]:
    """Return monitor samples and the number of unusable samples. Each sample is a value that
    applied from `start` to `end`. `device` is rocm-smi's number.
    """
    if "rocpd_monitor" not in database.tables:
        return pd.DataFrame(), Counter()
    columns = ("deviceId", "start", "end", "monitorType", "value")
    database.require("rocpd_monitor", columns)
    rows = database.rows(f"SELECT {', '.join(map(quoted, columns))} FROM rocpd_monitor")
    samples = [row for row in rows if _is_sample(*row)]
    sound = list(dict.fromkeys(samples))
    device, start, end, name, value = zip(*sound, strict=True) if sound else ((),) * 5
    start, end = np.array(start, np.int64), np.array(end, np.int64)
    table = pd.DataFrame(
        {
            "time_ns": start,
            "device": nullable(np.array(device, np.int64), "Int32"),
            "name": list(name),
            "value": [float(text) for text in value],
            "unit": [_MONITOR_UNITS.get(text) for text in name],
            "duration_ns": pd.array(end - start, "Int64"),
        }
    )
    lost = {
        "from incomplete samples": len(rows) - len(samples),
        f"from samples {REPEATED}": len(samples) - len(sound),
    }
    return table, +Counter(lost)


def _is_sample(device: Any, start: Any, end: Any, name: Any, value: Any) -> bool:
    are_numbers = all(isinstance(number, int) for number in (device, start, end))
    if not are_numbers or not isinstance(name, str):
        return False
    try:
        return 0 < start <= end < LATEST_START_NS and math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _hardware_counters(
    database: Database, operations: Records, texts: Codes
) -> tuple[pd.DataFrame, Counter[str]]:
    if "rocpd_counter" not in database.tables:
        return pd.DataFrame(), Counter()
    found = database.integers("rocpd_counter", ("op_id", "name_id"))
    value = database.reals("rocpd_counter", "value")
    row = first_equal(operations["id"], found["op_id"])
    name = text_codes(database, found["name_id"], texts)
    known = (row >= 0) & (name >= 0) & np.isfinite(value)
    again = known & pd.DataFrame({"row": row, "name": name, "value": value}).duplicated().to_numpy()
    known &= ~again
    row, labels = row[known], [*texts, ""]
    table = pd.DataFrame(
        {
            "time_ns": operations["start_ns"][row],
            "device": nullable(operations["device"][row], "Int32"),
            "name": [labels[code] for code in name[known].tolist()],
            "value": value[known],
            "duration_ns": pd.array(operations["duration_ns"][row], "Int64"),
            "kernel": [labels[code] for code in operations["name"][row].tolist()],
        }
    )
    return table, +Counter({f"from values of counters {REPEATED}": int(again.sum())})


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
    - sessions: number of recording sessions
    - clock: name of the clock
    - device_numbering: `index`, if it is certain that the numbers count GPUs. Files from before
      June 2024 contain the numbers of ROCm agents instead, but they don't say so.
    - node_stride: factor for the node number. In schema 3, the device number is
      `node * node_stride + GPU`.
    - calls_with_several_operations: number of calls that launched several operations

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    files, ignored = database_files(path, is_rpd, PATTERNS, "rpd files")
    texts = Codes()
    of_files, nothing = read_recorded(files, lambda file: read_file(file, texts, maximum_bytes))
    read, shared = zip(*of_files, strict=True)
    for part in read:
        part.rank = rank_in_name(part.path, path)
    if path.is_dir():
        refuse_mixed_ranks(path, [(part.path.name, part.rank) for part in read])
    read[0].ignored = nothing | dict.fromkeys(ignored, FOREIGN)
    meta = {"calls_with_several_operations": sum(shared)}
    return profile_of(selected_rank(path, read, rank), texts, meta, origin)
