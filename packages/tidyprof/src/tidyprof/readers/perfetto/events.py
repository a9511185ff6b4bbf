"""Packets of a Perfetto trace collected as columns: slices and counters."""

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
"""Samples of the profilers of Linux and Chrome; AMD's profilers write samples as slices."""

NO_STATE = "of sequences whose start is missing"
NO_NAME = "with a name that the file does not hold"
NO_CLOCK = "with a clock that the file does not relate to its own"
NO_TIME = "with an impossible time"
NO_VALUE = "of counters that are no number"


class EventColumns:
    """Everything of one file that can become a row, in the order of the file.

    starts, ends -- of every begin and instant; the end is ABSENT until one is found.
    common       -- track, name and category of each of these.
    annotated    -- column that annotations become -> row and value of each annotation.
    spoilt       -- rows whose end has a clock that the file does not relate to its own.
    strays       -- track, time and order of ends without a begin on their own sequence; an end that
                    came after row n has the order 2n + 1, a begin in row n has 2n.
    counters     -- time and track, and value, of every sample of a counter.
    texts        -- what the codes of names, categories and labels stand for; `text` makes them
                    readable.

    Times beyond the bounds of damage are kept at these bounds, whatever the file says.
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
        """Take in the events among packets; the other packets are given to `other`, which may give
        them to `add_other`.
        """
        # Nearly all packets are events, so they are told by their type alone, without asking which
        # field a packet carries.
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
        """Take in a packet that holds no event; `payload` is the name of the field that it
        carries.
        """
        number = packet.trusted_packet_sequence_id
        sequence = self._started(packet, self.sequences.get(number))
        if payload == "clock_snapshot":
            self.clocks.add(packet.clock_snapshot, number)
        elif payload == "track_event":
            self.not_kept["other track events"] += 1
        elif payload in _PACKED_SAMPLES:
            self.not_kept["samples that are no slices"] += 1
        elif sequence is None:
            self.dropped[NO_STATE] += payload == "track_descriptor"
        else:
            # A clock that counts from packet to packet goes on with every packet that states a
            # time.
            self._time(packet, sequence)
            if payload == "track_descriptor":
                self.tracks.add(packet.track_descriptor)

    def _started(self, packet: Any, sequence: Sequence | None) -> Sequence | None:
        """The packet's sequence in the state that the packet needs, None if that state is lost."""
        if sequence is None:
            number = packet.trusted_packet_sequence_id
            sequence = self.sequences[number] = Sequence(number)
        # Nearly all packets only need the state as it is.
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
        """Time in ns on the trace's clock, None if nothing relates the packet's clock to it."""
        time = packet.timestamp
        clock = packet.timestamp_clock_id or sequence.default_clock
        if clock and clock != self.clocks.trace_clock:
            time = self.clocks.time(time, clock, sequence.number)
            if time is None:
                return None
        return max(-LATEST_START_NS, min(time, LATEST_START_NS))

    def _end(self, track: int, time: int | None, sequence: Sequence) -> None:
        """Close the latest slice that the sequence began on the track, even where the end's time is
        before that of the begin.
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
        """Add a row for what begins here, and return its number, -1 if the event cannot be used."""
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
        """The event's category; names of several categories are joined by a comma. None if the file
        lacks one of the names.
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
