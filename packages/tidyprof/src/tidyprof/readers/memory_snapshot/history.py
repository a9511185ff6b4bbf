"""Conversion of allocator actions to events, with the memory in use after each action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, Codes
from tidyprof.tables.records import Records

MAX_ROWS = 50_000_000
"""Maximum number of entries and blocks. Even a small file can exceed it, because it can refer to
the same list many times.
"""

MAX_CHARACTERS = 2**30
"""Maximum number of characters from one file. Even a small file can exceed it, because it can refer
to the same long string many times.
"""

_NO_LINE = 2**64 - 1
_PYTHON = re.compile(r"\.py$|^<|^/tmp/ipykernel")
_TORCH = re.compile(r"(^|/)torch/")


class Structure:
    """Accessor for the dictionaries in one file. Its methods raise ProfileReadError if a value
    doesn't match torch's format.

    - what: description of the expected file contents for the error message
    """

    def __init__(self, path: Path, what: str = "snapshot of PyTorch's allocator") -> None:
        self.path = path
        self._what = what
        self._rows = 0
        self._characters = 0

    def rows(self, holder: Any, key: str) -> list[dict[str, Any]]:
        """Return a list of dictionaries. If the list is missing, return an empty list."""
        found = holder.get(key, []) if isinstance(holder, dict) else None
        return self.dictionaries(found, key)

    def dictionaries(self, found: Any, what: str) -> list[dict[str, Any]]:
        """Return the list if it isn't too long and contains only dictionaries."""
        if not isinstance(found, list):
            raise self.wrong(what)
        self.count(len(found), what)
        if not all(isinstance(one, dict) for one in found):
            raise self.wrong(what)
        return found

    def count(self, more: int, what: str) -> None:
        """Add to the number of entries that have been read from the file."""
        self._rows += more
        if self._rows > MAX_ROWS:
            raise self.wrong(f"more than {MAX_ROWS} entries, {what}")

    def number(self, row: dict[str, Any], key: str) -> int:
        """Return a 64-bit integer, or ABSENT if the key is missing."""
        value = row.get(key, ABSENT)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise self.wrong(key)
        return value

    def stated(self, row: dict[str, Any], key: str, bits: int = 64) -> int:
        """Return a required integer that fits in this number of bits."""
        value = self.number(row, key)
        # The lowest number is excluded, because it is ABSENT.
        if not -(2 ** (bits - 1)) < value < 2 ** (bits - 1):
            raise self.wrong(key)
        return value

    def text(self, row: dict[str, Any], key: str) -> str:
        """Return a required string."""
        value = row.get(key)
        if not isinstance(value, str):
            raise self.wrong(key)
        self._characters += len(value)
        if self._characters > MAX_CHARACTERS:
            raise self.wrong(f"more than {MAX_CHARACTERS} characters, {key}")
        return value

    def frames(self, row: dict[str, Any]) -> list[str]:
        """Return the Python call stack, starting with the innermost frame. Each frame has the form
        `file(line): name`, or `file: name` if there is no line number.
        """
        return [
            f"{self.text(frame, 'filename')}{self._line(frame)}: {self.text(frame, 'name')}"
            for frame in self.rows(row, "frames")
            if _PYTHON.search(self.text(frame, "filename"))
        ]

    def _line(self, frame: dict[str, Any]) -> str:
        """Return the frame's line number in parentheses. Return "" if the number is -1, which means
        "no line" in Python. torch writes -1 as a uint64.
        """
        if frame.get("line") in (-1, _NO_LINE):
            return ""
        return f"({self.number(frame, 'line')})"

    def wrong(self, what: str) -> ProfileReadError:
        """Return the error for contents that don't match torch's format."""
        return ProfileReadError(
            self.path, f"the file isn't a {self._what} (unexpected content: {what})", *DAMAGED
        )


def own_lines(frames: list[str]) -> list[str]:
    """Return the stack frames outside torch."""
    return [frame for frame in frames if not _TORCH.search(frame)]


def source_line(frames: list[str]) -> str | None:
    """Return the innermost stack frame outside torch. If all frames are inside torch, return the
    innermost one. If the list is empty, return None.
    """
    return next(iter(own_lines(frames) or frames), None)


CHANGES = {
    "requested memory": {"alloc": 1, "free_completed": -1},
    "reserved memory": {
        "segment_alloc": 1,
        "segment_map": 1,
        "segment_free": -1,
        "segment_unmap": -1,
    },
}
"""How each action changes each quantity: 1 adds the action's size, and -1 subtracts it. The size of
an `alloc` is the requested size before rounding (record_trace in PyTorch's
c10/cuda/CUDACachingAllocator.cpp).
"""


def records_of(structure: Structure, snapshot: dict, texts: Codes) -> Records:
    """Return one event per action in file order. The additional column `device_free` contains the
    device's free memory.

    If no action has a time, the actions of each device are numbered instead, starting with 1.
    """
    traces = snapshot.get("device_traces", [])
    if not isinstance(traces, list):
        raise structure.wrong("device_traces")
    rows = [
        _row(structure, entry, device, texts)
        for device, trace in enumerate(traces)
        for entry in structure.dictionaries(trace, "device_traces")
    ]
    if is_without_times(snapshot):
        numbers = (number for trace in traces for number in range(1, len(trace) + 1))
        rows = [(number, *row[1:]) for number, row in zip(numbers, rows, strict=True)]
    names = (
        "start_ns",
        "device",
        "stream",
        "bytes",
        "address",
        "device_free",
        "name",
        "source_line",
    )
    # An array without rows has no columns until it is reshaped.
    values = np.array(rows, np.int64).reshape(-1, len(names)).T.copy()
    columns = dict(zip(names, values, strict=True))
    for name in ("name", "source_line"):
        columns[name] = columns[name].astype(np.int32)
    columns["duration_ns"] = np.zeros(len(rows), np.int64)
    columns["kind"] = np.full(len(rows), KIND_CODE["runtime"], np.int8)
    columns["source_category"] = np.full(
        len(rows), texts["device_traces"] if rows else NO_TEXT, np.int32
    )
    return Records(columns)


def is_without_times(snapshot: dict) -> bool:
    """Return True if there are actions but none of them has a time. Versions of torch before 2.2
    write such files.
    """
    entries = [entry for trace in snapshot.get("device_traces", []) for entry in trace]
    return bool(entries) and not any("time_us" in entry for entry in entries)


def _row(structure: Structure, entry: dict, device: int, texts: Codes) -> tuple[int, ...]:
    action = structure.text(entry, "action")
    is_oom = action == "oom"
    time_us = structure.number(entry, "time_us")
    line = source_line(structure.frames(entry))
    return (
        ABSENT if abs(time_us) > 2**52 else 1000 * time_us,
        device,
        structure.number(entry, "stream"),
        structure.number(entry, "size"),
        ABSENT if is_oom else structure.number(entry, "addr"),
        # For `oom`, PyTorch stores the free memory in the address field.
        structure.number(entry, "device_free" if "device_free" in entry else "addr")
        if is_oom
        else ABSENT,
        texts[action],
        NO_TEXT if line is None else texts[line],
    )


def failed_allocations(records: Records, texts: Codes) -> list[dict[str, Any]]:
    """Return the failed allocations in file order. Each entry contains `device`, `requested_bytes`,
    the device's `free_bytes`, and `source_line`. Missing values are None.
    """
    labels = list(texts)
    return [
        {
            "device": int(records["device"][row]),
            "requested_bytes": _stated(records["bytes"][row]),
            "free_bytes": _stated(records["device_free"][row]),
            "source_line": None
            if records["source_line"][row] == NO_TEXT
            else labels[records["source_line"][row]],
        }
        for row in np.flatnonzero(records["name"] == texts.get("oom", NO_TEXT))
    ]


def _stated(number: np.int64) -> int | None:
    return None if number == ABSENT else int(number)


def memory_over_time(
    records: Records, final: dict[tuple[str, int], int], texts: Codes, warnings: list[str]
) -> Iterator[pd.DataFrame]:
    """Yield the size of a quantity in bytes after each action that changed it. Also yield the free
    memory at each failed allocation.

    The beginning of the history may be missing, so the sizes are computed backward from the final
    state. A negative size means that actions are missing. In that case, the function adds a warning
    and doesn't yield any samples.

    - final: bytes of each quantity on each device when the snapshot was taken
    """
    for quantity, signs in CHANGES.items():
        # Float sums don't overflow, and they are exact up to 2**53 bytes.
        sign = np.zeros(len(records))
        for action, of_action in signs.items():
            sign[records["name"] == texts.get(action, NO_TEXT)] = of_action
        for device in np.unique(records["device"][sign != 0]).tolist():
            rows = (records["device"] == device) & (sign != 0)
            change = (sign * records["bytes"])[rows]
            before = float(final.get((quantity, device), 0)) - np.cumsum(change[::-1])[::-1]
            if (np.minimum(before, before + change) >= 0).all():
                yield _samples(records, rows, quantity, before + change)
            else:
                warnings.append(
                    f"{quantity} of device {device} has no samples. The size over time is unknown,"
                    " because actions are missing from the history."
                )
    failed = records["device_free"] != ABSENT
    yield _samples(records, failed, "free memory", records["device_free"][failed])


def _samples(records: Records, rows: np.ndarray, name: str, value: np.ndarray) -> pd.DataFrame:
    columns = {
        "time_ns": records["start_ns"][rows],
        "device": records["device"][rows],
        "name": name,
    }
    return pd.DataFrame(columns | {"value": value.astype(float), "unit": "bytes"})
