"""torch.profiler events, and their conversion to columns of numbers and codes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import compress
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

_RUNTIME_CATEGORY = re.compile(r"_(runtime|driver|sync)$")

_TODAY = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "python": "python_function",
    "memory": "cpu_instant_event",
}
"""Current names of Kineto's categories from 2021. The old names are in lowercase, because Kineto's
TensorBoard plugin also ignores case (tb_plugin/torch_tb_profiler/profiler/trace.py of
https://github.com/pytorch/kineto).
"""

_OLD_OPERATOR = "operator"
_OLD_RANGE = re.compile(r"(ProfilerStep|enumerate\(DataLoader\)|Optimizer\.(step|zero_grad))#")
"""Pattern for ranges that torch itself writes. In 2021, these ranges had the category
`Operator`.
"""


@lru_cache(2**8)
def todays_category(category: str | None) -> str | None:
    """Return Kineto's current name for this category. If the category is unknown, return it
    unchanged.
    """
    if category is None or category == WINDOW_CATEGORY or kind_of_category(category):
        return category
    small = category.lower()
    today = _TODAY.get(small, small)
    return today if kind_of_category(today) or today == MEMORY_CATEGORY else category


def _rename(events: Iterable[Any], counts: Counter[str | None]) -> bool:
    """Rename the categories of events to their current names. Return True if any event had an older
    category.

    - counts: number of events in each category
    """
    old = {category: todays_category(category) for category in counts}
    old = {category: today for category, today in old.items() if category != today}
    for event in events if old else ():
        is_range = str(event.cat).lower() == _OLD_OPERATOR and _OLD_RANGE.match(event.name)
        event.cat = "user_annotation" if is_range else old.get(event.cat, event.cat)
    return bool(old)


def kind_of_category(category: str | None) -> str | None:
    """Return the kind of complete events in this category, or None if such events aren't kept."""
    kind = KIND_OF_CATEGORY.get(category or "")
    return "runtime" if kind is None and _RUNTIME_CATEGORY.search(category or "") else kind


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

MEMORY_CATEGORY = "cpu_instant_event"
WINDOW_CATEGORY = "Trace"

_LASTING = ("X", "B", "E", "")
"""Phases of events that have a category. An empty string means that an event has no phase. Process
names (M) and marks (i) have no category.
"""

_Integer = int | str | None
_Number = int | float | str | None
_ARGUMENT_NAMES = {
    "external_id": "External id",
    "old_external_id": "external id",
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

ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    **dict.fromkeys(("Short", "UInt16", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "UInt32", "Float", "ComplexHalf"), 4),
    **dict.fromkeys(("Long", "UInt64", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
    **dict.fromkeys(
        ("Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "Float8_e8m0fnu"), 1
    ),
}
"""Number of bytes per element for each element type. torch uses these type names in a collective's
`dtype`.

The names come from AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS in
torch/headeronly/core/ScalarType.h (https://github.com/pytorch/pytorch).
"""


class Arguments(msgspec.Struct, gc=False, rename=_ARGUMENT_NAMES):
    """Members of an event's `args` that tidyprof uses."""

    external_id: _Integer = ABSENT
    old_external_id: _Integer = ABSENT
    rank: _Integer = ABSENT
    pid_raw: _Integer = ABSENT
    correlation_raw: _Integer = ABSENT
    finished: bool | int | str | None = None
    device: _Integer = ABSENT
    stream: _Integer = ABSENT
    correlation: _Integer = ABSENT
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


class _ExactEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    ts: int | Decimal | None = None


decode_events: Callable[[bytes], list[Event]] = msgspec.json.Decoder(list[Event]).decode
_decode_exact_events = msgspec.json.Decoder(list[_ExactEvent]).decode
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


def integers(values: list[Any]) -> np.ndarray:
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
    - parts_only: number of events with only a start or only an end
    - unsorted: number of events without a required category
    - unknown: number of complete events in each unknown category
    - total: total number of events
    - memory: events from the memory allocator
    - windows: start and end of the profiler's own span in microseconds, as floats
    """

    def __init__(self, texts: Codes, python_functions: bool = False) -> None:
        self.texts = texts
        self.by_category: Counter[str | None] = Counter()
        self.parts_only = 0
        self.unsorted = 0
        self.unknown: Counter[str] = Counter()
        self.total = 0
        self.windows: list[tuple[float, float]] = []
        self.memory: list[Event] = []
        self._python_functions = python_functions
        self._kinds: dict[str | None, int] = {}
        self._records = GrowingRecords()

    def add(self, events: list[Event], text: bytes) -> None:
        """Add a batch. `text` is the JSON list of the batch."""
        # Most batches have only a few categories, so count them first and process only these.
        categories = [event.cat for event in events]
        counts = Counter(categories)
        if _rename(events, counts):
            categories = [event.cat for event in events]
            counts = Counter(categories)
        self.by_category += counts
        self.total += len(events)
        self._learn(counts)
        kept = _complete(events, categories, self._kinds)
        if counts[None]:
            self.unsorted += sum(event.cat is None and event.ph in _LASTING for event in events)
        strange = {category for category in counts if category and not is_known(category)}
        if strange:
            self.unknown += Counter(
                event.cat for event in events if event.cat in strange and event.ph == "X"
            )
        self.parts_only += sum(counts[category] for category in self._kinds) - len(kept)
        if counts[WINDOW_CATEGORY]:
            self.windows += [
                (e.ts, e.ts + e.dur) for e in events if e.cat == WINDOW_CATEGORY and e.ts and e.dur
            ]
        if counts[MEMORY_CATEGORY]:
            self.memory += [event for event in events if event.cat == MEMORY_CATEGORY and event.ts]
        self._records.append(_records(kept, text, self.texts, self._kinds))

    @property
    def categories_kept(self) -> frozenset[str | None]:
        """Categories whose events became rows or samples."""
        return frozenset(self._kinds) | {MEMORY_CATEGORY}

    def collected(self) -> Records:
        """Return all collected events of the file."""
        records = self._records.collected()
        _separate_device_rows(records, self.texts)
        return records

    def _learn(self, categories: Iterable[str | None]) -> None:
        for category in categories:
            kind = kind_of_category(category)
            if kind and (self._python_functions or category != "python_function"):
                self._kinds[category] = KIND_CODE[kind]


def _complete(
    events: list[Any], categories: list[str | None], wanted: dict[str | None, int]
) -> list[Any]:
    kept = compress(events, map(wanted.__contains__, categories))
    return [event for event in kept if event.ph == "X"]


def _unfinished(arguments: list[Arguments]) -> np.ndarray:
    finished = [one.finished for one in arguments]
    # Usually there is none. If there may be one, check each mark, because 0 equals False here.
    if False not in finished:
        return np.zeros(len(finished), bool)
    return np.array([mark is False for mark in finished], bool)


def _exact_starts(text: bytes, wanted: dict[str | None, int]) -> np.ndarray:
    """Return start times in whole nanoseconds by parsing them as decimals. This is necessary for
    times that a double can't represent exactly.
    """
    limit = LATEST_START_NS
    events = _decode_exact_events(text)
    _rename(events, Counter(event.cat for event in events))
    times = [event.ts or 0 for event in _complete(events, [event.cat for event in events], wanted)]
    return np.array(
        [min(int((Decimal(time) * 1000).to_integral_value()), limit) for time in times], np.int64
    )


def _records(kept: list[Event], text: bytes, texts: Codes, kinds: dict[str | None, int]) -> Records:
    start_us = np.array([event.ts for event in kept], np.float64)
    arguments = [event.args or _NO_ARGUMENTS for event in kept]
    is_large = np.nanmax(start_us, initial=0) >= EXACT_FLOAT_US
    category = texts.of([event.cat for event in kept])
    known = {texts[name]: kind for name, kind in kinds.items()}
    kind_of_code = np.zeros(len(texts), np.int8)
    kind_of_code[list(known)] = list(known.values())
    records = Records(
        {
            "start_ns": _exact_starts(text, kinds) if is_large else nanoseconds(start_us),
            "duration_ns": nanoseconds(np.array([event.dur for event in kept], np.float64)),
            "name": texts.of([event.name for event in kept]),
            "source_category": category,
            "kind": kind_of_code[category],
            "process": integers([event.pid for event in kept]),
            "thread": integers([event.tid for event in kept]),
            "external_id": _external_ids(arguments),
            "rank": integers([one.rank for one in arguments]),
            "unfinished": _unfinished(arguments).astype(np.int8),
        }
    )
    _add_launch_columns(records, arguments, texts)
    _add_operator_columns(records, arguments, texts)
    _undo_fusion(records, arguments)
    return records


def _external_ids(arguments: list[Arguments]) -> np.ndarray:
    """Return the `External id` of each event. In 2021, this key was spelled differently."""
    found = integers([one.external_id for one in arguments])
    return np.where(found == ABSENT, integers([one.old_external_id for one in arguments]), found)


def _add_launch_columns(records: Records, arguments: list[Arguments], texts: Codes) -> None:
    rows = np.flatnonzero((records["kind"] == KIND_CODE["runtime"]) | ON_DEVICE[records["kind"]])
    chosen = [arguments[row] for row in rows.tolist()]
    values = {
        "device": integers([one.device for one in chosen]),
        "stream": integers([one.stream for one in chosen]),
        "correlation_id": integers([one.correlation for one in chosen]),
        "bytes": integers([one.size if one.bytes == ABSENT else one.bytes for one in chosen]),
        "collective": texts.of([one.collective for one in chosen]),
        "grid": texts.of([bytes(one.grid) for one in chosen]),
        "block": texts.of([bytes(one.block) for one in chosen]),
    }
    _add(records, rows, values)
    _add_messages(records, arguments)


def _add_messages(records: Records, arguments: list[Arguments]) -> None:
    """Add the bytes and the group size of events with data about a collective operation. There are
    only a few such events.
    """
    rows = np.flatnonzero(records["collective"] != NO_TEXT)
    chosen = [arguments[row] for row in rows.tolist()]
    sent = integers([one.sent_elements for one in chosen])
    received = integers([one.received_elements for one in chosen])
    size = np.array(
        [ELEMENT_BYTES.get(str(argument.element_type), 0) for argument in chosen], np.int64
    )
    elements = np.maximum(sent, received)
    # An element count whose bytes don't fit in 64 bits is damage.
    known = (size > 0) & (np.minimum(sent, received) >= 0) & (elements < 2**58)
    records["bytes"][rows[known]] = (elements * size)[known]
    _add(records, rows, {"group_size": integers([one.group_size for one in chosen])})


def _add_operator_columns(records: Records, arguments: list[Arguments], texts: Codes) -> None:
    rows = np.flatnonzero(records["kind"] == KIND_CODE["operator"])
    chosen = [arguments[row] for row in rows.tolist()]
    shapes = texts.of([bytes(one.input_shapes) for one in chosen])
    types = texts.of([bytes(one.input_types) for one in chosen])
    _add(records, rows, {"input_shapes": shapes, "input_types": types})


def _add(records: Records, rows: np.ndarray, values: dict[str, np.ndarray]) -> None:
    for name, column in values.items():
        records[name] = nothing(name, len(records))
        records[name][rows] = column


def _undo_fusion(records: Records, arguments: list[Arguments]) -> None:
    """Restore the process numbers and correlation IDs that TraceLens's TraceFuse shifted to keep
    ranks apart.
    """
    if (records["rank"] == ABSENT).all():
        return
    for column, member in (("process", "pid_raw"), ("correlation_id", "correlation_raw")):
        original = integers([getattr(one, member) for one in arguments])
        records[column] = np.where(original == ABSENT, records[column], original)


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


def memory_tables(samples: list[Event], base_ns: int) -> Iterator[pd.DataFrame]:
    """Yield allocated and reserved memory in bytes (`profile_memory=True`). `device` is `<NA>` for
    host memory.
    """
    samples = [sample for sample in samples if sample.args]
    if not samples:
        return
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
