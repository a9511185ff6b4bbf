"""Connects work on the GPUs with the calls that launched it, and with what those calls state about it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tidyprof.io.sqlite import Database
from tidyprof.readers.databases import text_codes
from tidyprof.readers.rpd.tables import BLOCK, GRID, LARGE_TABLES
from tidyprof.tables.codes import ABSENT, Codes, first_equal, shape_codes, taken
from tidyprof.tables.damage import LATEST_START_NS
from tidyprof.tables.kinds import KIND_CODE, refined
from tidyprof.tables.launches import innermost
from tidyprof.tables.records import Records

_STREAM_ARGUMENT = re.compile(r'\bstream"?\s*[=:]\s*"?(0x[0-9a-fA-F]{1,16})')


def link_operations(database: Database, operations: Records, calls: Records, texts: Codes) -> int:
    """Add to operations what their launch states, to calls the operator around them.

    Follows rocpd_api_ops, rocpd_kernelapi and rocpd_copyapi; names kernels that have no name of their own.
    Returns the number of calls that launched several operations, as hipGraphLaunch does.
    """
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
    """For each operation the identifier of the call that launched it, ABSENT where the file links none.

    Of several calls it is the first, of these the longest, as in `tables.launches`.
    """
    links = database.integers("rocpd_api_ops", LARGE_TABLES["rocpd_api_ops"])
    if len(np.unique(links["op_id"])) < len(links["op_id"]):
        call = first_equal(calls["correlation_id"], links["api_id"])
        start, duration = (taken(calls[name], call, LATEST_START_NS) for name in ("start_ns", "duration_ns"))
        order = np.lexsort((-duration, start, links["op_id"]))
        links = {name: values[order] for name, values in links.items()}
    return taken(links["api_id"], first_equal(links["op_id"], operations["id"]))


def _is_only_one(chosen: np.ndarray, call: np.ndarray, calls: int) -> np.ndarray:
    """Which of the chosen operations are the only one among them that their call launched.

    The file keeps one row per call, so it does not say which of several operations that row describes.
    """
    linked = chosen & (call >= 0)
    return linked & (np.bincount(call[linked], minlength=calls)[call] == 1) if calls else linked


def _read_copies(database: Database, calls: Records, stream: np.ndarray) -> np.ndarray:
    """Bytes of each copying call; the file leaves them blank above 2 GiB. Notes the streams."""
    sizes = np.full(len(calls), ABSENT, np.int64)
    if "rocpd_copyapi" in database.tables:
        found = database.integers("rocpd_copyapi", LARGE_TABLES["rocpd_copyapi"])
        call = first_equal(calls["correlation_id"], found["api_ptr_id"])
        known = call >= 0
        sizes[call[known]] = found["size"][known]
        stream[call[known]] = _streams(database, "rocpd_copyapi")[known]
    return sizes


def _read_kernels(database: Database, calls: Records, stream: np.ndarray, texts: Codes) -> dict[str, np.ndarray]:
    """Codes of `grid`, `block` and kernel `name` of each launching call. Notes the streams."""
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
    """The stream of each row as a number: HIP's pointer to it, 0 for the default stream."""
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
    """Kernels whose only name is their type get the one that their launch states, if it states one."""
    nameless = (operations["name"] == operations["source_category"]) & (launched_name >= 0)
    if nameless.any():
        operations["name"][nameless] = launched_name[nameless]
        operations["kind"] = refined(operations["kind"], operations["name"], texts)


def _read_graph_streams(database: Database, calls: Records, stream: np.ndarray, texts: Codes) -> None:
    """Launches of HIP graphs state their stream in the text of their arguments only."""
    names = [code for text, code in texts.items() if text.endswith("GraphLaunch")]
    rows = np.flatnonzero(np.isin(calls["name"], names))
    if not len(rows):
        return
    arguments = database.integers("rocpd_api", ("id", "args_id"))
    ids = taken(arguments["args_id"], first_equal(arguments["id"], calls["correlation_id"][rows]))
    places, unique = pd.factorize(ids)
    found = database.texts("rocpd_ustring" if "rocpd_ustring" in database.tables else "rocpd_string", unique)
    stated = [_STREAM_ARGUMENT.search(found.get(number, "")) for number in unique.tolist()]
    stream[rows] = np.array([_address(match[1]) if match else ABSENT for match in stated], np.int64)[places]


def _operators_of_calls(calls: Records) -> np.ndarray:
    """For every runtime call the code of the name of the innermost operator around it, else -1."""
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
