"""Events from a rocpd database: kernels, copies, allocations, calls, ranges and samples."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.io.sqlite import NAMELESS, quoted, text_codes
from tidyprof.readers.rocpd.tables import Machine, ProcessTables
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    Codes,
    first_equal,
    mapped,
    refined,
    shape_codes,
    taken,
)
from tidyprof.tables.damage import durations, refuse_repeated, without_damage
from tidyprof.tables.records import Records, no_records

_MARKER = re.compile(r"(rocm_)?marker", re.IGNORECASE)
_CALL = re.compile(r"api|rccl|nccl|ompt|kfd|mpi|allocation|scratch", re.IGNORECASE)
_SIZES = {"group_segment_size": "lds_bytes", "private_segment_size": "scratch_bytes"}
_REGISTERS = {"arch_vgpr_count": "vgprs", "accum_vgpr_count": "accum_vgprs", "sgpr_count": "sgprs"}
_GRID = ("grid_size_x", "grid_size_y", "grid_size_z")
_WORKGROUP = ("workgroup_size_x", "workgroup_size_y", "workgroup_size_z")


@dataclass
class Events:
    """The event table, which all other tables refer to.

    - identifiers: identifier of each row
    - category: code of the category string, or -1 if there is no category
    - correlation: the tool's correlation ID (`stack_id`) as int64. A call has the same correlation
      ID as the work that it launched.
    """

    identifiers: np.ndarray
    category: np.ndarray
    correlation: np.ndarray

    def of(self, event_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the category and correlation ID of each event."""
        row = first_equal(self.identifiers, event_ids)
        return taken(self.category, row, -1), taken(self.correlation, row)


def read_events(tables: ProcessTables, texts: Codes) -> Events:
    """Read all rows of rocpd_event."""
    found = tables.integers("event", ("id", "category_id", "stack_id"))
    correlation = found["stack_id"]
    correlation[correlation <= 0] = ABSENT
    return Events(found["id"], _texts(tables, found["category_id"], texts), correlation)


def read_kernels(tables: ProcessTables, machine: Machine, events: Events, texts: Codes) -> Records:
    """Read kernel dispatches with their times, device, stream, queue and shape. Also read the
    registers and memory that the compiler allocated.
    """
    columns = (
        "id",
        "tid",
        "agent_id",
        "kernel_id",
        "start",
        "end",
        "event_id",
        *_GRID,
        *_WORKGROUP,
    )
    found = tables.integers(
        "kernel_dispatch", columns, ("dispatch_id", "queue_id", "stream_id", *_SIZES)
    )
    refuse_repeated(tables.database.path, "kernel dispatches", found["id"])
    category, correlation = events.of(found["event_id"])
    rows = Records(
        {
            **{name: found[column] for column, name in _SIZES.items() if column in found},
            **_registers(tables, found["kernel_id"]),
            "kind": np.full(len(category), KIND_CODE["kernel"], np.int8),
            "name": _kernel_names(tables, found["kernel_id"], texts),
            "source_category": category,
            "correlation_id": correlation,
            "device": mapped(found["agent_id"], machine.devices),
            "thread": mapped(found["tid"], machine.threads),
            "grid": shape_codes([found[axis] for axis in _GRID], texts),
            "block": shape_codes([found[axis] for axis in _WORKGROUP], texts),
            **_times(found),
            **({"dispatch_id": found["dispatch_id"]} if "dispatch_id" in found else {}),
            **_queues(found),
        }
    )
    without_damage(tables.database.path, rows, {NAMELESS: rows["name"] == NO_TEXT})
    rows["kind"] = refined(rows["kind"], rows["name"], texts)
    return rows


def read_copies(tables: ProcessTables, machine: Machine, events: Events, texts: Codes) -> Records:
    """Read copies. The device of a copy is the target, or the source if the target isn't a GPU."""
    columns = ("tid", "start", "end", "name_id", "size", "event_id")
    optional = ("dst_agent_id", "src_agent_id", "queue_id", "stream_id")
    found = tables.integers("memory_copy", columns, optional)
    category, correlation = events.of(found["event_id"])
    nowhere = np.full(len(category), ABSENT, np.int64)
    target, source = (mapped(found.get(agent, nowhere), machine.devices) for agent in optional[:2])
    rows = Records(
        {
            "kind": np.full(len(category), KIND_CODE["copy"], np.int8),
            "name": _texts(tables, found["name_id"], texts),
            "source_category": category,
            "correlation_id": correlation,
            "device": np.where(target == ABSENT, source, target),
            "source_device": source,
            "destination_device": target,
            "thread": mapped(found["tid"], machine.threads),
            "bytes": found["size"],
            **_times(found),
            **_queues(found),
        }
    )
    without_damage(tables.database.path, rows, {NAMELESS: rows["name"] == NO_TEXT})
    return rows


def read_calls(tables: ProcessTables, machine: Machine, events: Events, texts: Codes) -> Records:
    """Read host calls and marked ranges. The name of a roctx range is its message."""
    found = tables.integers("region", ("pid", "tid", "start", "end", "name_id", "event_id"))
    category, correlation = events.of(found["event_id"])
    kinds = np.array([*(_call_kind(text) for text in texts), KIND_CODE["annotation"]], np.int8)
    rows = Records(
        {
            "kind": kinds[category],
            "name": _texts(tables, found["name_id"], texts),
            "source_category": category,
            "correlation_id": correlation,
            "process": mapped(found["pid"], machine.processes),
            "thread": mapped(found["tid"], machine.threads),
            **_times(found),
        }
    )
    _name_markers(tables, rows, texts)
    without_damage(tables.database.path, rows, {NAMELESS: rows["name"] == NO_TEXT})
    return rows


def read_allocations(
    tables: ProcessTables, machine: Machine, events: Events, texts: Codes
) -> Records:
    """Read allocations and releases of GPU memory, with names such as `ALLOC` and `FREE`."""
    table = "memory_allocate"
    if not tables.has(table, "type"):
        return no_records()
    found = tables.integers(table, ("pid", "tid", "start", "end", "agent_id", "size", "event_id"))
    category, correlation = events.of(found["event_id"])
    codes, labels = tables.database.coded_texts(tables.name(table), "type")
    of_labels = np.array([texts[label] for label in labels], np.int32)
    rows = Records(
        {
            "kind": np.full(len(category), KIND_CODE["runtime"], np.int8),
            "name": of_labels[codes] if labels else category,
            "source_category": category,
            "correlation_id": correlation,
            "process": mapped(found["pid"], machine.processes),
            "thread": mapped(found["tid"], machine.threads),
            "memory_device": mapped(found["agent_id"], machine.devices),
            "bytes": found["size"],
            **_times(found),
        }
    )
    without_damage(tables.database.path, rows, {NAMELESS: rows["name"] == NO_TEXT})
    return rows


def read_samples(
    tables: ProcessTables,
    machine: Machine,
    events: Events,
    texts: Codes,
    counted_events: np.ndarray,
) -> tuple[Records, np.ndarray]:
    """Read samples, which are points in time on the host. The name of a sample is its message, or
    the track's name if there is no message. Also return the event and the time in nanoseconds of
    every sample.

    - counted_events: events with counter values, which don't become rows
    """
    if not tables.has("sample", "timestamp") or not tables.has("track", "name_id"):
        return no_records(), np.empty((2, 0), np.int64)
    found = tables.integers("sample", ("track_id", "timestamp", "event_id"))
    track = tables.integers("track", ("id", "pid", "tid", "name_id"))
    track_row = first_equal(track["id"], found["track_id"])
    category, correlation = events.of(found["event_id"])
    rows = Records(
        {
            "kind": np.full(len(category), KIND_CODE["sample"], np.int8),
            "name": taken(_texts(tables, track["name_id"], texts), track_row, -1),
            "source_category": category,
            "correlation_id": correlation,
            "process": mapped(taken(track["pid"], track_row), machine.processes),
            "thread": mapped(taken(track["tid"], track_row), machine.threads),
            "start_ns": found["timestamp"],
            "duration_ns": np.where(found["timestamp"] == ABSENT, ABSENT, 0),
            "event_id": found["event_id"],
        }
    )
    # Counters need the times of all samples, including those that are left out here.
    times = np.stack([found["event_id"], found["timestamp"]])
    rows.keep(~np.isin(found["event_id"], counted_events))
    _name_markers(tables, rows, texts)
    without_damage(tables.database.path, rows, {NAMELESS: rows["name"] == NO_TEXT})
    return rows, times


def _texts(tables: ProcessTables, ids: np.ndarray, texts: Codes) -> np.ndarray:
    return text_codes(tables.database, ids, texts, tables.name("string"))


def _kernel_names(tables: ProcessTables, kernel_ids: np.ndarray, texts: Codes) -> np.ndarray:
    names = {
        number: display or mangled
        for number, display, mangled in tables.rows(
            "info_kernel_symbol", "id", "display_name", "kernel_name"
        )
        if isinstance(display or mangled, str)
    }
    positions, unique = pd.factorize(kernel_ids)
    codes = [texts[names[number]] if number in names else -1 for number in unique.tolist()]
    return np.array([*codes, -1], np.int32)[positions]


def _registers(tables: ProcessTables, kernel_ids: np.ndarray) -> dict[str, np.ndarray]:
    present = [column for column in _REGISTERS if tables.has("info_kernel_symbol", column)]
    symbols = tables.integers("info_kernel_symbol", ("id", *present))
    row = first_equal(symbols["id"], kernel_ids)
    return {_REGISTERS[column]: taken(symbols[column], row) for column in present}


def _times(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        "start_ns": found["start"],
        "duration_ns": durations(found["start"], found["end"]),
        "event_id": found["event_id"],
    }


def _queues(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: found[f"{name}_id"] for name in ("queue", "stream") if f"{name}_id" in found}


def _call_kind(category: str) -> int:
    if _MARKER.match(category) or not _CALL.search(category):
        return KIND_CODE["annotation"]
    return KIND_CODE["runtime"]


def _name_markers(tables: ProcessTables, rows: Records, texts: Codes) -> None:
    """Name roctx ranges and points after their messages, which are stored in the extra data of the
    events.
    """
    # Read only markers, because the extra data of all events is large.
    marking = [text for text in texts if _MARKER.match(text)]
    categories = [number for number, text in _categories(tables) if text in marking]
    if not categories:
        return
    event = quoted(tables.name("event"))
    condition = f"category_id IN ({', '.join(map(str, categories))})"
    messages: dict[int, int] = {}
    for number, data in tables.database.rows(f"SELECT id, extdata FROM {event} WHERE {condition}"):
        message = _message(data)
        if message:
            messages[number] = texts[message]
    code = mapped(rows["event_id"], messages)
    rows["name"] = np.where(code == ABSENT, rows["name"], code).astype(np.int32)


def _categories(tables: ProcessTables) -> list[tuple[int, str]]:
    event, string = quoted(tables.name("event")), quoted(tables.name("string"))
    found = tables.database.rows(
        f"SELECT id, string FROM {string} WHERE id IN (SELECT DISTINCT category_id FROM {event})"
    )
    return [
        (number, text)
        for number, text in found
        if isinstance(number, int) and isinstance(text, str)
    ]


def _message(data: Any) -> str | None:
    try:
        message = json.loads(data).get("message")
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
    return message if isinstance(message, str) else None
