"""What is read of a torch.profiler event, and columns of numbers and codes made of many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from tidyprof.tables.kind_codes import KIND_CODE, ON_DEVICE, is_waiting, kind_of_category

ABSENT = int(np.iinfo(np.int64).min)
"""Stands in integer columns where the file says nothing."""

EXACT_FLOAT_US = 2.0**43
"""Below this many microseconds (102 days) doubles are 0.98 ns apart, so every nanosecond has its own."""

LATEST_START_NS = 2**62
LONGEST_NS = 2**61
"""Starts and durations from these on (146 and 73 years) are damage; below them, ends fit into 64 bits."""

UNFINISHED = "unfinished when the recording ended"
"""Why events are dropped that torch itself marks so: their end is the recording's, not their own."""

MEMORY_CATEGORY = "cpu_instant_event"
WINDOW_CATEGORY = "Trace"

_Integer = int | str | None
_Number = int | float | str | None
_ARGUMENT_NAMES = {
    "external_id": "External id",
    "collective": "Collective name",
    "input_shapes": "Input Dims",
    "input_types": "Input type",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "memory_device": "Device Id",
    "memory_device_type": "Device Type",
}


class Arguments(msgspec.Struct, gc=False, rename=_ARGUMENT_NAMES):
    """The members of an event's `args` that are read."""

    external_id: _Integer = ABSENT
    rank: _Integer = ABSENT
    pid_raw: _Integer = ABSENT
    correlation_raw: _Integer = ABSENT
    finished: bool | int | str | None = None
    device: _Integer = ABSENT
    stream: _Integer = ABSENT
    correlation: _Integer = ABSENT
    collective: str | None = None
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
    """One event; `ts` and `dur` in microseconds."""

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
    ts: int | Decimal | None = None


_category, _name, _process, _thread = map(attrgetter, ("cat", "name", "pid", "tid"))
_start, _duration, _arguments = map(attrgetter, ("ts", "dur", "args"))
_external, _rank, _finished = map(attrgetter, ("external_id", "rank", "finished"))
_device, _stream, _correlation = map(attrgetter, ("device", "stream", "correlation"))
_collective, _grid, _block = map(attrgetter, ("collective", "grid", "block"))
_input_shapes, _input_types = map(attrgetter, ("input_shapes", "input_types"))

decode_events: Callable[[bytes], list[Event]] = msgspec.json.Decoder(list[Event]).decode
_decode_exact_events = msgspec.json.Decoder(list[_ExactEvent]).decode
_NO_ARGUMENTS = Arguments()


class Codes(dict[Any, int]):
    """Numbers values in the order of their first appearance; looking up an unknown value adds it."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code

    def of(self, values: Iterable[Any]) -> np.ndarray:
        """The codes of `values`, int32."""
        return np.fromiter(map(self.__getitem__, values), np.int32)


@dataclass
class CodeTables:
    """The texts behind the codes in columns; several files can share them.

    lists -- JSON texts of grids, blocks, shapes and types.
    """

    names: Codes = field(default_factory=Codes)
    categories: Codes = field(default_factory=Codes)
    collectives: Codes = field(default_factory=Codes)
    lists: Codes = field(default_factory=Codes)


def integers(values: list[Any]) -> np.ndarray:
    """int64 of integers and decimal strings; everything else, and what needs more bits, is ABSENT."""
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
    """Whole nanoseconds, int64, of finite float64 microseconds; exact below EXACT_FLOAT_US.

    The fraction is scaled on its own: scaling the whole number would round a second time.
    """
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


class EventColumns:
    """Collects the events of one file that become rows, as columns.

    Columns are `start`, `duration` (ns), `process`, `thread`, `device`, `stream`, `correlation`, `external`,
    `bytes`, `rank` (int64, ABSENT where unknown), `kind` (place in KINDS) and the codes `name`, `category`,
    `collective`, `grid`, `block`, `input_shapes`, `input_types`. `start` counts from the file's base time.

    by_category -- events of every category, kept or not.
    dropped     -- reason -> events that cannot be right and were left out.
    total       -- events of every sort.
    memory      -- the allocator's events.
    windows     -- start and end of the profiler's own span, float microseconds.
    """

    def __init__(self, tables: CodeTables, python_functions: bool = False) -> None:
        self.tables = tables
        self.by_category: Counter[str | None] = Counter()
        self.dropped: Counter[str] = Counter()
        self.total = 0
        self.kept = 0
        self.windows: list[tuple[float, float]] = []
        self.memory: list[Event] = []
        self._python_functions = python_functions
        self._kinds: dict[str | None, int] = {}
        self._batches: list[dict[str, np.ndarray]] = []

    def add(self, events: list[Event], text: bytes) -> None:
        """Take over a batch; `text` is the JSON list that it was decoded from."""
        categories = [*map(_category, events)]
        counts = Counter(categories)
        self.by_category += counts
        self.total += len(events)
        self._learn(counts)
        kept = _complete(events, categories, self._kinds)
        unfinished = sum(counts[category] for category in self._kinds) - len(kept)
        if unfinished:
            self.dropped["begun or ended only"] += unfinished
        if counts[WINDOW_CATEGORY]:
            self.windows += [(e.ts, e.ts + e.dur) for e in events if e.cat == WINDOW_CATEGORY and e.ts and e.dur]
        if counts[MEMORY_CATEGORY]:
            self.memory += [event for event in events if event.cat == MEMORY_CATEGORY and event.ts]
        if kept:
            self._add_columns(kept, text)

    @property
    def categories_kept(self) -> frozenset[str | None]:
        """Categories whose events became rows or samples."""
        return frozenset(self._kinds) | {MEMORY_CATEGORY}

    def collected(self) -> dict[str, np.ndarray]:
        """All columns over the whole file; empties this object's own copy."""
        batches, self._batches = self._batches, []
        if not batches:
            none = np.empty(0, np.int64)
            batches = [_columns({"start": none, "duration": none}, [], [], self.tables, self._kinds)]
        return {name: np.concatenate([batch.pop(name) for batch in batches]) for name in tuple(batches[0])}

    def _learn(self, categories: Iterable[str | None]) -> None:
        for category in categories:
            kind = kind_of_category(category)
            if kind and (self._python_functions or category != "python_function"):
                self._kinds[category] = KIND_CODE[kind]

    def _add_columns(self, kept: list[Event], text: bytes) -> None:
        start_us = np.array([*map(_start, kept)], np.float64)
        duration_us = np.array([*map(_duration, kept)], np.float64)
        arguments = [found or _NO_ARGUMENTS for found in map(_arguments, kept)]
        wrong = _wrong_times(start_us, duration_us)
        wrong[UNFINISHED] = _unfinished(arguments)
        sound = np.ones(len(kept), bool)
        for reason, affected in wrong.items():
            affected &= sound
            if affected.any():
                self.dropped[reason] += int(affected.sum())
                sound &= ~affected
        if not sound.all():
            kept, arguments = list(compress(kept, sound)), list(compress(arguments, sound))
            start_us, duration_us = start_us[sound], duration_us[sound]
        start = nanoseconds(start_us)
        if start_us.max(initial=0) >= EXACT_FLOAT_US:
            start = _exact_starts(text, self._kinds)[sound]
        times = {"start": start, "duration": nanoseconds(duration_us)}
        self._batches.append(_columns(times, kept, arguments, self.tables, self._kinds))
        self.kept += len(kept)


def _complete(events: list[Any], categories: list[str | None], wanted: dict[str | None, int]) -> list[Any]:
    """The complete events of the wanted ones among their categories."""
    kept = compress(events, map(wanted.__contains__, categories))
    return [event for event in kept if event.ph == "X"]


def _unfinished(arguments: list[Arguments]) -> np.ndarray:
    """Which events torch marks as not finished."""
    finished = [*map(_finished, arguments)]
    if False not in finished:
        return np.zeros(len(finished), bool)
    return np.array([mark is False for mark in finished], bool)


def _wrong_times(start_us: np.ndarray, duration_us: np.ndarray) -> dict[str, np.ndarray]:
    """Reasons to drop an event -> mask of the events that they concern.

    Start 0 is what the profiler writes for an event that never got a time
    (https://github.com/pytorch/pytorch/issues/188481).
    """
    with np.errstate(invalid="ignore"):
        return {
            "without start or duration": np.isnan(start_us) | np.isnan(duration_us),
            "at time zero": start_us <= 0,
            "with negative duration": duration_us < 0,
            "with an impossible time": (start_us >= LATEST_START_NS / 1000) | (duration_us >= LONGEST_NS / 1000),
        }


def _exact_starts(text: bytes, wanted: dict[str | None, int]) -> np.ndarray:
    """Starts in whole nanoseconds, read as decimals, for times that a double cannot hold."""
    limit = LATEST_START_NS
    events = _decode_exact_events(text)
    times = [event.ts or 0 for event in _complete(events, [*map(_category, events)], wanted)]
    return np.array([min(int((Decimal(time) * 1000).to_integral_value()), limit) for time in times], np.int64)


def _columns(
    times: dict[str, np.ndarray],
    kept: list[Event],
    arguments: list[Arguments],
    tables: CodeTables,
    kinds: dict[str | None, int],
) -> dict[str, np.ndarray]:
    """Columns of events with sound times, see EventColumns."""
    category = tables.categories.of(map(_category, kept))
    kind_of_code = np.array([kinds.get(text, -1) for text in tables.categories], np.int8)
    columns = times | {
        "name": tables.names.of(map(_name, kept)),
        "category": category,
        "kind": kind_of_code[category],
        "process": integers([*map(_process, kept)]),
        "thread": integers([*map(_thread, kept)]),
        "external": integers([*map(_external, arguments)]),
        "rank": integers([*map(_rank, arguments)]),
    }
    columns |= _launch_columns(columns["kind"], arguments, tables)
    columns |= _operator_columns(columns["kind"], arguments, tables)
    _undo_fusion(columns, arguments)
    _separate_device_rows(columns, tables)
    return columns


def _launch_columns(kind: np.ndarray, arguments: list[Arguments], tables: CodeTables) -> dict[str, np.ndarray]:
    """What only runtime calls and events on a device have; others are spared the look-up."""
    rows = np.flatnonzero((kind == KIND_CODE["runtime"]) | ON_DEVICE[kind])
    chosen = [arguments[row] for row in rows.tolist()]
    sizes = [argument.size if argument.bytes == ABSENT else argument.bytes for argument in chosen]
    values = {
        "device": integers([*map(_device, chosen)]),
        "stream": integers([*map(_stream, chosen)]),
        "correlation": integers([*map(_correlation, chosen)]),
        "bytes": integers(sizes),
        "collective": tables.collectives.of(map(_collective, chosen)),
        "grid": tables.lists.of(map(bytes, map(_grid, chosen))),
        "block": tables.lists.of(map(bytes, map(_block, chosen))),
    }
    absent = {"collective": tables.collectives[None], "grid": tables.lists[b""], "block": tables.lists[b""]}
    columns = {}
    for name, found in values.items():
        columns[name] = np.full(len(kind), absent.get(name, ABSENT), found.dtype)
        columns[name][rows] = found
    return columns


def _operator_columns(kind: np.ndarray, arguments: list[Arguments], tables: CodeTables) -> dict[str, np.ndarray]:
    """What only operators have, with `record_shapes=True`."""
    rows = np.flatnonzero(kind == KIND_CODE["operator"])
    chosen = [arguments[row] for row in rows.tolist()]
    columns = {}
    for name, of_arguments in (("input_shapes", _input_shapes), ("input_types", _input_types)):
        columns[name] = np.full(len(kind), tables.lists[b""], np.int32)
        columns[name][rows] = tables.lists.of(map(bytes, map(of_arguments, chosen)))
    return columns


def _undo_fusion(columns: dict[str, np.ndarray], arguments: list[Arguments]) -> None:
    """Restore process and correlation ids that TraceLens's TraceFuse shifted to keep ranks apart."""
    if (columns["rank"] == ABSENT).all():
        return
    for column, attribute in (("process", "pid_raw"), ("correlation", "correlation_raw")):
        original = integers([getattr(argument, attribute) for argument in arguments])
        columns[column] = np.where(original == ABSENT, columns[column], original)


def _separate_device_rows(columns: dict[str, np.ndarray], tables: CodeTables) -> None:
    """Rows on a device have the device for process and the stream for thread in a Chrome trace."""
    annotation = tables.categories.get("gpu_user_annotation", -1)
    waiting = np.array([is_waiting(category) for category in tables.categories], bool)
    on_device = ON_DEVICE[columns["kind"]] | (columns["category"] == annotation)
    on_device |= waiting[columns["category"]] & (columns["device"] != ABSENT)
    for column, stand_in in (("device", "process"), ("stream", "thread")):
        values = np.where(columns[column] == ABSENT, columns[stand_in], columns[column])
        columns[column] = np.where(on_device, values, ABSENT)
        columns[stand_in] = np.where(on_device | (columns[stand_in] < 0), ABSENT, columns[stand_in])
