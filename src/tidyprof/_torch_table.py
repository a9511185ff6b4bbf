"""The event table and the counter table from columns of numbers and codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from tidyprof._torch_events import ABSENT, CodeTables, Event, integers, nanoseconds
from tidyprof._torch_kinds import ON_DEVICE
from tidyprof.names import short_name
from tidyprof.profile import KINDS, empty_counters

_CPU = 0
"""Device type of the host's memory in PyTorch (c10/core/DeviceType.h)."""


def event_table(columns: dict[str, np.ndarray], tables: CodeTables) -> pd.DataFrame:
    """Columns with absolute starts as the table that `read_torch_trace` documents; empties `columns`."""
    order = np.argsort(columns["start"], kind="stable")
    for name in tuple(columns):
        columns[name] = columns[name][order]
    on_device = ON_DEVICE[columns["kind"]]
    names = list(tables.names)
    shortened = _shortened(names, np.unique(columns["name"][on_device]))
    name_codes = columns.pop("name")
    frame = {
        "rank": _nullable(columns.pop("rank"), "Int32"),
        "process": _nullable(columns.pop("process"), "Int64"),
        "thread": _nullable(columns.pop("thread"), "Int64"),
        "device": _nullable(columns.pop("device"), "Int32"),
        "stream": _nullable(columns.pop("stream"), "Int64"),
        "kind": pd.Categorical.from_codes(columns.pop("kind"), KINDS),
        "name": _categorical(name_codes, names),
        "short_name": _categorical(name_codes, shortened),
        "start_ns": columns.pop("start"),
        "duration_ns": columns.pop("duration"),
        "correlation_id": _nullable(columns.pop("correlation"), "Int64"),
        "source_category": _categorical(columns.pop("category"), tables.categories),
        "external_id": _nullable(columns.pop("external"), "Int64"),
        "operator": _categorical(columns.pop("operator"), names),
        "collective": _categorical(columns.pop("collective"), tables.collectives),
        "bytes": _nullable(columns.pop("bytes"), "Int64"),
        "grid": _categorical(columns.pop("grid"), tables.shapes, _shape),
        "block": _categorical(columns.pop("block"), tables.shapes, _shape),
        "launch_ns": _nullable(columns.pop("launch"), "Int64"),
        "launch_thread": _nullable(columns.pop("launch_thread"), "Int64"),
    }
    return pd.DataFrame(frame, copy=False)


def counter_table(files: Iterable[tuple[list[Event], int]]) -> pd.DataFrame:
    """Samples of the allocator (`profile_memory=True`) of one or more files, each with its base time in ns.

    Two rows for each sample, in bytes; `device` is <NA> for the host's memory.
    """
    parts = [part for samples, base_ns in files for part in _memory(samples, base_ns)]
    if not parts:
        return empty_counters()
    table = pd.concat(parts).sort_values("time_ns", kind="stable", ignore_index=True)
    return table.astype({"name": "category", "unit": "category"})


def _memory(samples: list[Event], base_ns: int) -> Iterator[pd.DataFrame]:
    samples = [sample for sample in samples if sample.args]
    arguments = [sample.args for sample in samples]
    time = base_ns + nanoseconds(np.array([sample.ts for sample in samples], np.float64))
    device = integers([argument.memory_device for argument in arguments])
    device[integers([argument.memory_device_type for argument in arguments]) == _CPU] = ABSENT
    for name, attribute in (("allocated memory", "allocated"), ("reserved memory", "reserved")):
        value = integers([getattr(argument, attribute) for argument in arguments])
        part = {"time_ns": time, "device": _nullable(device, "Int32"), "name": name, "value": value.astype(float)}
        known = pd.DataFrame(part).assign(unit="bytes")[value != ABSENT]
        if len(known):
            yield known


def _shortened(names: list[str], used: np.ndarray) -> list[str]:
    """Short names of the kernels among `names`; names of host events are readable as they are."""
    result = list(names)
    for code in used.tolist():
        result[code] = short_name(names[code])
    return result


def _shape(text: bytes) -> str | None:
    """`[256, 1, 1]` of the JSON text of a grid or block, None where there is none."""
    return text.decode("utf-8", "replace").translate(str.maketrans("", "", " \t\r\n")).replace(",", ", ") or None


def _categorical(codes: np.ndarray, values: Iterable[Any], text: Callable[[Any], str | None] = lambda v: v) -> Any:
    """Sorted categories of the values in use; codes below 0 and values without text are missing."""
    labels = [text(value) for value in values]
    used = [code for code in np.unique(codes).tolist() if code >= 0 and labels[code] is not None]
    categories = sorted({labels[code] for code in used})
    places = {label: place for place, label in enumerate(categories)}
    translation = np.full(len(labels) + 1, -1, np.int32)
    for code in used:
        translation[code] = places[labels[code]]
    # Code -1 reads the last place of `translation`, which stays -1.
    return pd.Categorical.from_codes(translation[codes], pd.Index(categories, dtype="str"))


def _nullable(values: np.ndarray, dtype: str) -> pd.arrays.IntegerArray:
    """Integers with <NA> for ABSENT and for what the type cannot hold."""
    target = np.dtype(dtype.lower())
    limits = np.iinfo(target)
    missing = (values == ABSENT) | (values < limits.min) | (values > limits.max)
    return pd.arrays.IntegerArray(np.where(missing, 1, values).astype(target, copy=False), missing)
