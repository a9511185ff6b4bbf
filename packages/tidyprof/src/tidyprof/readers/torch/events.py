"""torch.profiler events, and their conversion to columns of numbers and codes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, ON_DEVICE, Codes, nullable
from tidyprof.tables.damage import LATEST_START_NS
from tidyprof.tables.records import GrowingRecords, Records, nothing

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
"""Kinds of Kineto's event categories (libkineto/src/ActivityType.cpp of
https://github.com/pytorch/kineto).

Categories that end in `_runtime`, `_driver` or `_sync` have the kind `runtime`. Events in other
categories are only counted.
"""

_TODAY = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
"""Current names of Kineto's categories from 2021."""

_OLD_RANGE = re.compile(r"(ProfilerStep|enumerate\(DataLoader\)|Optimizer\.(step|zero_grad))#")
"""Pattern for ranges that torch itself writes. In 2021, these ranges had the category
`Operator`.
"""

MEMORY_CATEGORY = "cpu_instant_event"
WINDOW_CATEGORY = "Trace"


def kind_of_category(category: str | None) -> str | None:
    """Return the kind of complete events in this category, or None if such events aren't kept."""
    kind = KIND_OF_CATEGORY.get(category or "")
    return kind or ("runtime" if is_launching(category) or is_waiting(category) else None)


def is_known(category: str) -> bool:
    """Return True if events in this category become rows or samples, or if they mark the profiler's
    span.
    """
    return kind_of_category(category) is not None or category in (MEMORY_CATEGORY, WINDOW_CATEGORY)


def is_launching(category: str | None) -> bool:
    """Return True if events in this category are calls that can start work on a device."""
    return (category or "").endswith(("_runtime", "_driver"))


def is_waiting(category: str | None) -> bool:
    """Return True if events in this category are waits for a device. CUPTI and XPU record such
    events.
    """
    return (category or "").endswith("_sync")


EXACT_FLOAT_US = 2.0**43
"""Time limit in microseconds, which is 102 days. Below this limit, doubles are at most 0.98 ns
apart, so each nanosecond has a different double.
"""

_LASTING = ("X", "B", "E", "")
"""Phases of events that have a category. An empty string means that an event has no phase. Process
names (M) and marks (i) have no category.
"""

_Integer = int | str | None
_Number = int | float | str | None
_ARGUMENT_NAMES = {
    "external_id": "External id",
    "old_external_id": "external id",
    "correlation_id": "correlation",
    "process": "pid_raw",
    "fused_correlation_id": "correlation_raw",
    "collective": "Collective name",
    "sent_elements": "In msg nelems",
    "received_elements": "Out msg nelems",
    "element_type": "dtype",
    "group_size": "Group size",
    "input_shapes": "Input Dims",
    "input_types": "Input type",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "memory_device": "Device Id",
    "memory_device_type": "Device Type",
}

_ELEMENTS_OF_BYTES = {
    1: "Byte Char Bool Float8_e5m2 Float8_e4m3fn Float8_e5m2fnuz Float8_e4m3fnuz Float8_e8m0fnu",
    2: "Short UInt16 Half BFloat16",
    4: "Int UInt32 Float ComplexHalf",
    8: "Long UInt64 Double ComplexFloat",
    16: "ComplexDouble",
}
ELEMENT_BYTES = {name: size for size, names in _ELEMENTS_OF_BYTES.items() for name in names.split()}
"""Number of bytes per element for each element type. torch uses these type names in a collective's
`dtype`.

The names come from AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS in
torch/headeronly/core/ScalarType.h (https://github.com/pytorch/pytorch).
"""

_LAUNCH_NUMBERS = ("device", "stream", "correlation_id", "bytes")
_LAUNCH_LISTS, _OPERATOR_LISTS = ("grid", "block"), ("input_shapes", "input_types")
"""Columns of launches and device events, and columns of operators."""


class Arguments(msgspec.Struct, gc=False, rename=_ARGUMENT_NAMES):
    """Members of an event's `args` that tidyprof uses."""

    external_id: _Integer = ABSENT
    old_external_id: _Integer = ABSENT
    rank: _Integer = ABSENT
    process: _Integer = ABSENT
    fused_correlation_id: _Integer = ABSENT
    finished: bool | int | str | None = None
    device: _Integer = ABSENT
    stream: _Integer = ABSENT
    correlation_id: _Integer = ABSENT
    collective: str | None = None
    sent_elements: _Number = ABSENT
    received_elements: _Number = ABSENT
    element_type: Any = None
    group_size: _Number = ABSENT
    bytes: _Number = ABSENT
    size: _Number = ABSENT
    grid: msgspec.Raw = msgspec.Raw(b"")
    block: msgspec.Raw = msgspec.Raw(b"")
    input_shapes: msgspec.Raw = msgspec.Raw(b"")
    input_types: msgspec.Raw = msgspec.Raw(b"")
    allocated: _Integer = ABSENT
    reserved: _Integer = ABSENT
    memory_device: _Integer = ABSENT
    memory_device_type: _Integer = ABSENT


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` are in microseconds."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: _Integer = None
    tid: _Integer = None
    ts: float | None = None
    dur: float | None = None
    args: Arguments | None = None


class _ExactTime(msgspec.Struct, gc=False):
    ts: int | Decimal | None = None


decode_events: Callable[[bytes], list[Event]] = msgspec.json.Decoder(list[Event]).decode
_decode_exact_times = msgspec.json.Decoder(list[_ExactTime]).decode
_NO_ARGUMENTS = Arguments()


def no_texts() -> Codes:
    """Create codes for strings and for JSON lists, which are stored as bytes. None and the empty
    list have no code.
    """
    return Codes({None: NO_TEXT, b"": NO_TEXT})


def readable(texts: Codes) -> list[str]:
    """Return the string for each code. A list becomes a string such as `[256, 1, 1]`, regardless of
    the spaces in the file.
    """
    return [text if isinstance(text, str) else _list(text or b"") for text in texts]


@lru_cache(2**12)
def _list(text: bytes) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False) if text else ""
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace")


def integers(values: Sequence[Any]) -> np.ndarray:
    """Convert integers and decimal strings to int64. All other values become ABSENT."""
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(_integer, values), np.int64, len(values))


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return ABSENT
    return number if abs(number) < 2**63 else ABSENT


def nanoseconds(microseconds: np.ndarray) -> np.ndarray:
    """Convert float64 microseconds to whole nanoseconds (int64). The result is exact below
    EXACT_FLOAT_US, and it is ABSENT for NaN.

    Numbers that are too large to be a time remain too large. The fraction is scaled separately,
    because scaling the whole number would round a second time.
    """
    unknown = np.isnan(microseconds)
    microseconds = np.clip(
        np.where(unknown, 0, microseconds), -LATEST_START_NS / 1000, LATEST_START_NS / 1000
    )
    whole = np.floor(microseconds)
    exact = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return np.where(unknown, ABSENT, exact)


class EventColumns:
    """Events of one file that become rows, collected as columns of `Records`.

    The additional column `unfinished` is an int8. Start times are relative to the file's base time.

    - by_category: number of events in every category, including categories that aren't kept
    - lost: number of incomplete events for each reason
    - unknown: number of complete events in each unknown category
    - kinds: kind of each category whose events became rows
    - memory: events from the memory allocator
    """

    def __init__(self, texts: Codes, python_functions: bool = False) -> None:
        self.texts = texts
        self.by_category: Counter[str | None] = Counter()
        self.lost: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.kinds: dict[str | None, int] = {}
        self.memory: list[Event] = []
        self._left_out = () if python_functions else ("python_function",)
        self._records = GrowingRecords()

    def add(self, events: list[Event], text: bytes) -> None:
        """Add a batch. `text` is the JSON list of the batch."""
        # Most batches have only a few categories, so count them first and process only these.
        counts = Counter([event.cat for event in events])
        if _TODAY.keys() & counts:
            for event in events:
                is_range = event.cat == "Operator" and _OLD_RANGE.match(event.name)
                event.cat = "user_annotation" if is_range else _TODAY.get(event.cat, event.cat)
            counts = Counter([event.cat for event in events])
        self.by_category += counts
        for category in counts:
            kind = kind_of_category(category)
            if kind and category not in self._left_out:
                self.kinds[category] = KIND_CODE[kind]
        kinds = self.kinds
        rows = [row for row, one in enumerate(events) if one.cat in kinds and one.ph == "X"]
        self.lost["without begin or end"] += sum(counts[category] for category in kinds) - len(rows)
        if counts[None]:
            self.lost["without a category"] += sum(
                one.cat is None and one.ph in _LASTING for one in events
            )
        strange = {category for category in counts if category and not is_known(category)}
        if strange:
            self.unknown += Counter(
                one.cat for one in events if one.cat in strange and one.ph == "X"
            )
        if counts[MEMORY_CATEGORY]:
            self.memory += [one for one in events if one.cat == MEMORY_CATEGORY and one.ts]
        kept = [events[row] for row in rows]
        start_us = np.array([one.ts for one in kept], np.float64)
        start = nanoseconds(start_us)
        if np.nanmax(start_us, initial=0) >= EXACT_FLOAT_US:
            # A double can't represent these times exactly.
            times = _decode_exact_times(text)
            start = np.array([_exact(times[row].ts or 0) for row in rows], np.int64)
        self._records.append(_records(kept, start, self.texts, kinds))

    def collected(self) -> Records:
        """Return all collected events of the file."""
        records = self._records.collected()
        _separate_device_rows(records, self.texts)
        return records


def _exact(microseconds: int | Decimal) -> int:
    return min(int((Decimal(microseconds) * 1000).to_integral_value()), LATEST_START_NS)


def _records(
    kept: list[Event], start_ns: np.ndarray, texts: Codes, kinds: dict[str | None, int]
) -> Records:
    arguments = [event.args or _NO_ARGUMENTS for event in kept]
    external, older = (_column(arguments, name) for name in ("external_id", "old_external_id"))
    finished = [one.finished for one in arguments]
    # Usually there is none. If there may be one, check each mark, because 0 equals False here.
    unfinished = [mark is False for mark in finished] if False in finished else len(kept) * [False]
    records = Records(
        {
            "start_ns": start_ns,
            "duration_ns": nanoseconds(np.array([event.dur for event in kept], np.float64)),
            "name": texts.of(event.name for event in kept),
            "source_category": texts.of(event.cat for event in kept),
            "kind": np.array([kinds[event.cat] for event in kept], np.int8),
            "process": integers([event.pid for event in kept]),
            "thread": integers([event.tid for event in kept]),
            "external_id": np.where(external == ABSENT, older, external),
            "rank": _column(arguments, "rank"),
            "unfinished": np.array(unfinished, np.int8),
        }
    )
    kind = records["kind"]
    is_launch = (kind == KIND_CODE["runtime"]) | ON_DEVICE[kind]
    rows, chosen = _chosen(arguments, is_launch)
    for name in _LAUNCH_NUMBERS:
        _add(records, name, rows, _column(chosen, name))
    size = _column(chosen, "size")
    records["bytes"][rows] = np.where(size == ABSENT, records["bytes"][rows], size)
    _add(records, "collective", rows, texts.of(one.collective for one in chosen))
    for name in _LAUNCH_LISTS:
        _add(records, name, rows, texts.of(map(bytes, map(attrgetter(name), chosen))))
    _add_messages(records, arguments)
    rows, chosen = _chosen(arguments, kind == KIND_CODE["operator"])
    for name in _OPERATOR_LISTS:
        _add(records, name, rows, texts.of(map(bytes, map(attrgetter(name), chosen))))
    # TraceLens's TraceFuse shifts process numbers and correlation IDs to keep ranks apart.
    if (records["rank"] != ABSENT).any():
        for name, member in (("process", "process"), ("correlation_id", "fused_correlation_id")):
            original = _column(arguments, member)
            records[name] = np.where(original == ABSENT, records[name], original)
    return records


def _column(arguments: list[Arguments], member: str) -> np.ndarray:
    return integers([*map(attrgetter(member), arguments)])


def _chosen(arguments: list[Arguments], where: np.ndarray) -> tuple[np.ndarray, list[Arguments]]:
    rows = np.flatnonzero(where)
    return rows, [arguments[row] for row in rows.tolist()]


def _add(records: Records, name: str, rows: np.ndarray, values: np.ndarray) -> None:
    records[name] = nothing(name, len(records))
    records[name][rows] = values


def _add_messages(records: Records, arguments: list[Arguments]) -> None:
    """Add the bytes and the group size of events with data about a collective operation. There are
    only a few such events.
    """
    rows, chosen = _chosen(arguments, records["collective"] != NO_TEXT)
    sent, received = (_column(chosen, name) for name in ("sent_elements", "received_elements"))
    size = integers([ELEMENT_BYTES.get(str(one.element_type), 0) for one in chosen])
    elements = np.maximum(sent, received)
    # An element count whose bytes don't fit in 64 bits is damage.
    known = (size > 0) & (np.minimum(sent, received) >= 0) & (elements < 2**58)
    records["bytes"][rows[known]] = (elements * size)[known]
    _add(records, "group_size", rows, _column(chosen, "group_size"))


def _separate_device_rows(records: Records, texts: Codes) -> None:
    """Set device, stream, process and thread. In a Chrome trace, rows of device events store the
    device in the process field and the stream in the thread field.
    """
    category = records["source_category"]
    waiting = [code for text, code in texts.items() if isinstance(text, str) and is_waiting(text)]
    on_device = ON_DEVICE[records["kind"]] | (category == texts["gpu_user_annotation"])
    on_device |= np.isin(category, waiting) & (records["device"] != ABSENT)
    for column, stand_in in (("device", "process"), ("stream", "thread")):
        values = np.where(records[column] == ABSENT, records[stand_in], records[column])
        records[column] = np.where(on_device, values, ABSENT)
        records[stand_in] = np.where(on_device | (records[stand_in] < 0), ABSENT, records[stand_in])


_CPU = 0
"""PyTorch's device type for host memory (c10/core/DeviceType.h)."""


def memory_tables(samples: Iterable[Event], base_ns: int) -> Iterator[pd.DataFrame]:
    """Yield allocated and reserved memory in bytes (`profile_memory=True`). `device` is `<NA>` for
    host memory.
    """
    samples = [sample for sample in samples if sample.args]
    arguments = [sample.args for sample in samples]
    time = base_ns + nanoseconds(np.array([sample.ts for sample in samples], np.float64))
    device = _column(arguments, "memory_device")
    device[_column(arguments, "memory_device_type") == _CPU] = ABSENT
    devices = nullable(device, "Int32")
    for name in ("allocated", "reserved"):
        value = _column(arguments, name)
        part = {"time_ns": time, "device": devices, "name": f"{name} memory"}
        table = pd.DataFrame(part | {"value": value.astype(float), "unit": "bytes"})
        if (value != ABSENT).any():
            yield table[value != ABSENT]
