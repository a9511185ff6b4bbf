"""The event table and the counter table from columns of numbers and codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.readers.torch.events import ABSENT, CodeTables, Event, integers, nanoseconds
from tidyprof.tables.contract import KINDS, empty_counters
from tidyprof.tables.event_blocks import categorical, nullable, shortened, used_codes
from tidyprof.tables.kind_codes import ON_DEVICE

_CPU = 0
"""Device type of the host's memory in PyTorch (c10/core/DeviceType.h)."""


def event_table(columns: dict[str, np.ndarray], tables: CodeTables) -> pd.DataFrame:
    """Columns with absolute starts as the table that `read_torch_trace` documents; empties `columns`."""
    order = np.argsort(columns["start"], kind="stable")
    for name in tuple(columns):
        columns[name] = columns[name][order]
    on_device = ON_DEVICE[columns["kind"]]
    names = list(tables.names)
    short_names = shortened(names, used_codes(columns["name"][on_device], len(names)))
    name_codes = columns.pop("name")
    frame = {
        "rank": nullable(columns.pop("rank"), "Int32"),
        "process": nullable(columns.pop("process"), "Int64"),
        "thread": nullable(columns.pop("thread"), "Int64"),
        "device": nullable(columns.pop("device"), "Int32"),
        "stream": nullable(columns.pop("stream"), "Int64"),
        "kind": pd.Categorical.from_codes(columns.pop("kind"), KINDS),
        "name": _categorical(name_codes, names),
        "short_name": _categorical(name_codes, short_names),
        "start_ns": columns.pop("start"),
        "duration_ns": columns.pop("duration"),
        "correlation_id": nullable(columns.pop("correlation"), "Int64"),
        "source_category": _categorical(columns.pop("category"), tables.categories),
        "external_id": nullable(columns.pop("external"), "Int64"),
        "operator": _categorical(columns.pop("operator"), names),
        "collective": _categorical(columns.pop("collective"), tables.collectives),
        "bytes": nullable(columns.pop("bytes"), "Int64"),
        "grid": _categorical(columns.pop("grid"), tables.lists, _list),
        "block": _categorical(columns.pop("block"), tables.lists, _list),
        "input_shapes": _categorical(columns.pop("input_shapes"), tables.lists, _list),
        "input_types": _categorical(columns.pop("input_types"), tables.lists, _list),
        "launch_ns": nullable(columns.pop("launch"), "Int64"),
        "launch_thread": nullable(columns.pop("launch_thread"), "Int64"),
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
    devices = nullable(device, "Int32")
    for name, attribute in (("allocated memory", "allocated"), ("reserved memory", "reserved")):
        value = integers([getattr(argument, attribute) for argument in arguments])
        part = {"time_ns": time, "device": devices, "name": name, "value": value.astype(float)}
        known = pd.DataFrame(part).assign(unit="bytes")[value != ABSENT]
        if len(known):
            yield known


def _list(text: bytes) -> str | None:
    """`[256, 1, 1]` of the JSON text of a list, whatever its white space, None where there is none."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False) if text else None
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace")


def _categorical(codes: np.ndarray, values: Iterable[Any], text: Callable[[Any], str | None] = lambda v: v) -> Any:
    """Sorted categories of the values in use; codes below 0 and values without text are missing."""
    labels = [text(value) for value in values]
    # Code -1 reads the last place.
    known = np.array([*(-1 if label is None else place for place, label in enumerate(labels)), -1], np.int32)
    return categorical(known[codes], [label or "" for label in labels])
