"""Slices and counters from the packets of a Perfetto trace, stored as columns."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any

from tidyprof.readers.perfetto.sequences import LABELS, NEEDED, Sequence, number_of, text
from tidyprof.readers.perfetto.tracks import Clocks, Tracks
from tidyprof.tables.codes import ABSENT, Codes
from tidyprof.tables.damage import LATEST_START_NS

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""TrackEvent.Type (protos/perfetto/trace/track_event/track_event.proto)."""

_PACKED_SAMPLES = ("streaming_profile_packet", "perf_sample")
"""Packet types for samples from Linux and Chrome profilers. AMD's profilers write samples as
slices.
"""

NO_STATE = "from sequences without a start"
NO_NAME = "with a missing name"
NO_CLOCK = "whose clock can't be converted"
NO_TIME = "with an impossible time"
NO_VALUE = "with non-numeric counter values"


class EventColumns:
    """Data from one file that can become rows. The data is in file order. If a time is too late to
    be valid, it is set to the latest valid time.

    - starts: start times of all slices and instant events
    - ends: end times of all slices and instant events, or ABSENT until the end is found
    - common: track, name and category of each slice or instant event
    - annotated: row and value of each annotation, by column
    - spoilt: rows whose end time is on a clock that can't be converted to the trace's clock
    - strays: track, time and order of each end event that has no start event in its sequence. The
      order is 2n for a start event in row n, and 2n + 1 for an end event after row n.
    - counters: time and track of every counter sample
    - counter_values: value of every counter sample
    - texts: codes of names, categories and labels. The function `text` decodes their strings.
    """

    def __init__(self, texts: Codes) -> None:
        self.texts = texts
        self.tracks = Tracks()
        self.clocks = Clocks()
        self.sequences: dict[int, Sequence] = {}
        self.starts, self.ends = array("q"), array("q")
        self.common = array("q")
        self.annotated: defaultdict[str, array] = defaultdict(lambda: array("q"))
        self.spoilt: list[int] = []
        self.strays = array("q")
        self.counters, self.counter_values = array("q"), array("d")
        self.dropped: Counter[str] = Counter()
        self.not_kept: Counter[str] = Counter()

    def add(self, packets: Iterable[Any], other: Callable[[Any], None]) -> None:
        """Add the events in these packets. Other packets are passed to `other`, which may call
        `add_other`.
        """
        # Nearly all packets are events, so checking their type first is faster than checking which
        # field each packet has.
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
            track = tracks[event.track_uuid or sequence.default_track]
            time = self._time(packet, sequence)
            if kind == END:
                self._end(track, time, sequence)
            elif kind == BEGIN:
                row = self._slice(event, time, track, sequence)
                sequence.open.setdefault(track, []).append(row)
            elif kind == INSTANT:
                row = self._slice(event, time, track, sequence)
                if row >= 0:
                    self.ends[row] = self.starts[row]
            elif kind == COUNTER:
                self._counter(event, time, track)
            else:
                self.not_kept["other track events"] += 1

    def add_other(self, payload: str | None, packet: Any) -> None:
        """Add a packet without an event. `payload` is the name of the packet's field."""
        number = packet.trusted_packet_sequence_id
        sequence = self._started(packet, self.sequences.get(number))
        if payload == "clock_snapshot":
            self.clocks.add(packet.clock_snapshot, number)
        elif payload == "track_event":
            self.not_kept["other track events"] += 1
        elif payload in _PACKED_SAMPLES:
            self.not_kept["samples that aren't slices"] += 1
        elif sequence is None:
            self.dropped[NO_STATE] += payload == "track_descriptor"
        else:
            # An incremental clock advances with every packet that has a time.
            self._time(packet, sequence)
            if payload == "track_descriptor":
                self.tracks.add(packet.track_descriptor)

    def _started(self, packet: Any, sequence: Sequence | None) -> Sequence | None:
        """Return the packet's sequence, or None if the packet depends on lost state."""
        if sequence is None:
            number = packet.trusted_packet_sequence_id
            sequence = self.sequences[number] = Sequence(number)
        # Nearly all packets use the existing state.
        if (
            packet.sequence_flags != NEEDED
            or packet.previous_packet_dropped
            or not sequence.is_valid
        ):
            usable = sequence.start_packet(packet)
            if not usable:
                return None
        if packet.HasField("trace_packet_defaults"):
            sequence.set_defaults(packet.trace_packet_defaults)
        if packet.HasField("interned_data"):
            sequence.learn(packet.interned_data)
        return sequence

    def _time(self, packet: Any, sequence: Sequence) -> int | None:
        """Return the time in nanoseconds on the trace's clock, or None if the packet's clock can't
        be converted to the trace's clock.
        """
        time = packet.timestamp
        clock = packet.timestamp_clock_id or sequence.default_clock
        if clock and clock != self.clocks.trace_clock:
            time = self.clocks.time(time, clock, sequence.number)
            if time is None:
                return None
        return max(-LATEST_START_NS, min(time, LATEST_START_NS))

    def _end(self, track: int, time: int | None, sequence: Sequence) -> None:
        """Close the latest slice that the sequence started on the track, even if the end is earlier
        than the start.
        """
        rows = sequence.open.get(track)
        row = rows.pop() if rows else None
        if row is None and time is not None:
            self.strays.extend((track, time, 2 * len(self.starts) - 1))
        elif row is not None and row >= 0:
            if time is None:
                self.spoilt.append(row)
            self.ends[row] = self.starts[row] if time is None else time

    def _slice(self, event: Any, time: int | None, track: int, sequence: Sequence) -> int:
        """Add a row and return its number. Return -1 if the event can't be used."""
        number = event.name_iid
        name = sequence.names.get(number) if number else event.name
        category = self._category(event, sequence)
        if time is None or name is None or category is None:
            self.dropped[NO_CLOCK if time is None else NO_NAME] += 1
            return -1
        row = len(self.starts)
        self.starts.append(time)
        self.ends.append(ABSENT)
        self.common.extend((track, self.texts[name], self.texts[category]))
        annotations = sequence.annotations
        for annotation in event.debug_annotations:
            column = annotations.columns.get(annotation.name_iid or annotation.name)
            if column:
                is_label = column in LABELS
                value = (
                    self.texts[annotations.label(annotation)] if is_label else number_of(annotation)
                )
                self.annotated[column].extend((row, value))
        return row

    def _category(self, event: Any, sequence: Sequence) -> str | bytes | None:
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
