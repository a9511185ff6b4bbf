"""Writes Perfetto traces for tests, with an encoder and field numbers of its own.

Numbers are those of protos/perfetto/trace/*.proto in https://github.com/google/perfetto. Nothing of
the reader is used, so that a wrong number in the reader's schema shows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

Value = int | float | str | bytes | bool | dict | list

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
PROCESS, THREAD, QUEUE, COPIES, MEMORY = 1, 2, 3, 4, 5
BASE = 5_000_000_000_000


def varint(number: int) -> bytes:
    number %= 2**64
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def block(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def packet(*parts: bytes, sequence: int = 2, flags: int = 2) -> bytes:
    """One packet as it stands in a file."""
    return block(1, b"".join(parts) + number(10, sequence) + (number(13, flags) if flags else b""))


def time_of(time: int, clock: int | None = None) -> bytes:
    return number(8, time) + (number(58, clock) if clock is not None else b"")


def annotation(name: str, value: Value) -> bytes:
    """A debug annotation; `name` as text or as the number of an interned one."""
    label = number(1, int(name)) if name.isdigit() else block(10, name)
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else [("", one) for one in value]
        field = 11 if isinstance(value, dict) else 12
        return label + b"".join(block(field, annotation(key, one)) for key, one in parts)
    if isinstance(value, int):
        return label + number(2 if value is True else 3 if value >= 0 else 4, value)
    return label + (double(5, value) if isinstance(value, float) else block(6, value))


def event(
    kind: int,
    time: int,
    *,
    name: str | int | None = None,
    category: str | int | list[int] | None = None,
    track: int = THREAD,
    sequence: int = 2,
    clock: int | None = None,
    flags: int = 2,
    interned: bytes = b"",
    **arguments: Value,
) -> bytes:
    """A packet with a TrackEvent. Names and categories are texts, or numbers of interned ones."""
    parts = [number(9, kind)]
    if category is not None:
        several = category if isinstance(category, list) else [category]
        parts += [number(3, one) if isinstance(one, int) else block(22, one) for one in several]
    if name is not None:
        parts.append(number(10, name) if isinstance(name, int) else block(23, name))
    if track:
        parts.append(number(11, track))
    parts += [block(4, annotation(key, value)) for key, value in arguments.items()]
    body = block(11, b"".join(parts))
    data = block(12, interned) if interned else b""
    return packet(time_of(time, clock), body, data, sequence=sequence, flags=flags)


def slice_(
    start: int,
    end: int,
    name: str | int,
    category: str | int | list[int] = "host",
    **options: object,
) -> bytes:
    """Begin and end of a slice, one right after the other as AMD's profilers write them."""
    own = {key: options[key] for key in ("track", "sequence", "clock", "flags") if key in options}
    return event(BEGIN, start, name=name, category=category, **options) + event(END, end, **own)


def sample(start: int, end: int, frames: Iterable[str], track: int = THREAD) -> bytes:
    """A call-stack sample of rocprof-sys: one slice after the other with the same times, outermost
    first.
    """
    return b"".join(slice_(start, end, name, "timer_sampling", track=track) for name in frames)


def counter(time: int, value: float, track: int = MEMORY, **options: object) -> bytes:
    content = double(44, value) if isinstance(value, float) else number(30, value)
    body = block(11, number(9, COUNTER) + number(11, track) + content)
    return packet(time_of(time, options.get("clock")), body, sequence=options.get("sequence", 2))


def interned(**names: dict[int, str]) -> bytes:
    """InternedData of event_names, event_categories, annotation_names, strings."""
    fields = {"event_categories": 1, "event_names": 2, "annotation_names": 3, "strings": 29}
    return b"".join(
        block(fields[kind], number(1, int(key)) + block(2, text))
        for kind, entries in names.items()
        for key, text in entries.items()
    )


def track(uuid: int, *parts: bytes, name: str = "", parent: int = 0, sequence: int = 2) -> bytes:
    """A packet with a TrackDescriptor."""
    content = (
        number(1, uuid) + (block(2, name) if name else b"") + (number(5, parent) if parent else b"")
    )
    return packet(block(60, content + b"".join(parts)), sequence=sequence)


def process(pid: int, *command: str) -> bytes:
    return block(3, number(1, pid) + b"".join(block(2, part) for part in command))


def thread(pid: int, tid: int, name: str = "") -> bytes:
    return block(4, number(1, pid) + number(2, tid) + (block(5, name) if name else b""))


def unit(name: str = "", builtin: int = 0, multiplier: int = 0, incremental: bool = False) -> bytes:
    content = (number(3, builtin) if builtin else b"") + (
        number(4, multiplier) if multiplier else b""
    )
    return block(
        8, content + (number(5, 1) if incremental else b"") + (block(6, name) if name else b"")
    )


def clock_snapshot(
    *clocks: tuple[int, int] | tuple[int, int, bool, int], sequence: int = 1, primary: int = 0
) -> bytes:
    """A packet with a ClockSnapshot: (clock, time) or (clock, time, incremental, ns per unit)."""
    content = b""
    for clock, time, *rest in clocks:
        extra = number(3, rest[0]) + number(4, rest[1]) if rest else b""
        content += block(1, number(1, clock) + number(2, time) + extra)
    return packet(
        block(6, content + (number(2, primary) if primary else b"")), sequence=sequence, flags=0
    )


def start(
    sequence: int = 2, *parts: bytes, clock: int = 6, default_track: int = THREAD, dropped: int = 1
) -> bytes:
    """The first packet of a sequence: it clears the state and sets the defaults."""
    defaults = block(59, block(11, number(11, default_track)) + number(58, clock))
    return packet(*parts, defaults, number(42, dropped), number(87, 1), sequence=sequence, flags=1)


def statistics(chunks_overwritten: int = 0) -> bytes:
    """A packet with TraceStats of one buffer."""
    content = block(1, number(3, chunks_overwritten))
    return packet(block(35, content), sequence=1, flags=0)


def compressed(*packets: bytes) -> bytes:
    """A packet that holds others."""
    return block(1, block(50, zlib.compress(b"".join(packets))))


def tracks(queue: str = "COMPUTE AGENT [4] QUEUE [0] (GPU)", pid: int = 100) -> bytes:
    """Descriptors of a process, its main thread, a queue, copies and a counter."""
    return (
        track(PROCESS, process(pid, "python", "train.py"))
        + track(THREAD, thread(pid, pid + 1, "main"), parent=PROCESS)
        + track(QUEUE, name=queue, parent=PROCESS)
        + track(COPIES, name="COPY to AGENT [4] THREAD [0] (GPU)", parent=PROCESS)
        + track(MEMORY, unit("MB"), name="CPU Memory Usage (S)", parent=PROCESS)
    )


def kernel(start_: int, end: int, name: str, correlation: int, **options: object) -> bytes:
    arguments = {
        "track": QUEUE,
        "corr_id": correlation,
        "agent": 4,
        "queue": 1,
        "tid": 101,
        "kernel_id": 7,
    }
    return slice_(start_, end, name, "kernel_dispatch", **(arguments | options))


def call(start_: int, end: int, name: str, correlation: int, **options: object) -> bytes:
    return slice_(start_, end, name, "hip_api", **({"corr_id": correlation, "tid": 101} | options))


def small_trace() -> bytes:
    """What rocprofv3 would write of two launches, a copy and a range, without interned names."""
    return b"".join(
        (
            clock_snapshot((6, BASE), (1, BASE + 10**18)),
            start(),
            tracks(),
            slice_(BASE, BASE + 10_000, "step", "marker_api"),
            call(BASE + 1_000, BASE + 2_000, "hipLaunchKernel", 1),
            call(BASE + 3_000, BASE + 4_000, "hipLaunchKernel", 2),
            call(BASE + 5_000, BASE + 9_000, "hipMemcpy", 3),
            kernel(
                BASE + 1_500,
                BASE + 3_500,
                "first(float*) [clone .kd]",
                1,
                grid_size=1024,
                workgroup_size=256,
            ),
            kernel(BASE + 3_400, BASE + 4_400, "second(float*) [clone .kd]", 2),
            slice_(
                BASE + 6_000,
                BASE + 8_000,
                "MEMORY_COPY_HOST_TO_DEVICE",
                "memory_copy",
                track=COPIES,
                corr_id=3,
                src_agent=0,
                dst_agent=4,
                copy_bytes=4096,
                tid=101,
            ),
            statistics(),
        )
    )


def write_trace(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path
