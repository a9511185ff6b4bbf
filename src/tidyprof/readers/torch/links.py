"""Connects events on a device with the call that launched them and the operator that asked for it."""

from __future__ import annotations

import re

import numpy as np

from tidyprof.tables.codes import ABSENT, NO_TEXT
from tidyprof.tables.kinds import KIND_CODE, ON_DEVICE
from tidyprof.tables.launches import first_of_each, link, rows_of
from tidyprof.tables.records import Records, nothing

KIND_OF_CATEGORY = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "collective_comm": "collective",
    "cpu_op": "operator",
    "user_annotation": "annotation",
    "gpu_user_annotation": "annotation",
    "python_function": "annotation",
    "overhead": "runtime",
}
"""Kinds of the categories of Kineto (libkineto/src/ActivityType.cpp of https://github.com/pytorch/kineto).

Categories that end in _runtime, _driver or _sync are `runtime`; others are counted but not kept.
"""

_RUNTIME_CATEGORY = re.compile(r"_(runtime|driver|sync)$")


def kind_of_category(category: str | None) -> str | None:
    """The kind of complete events with this category, None if they are not kept."""
    kind = KIND_OF_CATEGORY.get(category or "")
    return "runtime" if kind is None and _RUNTIME_CATEGORY.search(category or "") else kind


def is_launching(category: str | None) -> bool:
    """Whether events of this category are calls that can start work on a device."""
    return (category or "").endswith(("_runtime", "_driver"))


def is_waiting(category: str | None) -> bool:
    """Whether events of this category are waits that CUPTI and XPU record on the device's row."""
    return (category or "").endswith("_sync")


def link_trace(records: Records, texts: list[str]) -> int:
    """Add launches and `operator` to the events of one file; complete `bytes`, `grid`, `block` from the launch.

    operator -- of device and runtime rows.
    Returns the number of calls with the correlation id of another one.
    """
    launching = np.array([is_launching(text) for text in texts], bool)
    is_call = launching[records["source_category"]] & (records["kind"] == KIND_CODE["runtime"])
    launches = link(records, is_call, records["rank"])
    on_device = ON_DEVICE[records["kind"]]
    for name in ("bytes", "grid", "block"):
        values, absent = records[name], nothing(name, 1)[0]
        missing = (values == absent) & (launches.call >= 0)
        values[missing] = values[launches.call[missing]]
        values[~on_device] = absent
    records["operator"] = _operators(records, on_device)
    return launches.shared


def _operators(records: Records, on_device: np.ndarray) -> np.ndarray:
    """Code of the name of the operator that owns the External id of a device or runtime row, else NO_TEXT.

    Older profilers wrote the correlation id as External id where there was no operator, which then names
    an unrelated one. So the operator must enclose the launch on its thread; where the launch is
    not in the file, the two identifiers must differ.
    """
    external, rank, start = records["external_id"], records["rank"], records["start_ns"]
    operators, _ = first_of_each(records, external, records["kind"] == KIND_CODE["operator"], rank)
    rows = np.flatnonzero(on_device | (records["kind"] == KIND_CODE["runtime"]))
    owner = rows_of(external, rank, rows, operators)
    rows = np.flatnonzero(owner >= 0)
    owner = owner[rows]
    called = np.where(on_device[rows], records["launch_ns"][rows], start[rows])
    thread = np.where(on_device[rows], records["launch_thread"][rows], records["thread"][rows])
    end = start[owner] + records["duration_ns"][owner]
    encloses = (start[owner] <= called) & (called <= end) & (thread == records["thread"][owner])
    plausible = (called == ABSENT) & (external[rows] != records["correlation_id"][rows])
    found = np.full(len(records), NO_TEXT, np.int32)
    proven = encloses | plausible
    found[rows[proven]] = records["name"][owner[proven]]
    return found
