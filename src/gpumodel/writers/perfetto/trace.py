"""One process's Perfetto trace, packet by packet, as Perfetto's in-process tracing service leaves
it.

Field numbers are those of protos/perfetto/trace/*.proto in https://github.com/google/perfetto; the
order of the packets and what they state is that of rocprof-sys and rocprofv3, which share this
service.

The wire format of protocol buffers is written here, too
(https://protobuf.dev/programming-guides/encoding). A generated message class would take some twenty
microseconds for each event, too long for a hundred thousand events. Here parts that many events
share are encoded once, and then joined.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from gpumodel.run import RankRun, Run

_NUMBER, _EIGHT_BYTES, _BLOCK = 0, 1, 2
_UNSIGNED = 2**64
_SHORT = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A whole number, seven bits in a byte; a negative one as its two's complement in 64 bits."""
    if 0 <= number <= 0x7F:
        return _SHORT[number]
    number %= _UNSIGNED
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    """A field of a whole number, a truth value or an enumeration."""
    return varint(field << 3 | _NUMBER) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of a floating-point number."""
    return varint(field << 3 | _EIGHT_BYTES) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    """A field of a whole number in eight bytes."""
    return varint(field << 3 | _EIGHT_BYTES) + struct.pack("<Q", value % _UNSIGNED)


def block(field: int, content: bytes | str) -> bytes:
    """A field of text, or of a message that is already encoded."""
    content = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return varint(field << 3 | _BLOCK) + varint(len(content)) + content


SYNC_MARKER = bytes.fromhex("82477a76b28d42ba81dc33326d57a079")
"""What the service writes so that a reader can find a packet's beginning again (perfetto,
src/tracing/service).
"""

BOOTTIME, REALTIME, MONOTONIC, INCREMENTAL = 6, 1, 3, 64
"""Numbers of clocks (protos/perfetto/common/builtin_clock.proto); the last one is a clock that a
sequence defines itself.
"""

_SERVICE, _WRITER = 1, 2
"""Sequences of packets: of the service itself, and of the one thread that writes all events."""

_BEGIN, _END, _COUNTER = 1, 2, 4
"""TrackEvent.Type (protos/perfetto/trace/track_event/track_event.proto)."""

_DISCARD = 2
"""TraceConfig.BufferConfig.FillPolicy: a full buffer keeps what it has."""

_TIME = b"\x40"
_TAIL = number(10, _WRITER) + number(13, 2) + number(58, BOOTTIME)
"""The tag of `timestamp`, and what ends every event: its sequence, that it needs the state of that
sequence, and its clock.
"""

_EVENT, _ANNOTATION, _PACKET = b"\x5a", b"\x22", b"\x0a"
_FLOW = varint(47 << 3 | 1)

Value = int | float | str


class Trace:
    """Collects the packets of one process. Times are ns of CLOCK_BOOTTIME."""

    def __init__(self, run: Run, rank: RankRun, buffer_kilobytes: int = 1_024_000) -> None:
        self._packets: list[bytes] = []
        self._categories: dict[str, int] = {}
        self._tracks: dict[str, int] = {}
        self._ends: dict[int, bytes] = {}
        self._process = rank.process_id
        self.process_track = self._uuid("process")
        # The opening packets refer to the main thread's track, before it can be described.
        self.main_track = self.thread_track(rank.main_thread_id, describe=False)
        self._open(run, buffer_kilobytes)
        self._describe_process(run)
        self._describe_thread(rank.main_thread_id, program_of(run))

    def content(self) -> bytes:
        """All bytes of the file."""
        return b"".join(self._packets)

    def thread_track(self, thread: int, name: str = "", describe: bool = True) -> int:
        """The track of a thread of the process. describe -- whether it is described at its first
        use.
        """
        key = f"thread {thread}"
        if key not in self._tracks:
            self._tracks[key] = self._uuid(key)
            if describe:
                self._describe_thread(thread, name)
        return self._tracks[key]

    def track(self, name: str, unit: str | None = None) -> int:
        """The track of this name below the process. With a unit, which may be empty, it is that of
        a counter.
        """
        if name not in self._tracks:
            uuid = self._tracks[name] = self._uuid(name)
            content = number(1, uuid) + block(2, name) + number(5, self.process_track)
            if unit is not None:
                content += block(8, block(6, unit) if unit else b"")
            self._add(block(60, content) + number(10, _WRITER) + number(13, 2))
        return self._tracks[name]

    def part(
        self, name: str, category: str, track: int, arguments: Mapping[str, Value] | None = None
    ) -> bytes:
        """What slices of one kind have in common, for `slice`: name, category, track and
        arguments.
        """
        found = (
            number(9, _BEGIN)
            + number(3, self._category(category))
            + number(11, track)
            + block(23, name)
        )
        return found + b"".join(annotation(key, value) for key, value in (arguments or {}).items())

    def slice(
        self,
        part: bytes,
        track: int,
        start: bytes,
        end: bytes,
        own: bytes = b"",
        end_own: bytes = b"",
    ) -> None:
        """Add a slice: its begin, and right after it its end, as AMD's profilers write them.

        part, track -- from `part` and `track`; start, end -- times in ns, encoded as varints; own,
        end_own -- arguments of the begin and of the end, encoded.
        """
        ending = self._ends.get(track)
        if ending is None:
            ending = self._ends[track] = number(9, _END) + number(11, track)
        self._event(start, part + own)
        self._event(end, ending + end_own)

    def counter(self, track: int, time: int, value: float) -> None:
        """Add a sample of a counter. time -- in ns; value -- in the track's unit."""
        self._event(varint(time), number(9, _COUNTER) + number(11, track) + double(44, value))

    def flow(self, correlation: int) -> bytes:
        """The part of an event that links a call with its device work, by an arrow in the
        viewer.
        """
        return _FLOW + struct.pack("<Q", correlation ^ self.process_track)

    def _event(self, time: bytes, event: bytes) -> None:
        content = _TIME + time + _EVENT + varint(len(event)) + event + _TAIL
        self._packets.append(_PACKET + varint(len(content)) + content)

    def _add(self, content: bytes) -> None:
        self._packets.append(block(1, content))

    def _service(self, content: bytes) -> None:
        self._add(content + number(10, _SERVICE))

    def _uuid(self, what: str) -> int:
        digest = blake2b(
            f"{self._process} {what}".encode("utf-8", "surrogateescape"), digest_size=8
        ).digest()
        return int.from_bytes(digest, "little") or 1

    def _category(self, name: str) -> int:
        """The number of a category. Its name comes in a packet of its own, before the first event
        that has it.
        """
        if name not in self._categories:
            iid = self._categories[name] = len(self._categories) + 1
            interned = block(12, block(1, number(1, iid) + block(2, name)))
            self._add(interned + number(10, _WRITER) + number(13, 2))
        return self._categories[name]

    def _open(self, run: Run, buffer_kilobytes: int) -> None:
        """Write what the service writes before all events: clock_snapshot, synchronization_marker,
        trace_config, trace_uuid, system_info and trace_stats; then the first packet of the writer's
        sequence, with its own clock and its defaults.
        """
        shown = {
            BOOTTIME: run.start_ns,
            REALTIME: run.start_ns + run.wall_clock_offset_ns,
            MONOTONIC: run.start_ns,
        }
        clocks = b"".join(
            block(1, number(1, clock) + number(2, time)) for clock, time in shown.items()
        )
        self._service(block(6, clocks + number(2, BOOTTIME)))
        self._service(block(36, SYNC_MARKER))
        self._service(block(33, block(1, number(1, buffer_kilobytes) + number(4, _DISCARD))))
        identity = self._uuid(f"trace {run.start_ns} {run.command}")
        self._service(block(89, number(1, identity) + number(2, self.process_track)))
        self._service(
            block(45, block(1, block(1, "Linux") + block(4, "x86_64")) + block(4, "Perfetto v46.0"))
        )
        self._service(
            block(35, block(1, b"") + b"".join(number(field, 0) for field in (8, 9, 10, 14)))
        )
        own = block(1, number(1, BOOTTIME) + number(2, run.start_ns))
        own += block(
            1, number(1, INCREMENTAL) + number(2, run.start_ns) + number(3, 1) + number(4, 1)
        )
        defaults = block(11, number(11, self.main_track)) + number(58, INCREMENTAL)
        first = (
            number(8, run.start_ns)
            + number(10, _WRITER)
            + number(13, 1)
            + number(42, 1)
            + number(58, BOOTTIME)
        )
        self._add(block(6, own) + first + block(59, defaults) + number(87, 1))

    def _describe_process(self, run: Run) -> None:
        content = number(1, self._process) + b"".join(block(2, part) for part in run.command)
        # Perfetto has no place for a marker of the model, so the process is labelled with it.
        content += block(6, program_of(run)) + block(
            8, f"modelled, no GPU was measured ({run.error or 'error unknown'})"
        )
        self._add(
            block(60, number(1, self.process_track) + block(3, content))
            + number(10, _WRITER)
            + number(13, 2)
        )

    def _describe_thread(self, thread: int, name: str) -> None:
        content = number(1, self._process) + number(2, thread) + (block(5, name) if name else b"")
        uuid = self._tracks[f"thread {thread}"]
        described = number(1, uuid) + block(4, content) + number(5, self.process_track)
        self._add(block(60, described) + number(10, _WRITER) + number(13, 2))


def annotation(name: str, value: Value) -> bytes:
    """An argument of a slice, as one field of its event."""
    return block(4, block(10, name) + _encoded(value))


def annotation_head(name: str) -> bytes:
    """All of an argument except its number, for `with_number`."""
    return block(10, name) + b"\x18"


def with_number(head: bytes, value: bytes) -> bytes:
    """An argument whose value is a whole number, already encoded; quicker than `annotation`."""
    return _ANNOTATION + bytes((len(head) + len(value),)) + head + value


def _encoded(value: Value) -> bytes:
    if isinstance(value, str):
        return block(6, value)
    if isinstance(value, float):
        return double(5, value)
    return number(3, value) if value >= 0 else number(4, value)


def program_of(run: Run) -> str:
    """Base name of the program that the run starts."""
    return Path(run.command[0]).name if run.command else "python3"
