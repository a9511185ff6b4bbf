"""One walk over the packets of a Perfetto trace. It collects slices, counters, tracks, clocks and
facts about the file.

The names of the messages' fields are those of protos/perfetto/trace in
https://github.com/google/perfetto.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

from tidyprof.errors import ProfileReadError
from tidyprof.tables.codes import ABSENT, Codes
from tidyprof.tables.damage import LATEST_START_NS

_NUMBERS = {
    "correlation_id": "corr_id stack_id",
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
}
LABELS = {
    "agent": "agent",
    "source": "src_agent src_agent_id",
    "destination": "dst_agent dst_agent_id",
    "block": "workgroup_size",
    "grid": "grid_size",
}
"""Annotations that become string codes. One tool writes these annotations as numbers, and the other
tool writes strings.
"""

_COLUMNS = {name: column for column, names in (_NUMBERS | LABELS).items() for name in names.split()}
"""Column for each annotation name in files from rocprofv3 and rocprof-sys."""

_WHOLE_NUMBERS = ("uint_value", "int_value", "pointer_value")
_INT64 = range(-(2**63), 2**63)

_BUFFER_LOSSES = {
    "chunks_overwritten": "chunks overwritten in the buffer",
    "chunks_discarded": "chunks discarded by a full buffer",
    "trace_writer_packet_loss": "packets lost by the program's writer",
    "patches_failed": "packets cut in two",
    "abi_violations": "broken chunks",
}
_TOTAL_LOSSES = {
    "chunks_discarded": "chunks discarded by the service",
    "patches_discarded": "patches discarded by the service",
    "invalid_packets": "invalid packets",
    "flushes_failed": "flushes failed",
}
"""Data losses per buffer and in total (TraceStats in protos/perfetto/common/trace_stats.proto)."""

_BOOTTIME = 6
_CLOCKS = ("REALTIME", "REALTIME_COARSE", "MONOTONIC", "MONOTONIC_COARSE", "MONOTONIC_RAW")
CLOCK_NAMES = dict(enumerate((*_CLOCKS, "BOOTTIME"), 1))
"""Names of Linux clocks, by their number (protos/perfetto/common/builtin_clock.proto)."""

_CLEARED, _NEEDED = 1, 2
"""Bits of TracePacket.sequence_flags."""

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""TrackEvent.Type."""

_PACKED_SAMPLES = ("streaming_profile_packet", "perf_sample")
"""Packet types for samples from Linux and Chrome profilers. AMD's profilers write samples as
slices.
"""

NO_STATE = "from sequences without a start"
NO_NAME = "with a missing name"
NO_CLOCK = "on another clock than the trace's"
NO_TIME = "with an impossible time"
NO_VALUE = "with non-numeric counter values"
NO_BEGIN = "whose begin is missing"
LOST_PACKETS = "packets missing in a sequence"

_COMPRESSED = (
    "the packets in this file are compressed",
    "the trace configuration sets compression_type",
    "record without compression_type, or compress the whole file with gzip or zstd instead",
)


def text(value: str | bytes) -> str:
    """Decode a string in a message. protobuf returns bytes if the field contains bytes or invalid
    UTF-8.
    """
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


_Texts = dict[int, Any]


class _Sequence:
    """The state of one packet sequence.

    - is_valid: True if numbered names can be trusted. The value is False before the first packet
      that resets the state, and after a gap.
    - gaps: number of gaps, at each of which packets were lost
    - open: rows of the open slices on each track, with the innermost slice last. An unusable slice
      has row -1.
    - names, categories, labels, strings: strings for each number in the file. Labels are the names
      of annotations, and strings are their values.
    - track, clock: default values of packets, or 0 if there is no default
    """

    def __init__(self) -> None:
        self.is_valid = False
        self.gaps = 0
        self.open: dict[int, list[int]] = {}
        self.clear()

    def clear(self) -> None:
        """Reset the state. Later packets of the sequence must define the state again."""
        self.names: _Texts = {}
        self.categories: _Texts = {}
        self.labels: _Texts = {}
        self.strings: _Texts = {}
        self.track = self.clock = 0

    def learn(self, interned: Any) -> None:
        """Add the names in a packet, keyed by their numbers."""
        self.names |= {one.iid: one.name for one in interned.event_names}
        self.categories |= {one.iid: one.name for one in interned.event_categories}
        self.labels |= {one.iid: text(one.name) for one in interned.debug_annotation_names}
        self.strings |= {one.iid: text(one.str) for one in interned.debug_annotation_string_values}


class Decoder:
    """The content of one file, in file order. If a time is too late to be valid, it is set to the
    latest valid time.

    - slices: start, end, track, name and category of all slices and instant events. The end is
      ABSENT until it is found.
    - annotated: row and value of each annotation, by column
    - counters: time and track of every counter sample
    - counter_values: value of every counter sample
    - texts: codes of names, categories and labels. The function `text` decodes their strings.
    - tracks: small number for each track identifier
    - descriptors: message that describes each track
    - trace_clock: number of the trace's clock. By default, it is the clock that counts the time
      since boot.
    - losses: number of losses of each kind, or None if the file has no statistics
    """

    def __init__(self, path: Path, texts: Codes) -> None:
        self.path = path
        self.texts = texts
        self.trace_clock = _BOOTTIME
        self.tracks = Codes()
        self.descriptors: dict[int, Any] = {}
        self.slices = array("q")
        self.annotated: defaultdict[str, array] = defaultdict(lambda: array("q"))
        self.counters, self.counter_values = array("q"), array("d")
        self.dropped: Counter[str] = Counter()
        self.not_kept: Counter[str] = Counter()
        self.losses: Counter[str] | None = None
        self._sequences: defaultdict[int, _Sequence] = defaultdict(_Sequence)

    @property
    def gaps(self) -> int:
        """Number of gaps in all sequences, at each of which packets were lost."""
        return sum(sequence.gaps for sequence in self._sequences.values())

    def add(self, packets: Iterable[Any]) -> None:
        """Add the contents of these packets."""
        # Nearly all packets are events, so checking their type first is faster than checking which
        # field each packet has.
        tracks = self.tracks
        for packet in packets:
            event = packet.track_event
            kind = event.type
            sequence = self._sequence(packet)
            if not kind:
                self._add_other(packet, sequence)
                continue
            if sequence is None:
                self.dropped[NO_STATE] += kind != _END
                continue
            track = tracks[event.track_uuid or sequence.track]
            time = self._time(packet, sequence)
            if kind == _END:
                rows = sequence.open.get(track)
                row = rows.pop() if rows else None
                if row is None:
                    self.dropped[NO_BEGIN] += time is not None
                elif row >= 0 and time is not None:
                    self.slices[5 * row + 1] = time
            elif kind == _BEGIN:
                row = self._slice(event, time, track, sequence)
                sequence.open.setdefault(track, []).append(row)
            elif kind == _INSTANT:
                row = self._slice(event, time, track, sequence)
                if row >= 0:
                    self.slices[5 * row + 1] = time
            elif kind == _COUNTER:
                self._counter(event, time, track)
            else:
                self.not_kept["other track events"] += 1

    def _sequence(self, packet: Any) -> _Sequence | None:
        """Return the packet's sequence, or None if the packet depends on lost state."""
        sequence = self._sequences[packet.trusted_packet_sequence_id]
        flags = packet.sequence_flags
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            sequence.gaps += 1
            sequence.is_valid = False
        if flags & _CLEARED:
            sequence.clear()
            sequence.is_valid = True
        if flags & _NEEDED and not sequence.is_valid:
            return None
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            sequence.clock = defaults.timestamp_clock_id
            sequence.track = defaults.track_event_defaults.track_uuid
        if packet.HasField("interned_data"):
            sequence.learn(packet.interned_data)
        return sequence

    def _time(self, packet: Any, sequence: _Sequence) -> int | None:
        """Return the time in nanoseconds, or None if it's on another clock than the trace's. AMD's
        profilers write the times of all events on the trace's clock.
        """
        time = packet.timestamp
        clock = packet.timestamp_clock_id or sequence.clock
        if clock and clock != self.trace_clock:
            return None
        return max(-LATEST_START_NS, min(time, LATEST_START_NS))

    def _slice(self, event: Any, time: int | None, track: int, sequence: _Sequence) -> int:
        """Add a row and return its number. Return -1 if the event can't be used."""
        number = event.name_iid
        name = sequence.names.get(number) if number else event.name
        category = self._category(event, sequence)
        if time is None or name is None or category is None:
            self.dropped[NO_CLOCK if time is None else NO_NAME] += 1
            return -1
        row = len(self.slices) // 5
        self.slices.extend((time, ABSENT, track, self.texts[name], self.texts[category]))
        for annotation in event.debug_annotations:
            number = annotation.name_iid
            column = _COLUMNS.get(sequence.labels.get(number) if number else annotation.name)
            if column:
                value = _number(annotation)
                if column in LABELS:
                    label = text(annotation.string_value)
                    label = label or sequence.strings.get(annotation.string_value_iid, "")
                    value = self.texts[label or ("" if value == ABSENT else str(value))]
                self.annotated[column].extend((row, value))
        return row

    def _category(self, event: Any, sequence: _Sequence) -> str | bytes | None:
        """Return the event's categories, joined by commas. Return None if a category name isn't in
        the file.
        """
        numbers, texts = event.category_iids, event.categories
        if len(numbers) == 1 and not texts:
            return sequence.categories.get(numbers[0])
        names = [*map(sequence.categories.get, numbers), *texts]
        return None if None in names else ",".join(map(text, names))

    def _counter(self, event: Any, time: int | None, track: int) -> None:
        value = event.double_counter_value or event.counter_value
        if time is None:
            self.dropped[NO_CLOCK] += 1
        elif not 0 < time < LATEST_START_NS:
            self.dropped[NO_TIME] += 1
        elif not isfinite(value):
            self.dropped[NO_VALUE] += 1
        else:
            self.counters.extend((time, track))
            self.counter_values.append(value)

    def _add_other(self, packet: Any, sequence: _Sequence | None) -> None:
        """Add a packet without an event."""
        payload = packet.WhichOneof("data")
        content = getattr(packet, payload) if payload else None
        if payload == "compressed_packets":
            raise ProfileReadError(self.path, *_COMPRESSED)
        if payload == "clock_snapshot":
            self.trace_clock = content.primary_trace_clock or self.trace_clock
        elif payload == "track_event":
            self.not_kept["other track events"] += 1
        elif payload in _PACKED_SAMPLES:
            self.not_kept["samples that aren't slices"] += 1
        elif payload == "track_descriptor" and sequence is None:
            self.dropped[NO_STATE] += 1
        elif payload == "track_descriptor":
            self._describe(content)
        elif payload == "trace_stats":
            # Statistics are cumulative within a trace.
            self.losses = (self.losses or Counter()) | _losses(content)

    def _describe(self, descriptor: Any) -> None:
        """Add a TrackDescriptor. Values from earlier descriptors of the same track are kept."""
        # Copy the descriptor, because a part of a message keeps the whole message in memory.
        known = self.descriptors.setdefault(descriptor.uuid, type(descriptor)())
        known.MergeFrom(descriptor)


def _number(annotation: Any) -> int:
    """Return an annotation's integer, or ABSENT if the value isn't a 64-bit integer."""
    value = annotation.uint_value or annotation.int_value or annotation.pointer_value
    is_number = value in _INT64 and (value or annotation.WhichOneof("value") in _WHOLE_NUMBERS)
    return value if is_number else ABSENT


def _losses(stats: Any) -> Counter[str]:
    found = Counter({text: getattr(stats, key) for key, text in _TOTAL_LOSSES.items()})
    for buffer in stats.buffer_stats:
        found.update({text: getattr(buffer, key) for key, text in _BUFFER_LOSSES.items()})
    return +found
