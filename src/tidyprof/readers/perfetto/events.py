"""Packets of a Perfetto trace collected as columns: slices, counters, call-stack samples."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from math import isfinite
from typing import Any

from google.protobuf.message import DecodeError

from tidyprof.readers.perfetto.clocks import Clocks
from tidyprof.readers.perfetto.schema import DebugAnnotation
from tidyprof.readers.perfetto.sequences import NEEDED, Codes, Sequence
from tidyprof.readers.perfetto.tracks import Tracks
from tidyprof.readers.torch.events import ABSENT, LATEST_START_NS

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type (protos/perfetto/trace/track_event/track_event.proto)."""

NO_STATE = "of sequences whose start is missing"
NO_NAME = "with a name that the file does not hold"
NO_CLOCK = "with a clock that the file does not relate to its own"
NO_TIME = "with an impossible time"
NO_VALUE = "of counters that are no number"
NO_STACK = "with a call stack that the file does not hold"

LATEST_NS = LATEST_START_NS
"""Times from this on are damage: the first of them is 146 years after the machine was started."""

COMMON = ("track", "name", "category", "correlation", "launch_thread")
NUMBERS = (
    "stream",
    "queue",
    "kernel_id",
    "dispatch_id",
    "bytes",
    "lds_bytes",
    "scratch_bytes",
    "vgprs",
    "accum_vgprs",
    "sgprs",
    "memory_device",
)
TEXTS = ("agent", "source", "destination", "block", "grid")
DETAILS = (*NUMBERS, *TEXTS)
"""What is kept of a slice besides its times. The details, and the last two of COMMON, come from annotations; TEXTS
are codes in `Tables.labels`."""

_ANNOTATIONS = {
    "correlation": "corr_id stack_id",
    "launch_thread": "tid",
    "stream": "stream_id stream_ID",
    "queue": "queue",
    "kernel_id": "kernel_id",
    "dispatch_id": "dispatch_id",
    "bytes": "bytes copy_bytes allocation_size",
    "lds_bytes": "group_segment_size LDS_Block_Size",
    "scratch_bytes": "private_segment_size Scratch_Size",
    "vgprs": "VGPR_Count",
    "accum_vgprs": "Accum_VGPR_Count",
    "sgprs": "SGPR_Count",
    "memory_device": "agent_id",
    "agent": "agent",
    "source": "src_agent src_agent_id",
    "destination": "dst_agent dst_agent_id",
    "block": "workgroup_size",
    "grid": "grid_size",
}
"""Names of these annotations in files of rocprofv3 and rocprof-sys."""

_ORDER = ("correlation", "launch_thread", *DETAILS)
_CORRELATION, _DETAIL, _TEXT = 0, 2, _ORDER.index(TEXTS[0])
_PLACES = {name.encode(): _ORDER.index(key) for key, names in _ANNOTATIONS.items() for name in names.split()}
_UNWANTED = -1
_TEMPLATE = [ABSENT] * len(_ORDER)
_INT64 = range(-(2**63), 2**63)

_NAME_NUMBER, _NAME_TEXT = b"\x08", b"\x52"
"""First byte of an annotation that starts with the number of its name (below 128 in one more byte), or with the
name itself: tag of field 1 as a number, of field 10 with its length in front."""

_WHOLE_NUMBERS = ("uint_value", "int_value", "pointer_value")
_REMEMBERED_VALUES = 20_000


@dataclass
class Tables:
    """Texts as numbers, shared by the files that are read together."""

    names: Codes = field(default_factory=Codes)
    categories: Codes = field(default_factory=Codes)
    labels: Codes = field(default_factory=Codes)
    stacks: dict[tuple[bytes, ...], int] = field(default_factory=dict)


class EventColumns:
    """Everything of one file that can become a row, in the order of the file.

    starts, ends -- of every begin and instant; the end is ABSENT until one is found.
    common       -- for each of them what COMMON says.
    details      -- for those that have any of DETAILS the row and their values.
    spoilt       -- rows whose end was found but is unusable.
    strays       -- track, time and place among the rows of ends without a begin on their own sequence; an end
                    that came after row n has the place 2n + 1.
    counters     -- time and track, and value, of every sample of a counter.
    samples      -- time, process, thread, track and call stack of every sample that is no slice.
    extras       -- name of an annotation that was asked for -> rows and values.
    """

    def __init__(self, tables: Tables, wanted: Iterable[str] = ()) -> None:
        self.tables = tables
        self.tracks = Tracks()
        self.clocks = Clocks()
        self.sequences: dict[int, Sequence] = {}
        self.starts, self.ends = array("q"), array("q")
        self.common, self.details = array("q"), array("q")
        self.spoilt: list[int] = []
        self.strays = array("q")
        self.counters, self.counter_values = array("q"), array("d")
        self.samples = array("q")
        self.extras: dict[str, list[tuple[int, Any]]] = {name: [] for name in wanted}
        self.dropped: Counter[str] = Counter()
        self.not_kept: Counter[str] = Counter()
        self._roots = {re.split(r"[.\[]", name, maxsplit=1)[0].encode() for name in wanted}
        self._known_numbers: dict[bytes, int] = {}
        self._known_texts: dict[bytes, int] = {}
        self._handlers: dict[str | None, Callable[[Any, Sequence, int, str], None]] = {
            "track_descriptor": self._descriptor,
            "thread_descriptor": self._thread,
            "streaming_profile_packet": self._profile,
            "perf_sample": self._perf_sample,
        }

    def add(self, packets: Iterable[Any], other: Callable[[Any], None]) -> None:
        """Take in the events among packets; the others are given to `other`, which may give them to `add_other`."""
        sequences, tracks = self.sequences, self.tracks.codes
        for packet in packets:
            event = packet.track_event
            kind = event.type
            if not kind:
                other(packet)
                continue
            sequence = self._started(packet, sequences.get(packet.trusted_packet_sequence_id))
            if sequence is None:
                self.dropped[NO_STATE] += kind != END
                continue
            uuid = event.track_uuid or sequence.default_track
            track = tracks.get(uuid)
            if track is None:
                track = tracks[uuid] = len(tracks)
            time, problem = self._time(packet, sequence)
            if kind == END:
                self._end(track, time, problem, sequence)
            elif kind == BEGIN:
                row = self._slice(event, time, problem, track, sequence)
                sequence.open.setdefault(track, []).append(row)
            elif kind == INSTANT:
                row = self._slice(event, time, problem, track, sequence)
                if row >= 0:
                    self.ends[row] = time
            elif kind == COUNTER:
                self._counter(event, time, problem, track)
            else:
                self.not_kept["other track events"] += 1

    def add_other(self, payload: str | None, packet: Any) -> None:
        """Take in a packet that holds no event; `payload` is the name of the field that it carries."""
        number = packet.trusted_packet_sequence_id
        sequence = self._started(packet, self.sequences.get(number))
        handler = self._handlers.get(payload)
        if payload == "clock_snapshot":
            self.clocks.add(packet.clock_snapshot, number)
        elif payload == "track_event":
            self.not_kept["other track events"] += 1
        elif sequence is None:
            self.dropped[NO_STATE] += handler is not None
        else:
            # A clock that counts from packet to packet goes on with every packet that states a time.
            time, problem = self._time(packet, sequence)
            if handler is not None:
                handler(packet, sequence, time, problem)

    def _started(self, packet: Any, sequence: Sequence | None) -> Sequence | None:
        """The packet's sequence in the state that the packet needs, None if that is not to be had."""
        if sequence is None:
            number = packet.trusted_packet_sequence_id
            sequence = self.sequences[number] = Sequence(number)
        # Nearly all packets only need the state as it is.
        if packet.sequence_flags != NEEDED or packet.previous_packet_dropped or not sequence.is_valid:
            usable = sequence.start_packet(packet)
            if not usable:
                return None
        if packet.HasField("trace_packet_defaults"):
            sequence.set_defaults(packet.trace_packet_defaults)
        if packet.HasField("interned_data"):
            sequence.learn(packet.interned_data, self.tables.names, self.tables.categories)
        return sequence

    def _time(self, packet: Any, sequence: Sequence) -> tuple[int, str]:
        """Time in ns on the trace's clock, and why it cannot be used."""
        time = packet.timestamp
        clock = packet.timestamp_clock_id or sequence.default_clock
        if clock and clock != self.clocks.trace_clock:
            converted = self.clocks.time(time, clock, sequence.number)
            if converted is None:
                return 0, NO_CLOCK
            time = converted
        return (time, "") if 0 < time < LATEST_NS else (0, NO_TIME)

    def _end(self, track: int, time: int, problem: str, sequence: Sequence) -> None:
        """Close the latest slice that the sequence began on the track."""
        rows = sequence.open.get(track)
        if rows and (problem or rows[-1] < 0 or self.starts[rows[-1]] <= time):
            row = rows.pop()
            if row >= 0 and problem:
                self.spoilt.append(row)
                self.dropped[problem] += 1
            elif row >= 0:
                self.ends[row] = time
        elif not problem:
            self.strays.extend((track, time, 2 * len(self.starts) - 1))

    def _slice(self, event: Any, time: int, problem: str, track: int, sequence: Sequence) -> int:
        """Add a row for what begins here; returns it, -1 if it cannot be used."""
        number = event.name_iid
        name = sequence.names.get(number) if number else self.tables.names[event.name]
        category = self._category(event, sequence)
        if problem or name is None or category is None:
            self.dropped[problem or NO_NAME] += 1
            return -1
        row = len(self.starts)
        values, last, slots = _TEMPLATE.copy(), _UNWANTED, sequence.slots
        for annotation in event.debug_annotations:
            place = slots.get(annotation[:2])
            if place is None:
                place = self._place(annotation, sequence)
            if place >= 0:
                values[place] = self._value(annotation, place, sequence)
                if place > last:
                    last = place
        self.starts.append(time)
        self.ends.append(ABSENT)
        self.common.extend((track, name, category, values[0], values[1]))
        if last >= _DETAIL:
            self.details.append(row)
            self.details.extend(values[_DETAIL:])
        if self._roots:
            self._keep_wanted(row, event, sequence)
        return row

    def _place(self, annotation: bytes, sequence: Sequence) -> int:
        """The place of an annotation's value; remembered if the first bytes alone tell the name."""
        has_text = annotation[:1] == _NAME_TEXT and len(annotation) > 1
        key = annotation[: annotation[1] + 2 if has_text else 2]
        if has_text and key in sequence.slots:
            return sequence.slots[key]
        parsed = self._parsed(annotation)
        name = _name(parsed, sequence)
        place = _PLACES.get(name, _UNWANTED)
        number = 0 if parsed.name else parsed.name_iid
        if (has_text and key[2:] == name) or (0 < number < 128 and key == _NAME_NUMBER + bytes([number])):
            sequence.slots[key] = place
        return place

    def _value(self, annotation: bytes, place: int, sequence: Sequence) -> int:
        """An annotation as a number; the code of its text where DETAILS says so."""
        known = self._known_texts if place >= _TEXT else self._known_numbers
        value = known.get(annotation)
        if value is not None:
            return value
        parsed = self._parsed(annotation)
        value = parsed.uint_value or parsed.int_value or parsed.pointer_value
        is_number = value in _INT64 and (value or parsed.WhichOneof("value") in _WHOLE_NUMBERS)
        if place < _TEXT:
            value = value if is_number else ABSENT
        else:
            text = parsed.string_value or sequence.strings.get(parsed.string_value_iid, b"")
            text = text or (b"%d" % value if is_number else b"")
            value = self.tables.labels[text] if text else ABSENT
        # Numbers of calls are all different, and what a number of a text means differs between sequences.
        if place != _CORRELATION and not parsed.string_value_iid:
            if len(known) >= _REMEMBERED_VALUES:
                known.clear()
            known[annotation] = value
        return value

    def _parsed(self, annotation: bytes) -> Any:
        try:
            return DebugAnnotation.FromString(annotation)
        except DecodeError:
            self.not_kept["arguments that cannot be decoded"] += 1
            return DebugAnnotation()

    def _category(self, event: Any, sequence: Sequence) -> int | None:
        """Code of the event's category, of all their names joined by a comma if it has several."""
        numbers, texts = event.category_iids, event.categories
        if len(numbers) == 1 and not texts:
            return sequence.categories.get(numbers[0])
        codes = [sequence.categories.get(number) for number in numbers]
        if None in codes:
            return None
        known = self.tables.categories.texts
        return self.tables.categories[b",".join([*(known[code] for code in codes), *texts])]

    def _keep_wanted(self, row: int, event: Any, sequence: Sequence) -> None:
        for annotation in map(self._parsed, event.debug_annotations):
            name = _name(annotation, sequence)
            if name in self._roots:
                for path, value in _flattened(annotation, name.decode("utf-8", "replace"), sequence):
                    if path in self.extras:
                        self.extras[path].append((row, value))

    def _counter(self, event: Any, time: int, problem: str, track: int) -> None:
        value = event.double_counter_value or event.counter_value
        if problem or not isfinite(value):
            self.dropped[problem or NO_VALUE] += 1
        else:
            self.counters.extend((time, track))
            self.counter_values.append(value)

    def _descriptor(self, packet: Any, sequence: Sequence, time: int, problem: str) -> None:
        self.tracks.add(packet.track_descriptor)

    def _thread(self, packet: Any, sequence: Sequence, time: int, problem: str) -> None:
        sequence.pid, sequence.tid = packet.thread_descriptor.pid, packet.thread_descriptor.tid

    def _profile(self, packet: Any, sequence: Sequence, time: int, problem: str) -> None:
        """Samples of the sequence's thread; their times follow each other from the packet's on."""
        profile = packet.streaming_profile_packet
        for number, delta_us in zip_longest(profile.callstack_iid, profile.timestamp_delta_us, fillvalue=0):
            time += delta_us * 1000
            self._sample(time, problem, (sequence.pid, sequence.tid), number, sequence)

    def _perf_sample(self, packet: Any, sequence: Sequence, time: int, problem: str) -> None:
        sample = packet.perf_sample
        if sample.callstack_iid:
            self._sample(time, problem, (sample.pid, sample.tid), sample.callstack_iid, sequence)
        else:
            self.not_kept["samples without a call stack"] += 1

    def _sample(self, time: int, problem: str, place: tuple[int, int], number: int, sequence: Sequence) -> None:
        stack = sequence.stack(number)
        if problem or stack is None or not 0 < time < LATEST_NS:
            self.dropped[problem or (NO_STACK if stack is None else NO_TIME)] += 1
            return
        code = self.tables.stacks.setdefault(stack, len(self.tables.stacks))
        self.samples.extend((time, *place, self.tracks.code(sequence.default_track), code))


def _name(annotation: Any, sequence: Sequence) -> bytes:
    return annotation.name or sequence.annotation_names.get(annotation.name_iid, b"")


def _flattened(annotation: Any, path: str, sequence: Sequence) -> Iterator[tuple[str, Any]]:
    """Names and values of an annotation; members of a dictionary are `a.b`, those of a list `a[0]`."""
    for entry in annotation.dict_entries:
        name = _name(entry, sequence)
        yield from _flattened(entry, f"{path}.{name.decode('utf-8', 'replace')}", sequence)
    for place, entry in enumerate(annotation.array_values):
        yield from _flattened(entry, f"{path}[{place}]", sequence)
    kind = annotation.WhichOneof("value")
    if kind == "string_value_iid":
        yield path, sequence.strings.get(annotation.string_value_iid, b"").decode("utf-8", "replace")
    elif kind:
        value = getattr(annotation, kind)
        yield path, value.decode("utf-8", "replace") if isinstance(value, bytes) else value
