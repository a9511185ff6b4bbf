"""Clocks and tracks of a Perfetto trace. Track names identify processes, threads and devices."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any

from tidyprof.readers.perfetto.sequences import text
from tidyprof.tables.codes import ABSENT, Codes

REALTIME, BOOTTIME = 1, 6
CLOCK_NAMES = {
    REALTIME: "REALTIME",
    2: "REALTIME_COARSE",
    3: "MONOTONIC",
    4: "MONOTONIC_COARSE",
    5: "MONOTONIC_RAW",
    BOOTTIME: "BOOTTIME",
}
"""Names of Linux clocks, by their number in a trace (Perfetto's
protos/perfetto/common/builtin_clock.proto).
"""

_SEQUENCE_CLOCKS = range(64, 128)
"""Numbers of the clocks that each sequence defines separately
(protos/perfetto/trace/clock_snapshot.proto).
"""

Clock = int | tuple[int, int]
"""Identifier of a clock. If a sequence defines the clock, the identifier consists of the sequence
number and the clock number.
"""


@dataclass
class SequenceClock:
    """A clock that one packet sequence defines.

    - last: latest time in nanoseconds. On an incremental clock, each value is added to this time.
    """

    last: int
    multiplier: int
    is_incremental: bool

    def time(self, stated: int) -> int:
        """Convert a packet's time value to nanoseconds."""
        time = stated * self.multiplier + (self.last if self.is_incremental else 0)
        self.last = time
        return time


class Clocks:
    """The trace's clock and its relation to other clocks.

    - trace_clock: number of the trace's clock. By default, it is the clock that counts the time
      since boot.
    """

    def __init__(self) -> None:
        self.trace_clock = BOOTTIME
        self._stated = False
        self._own: dict[Clock, SequenceClock] = {}
        self._snapshots: list[dict[Clock, int]] = []
        self._ways: dict[Clock, list[tuple[list[int], list[int]]]] = {}

    def add(self, snapshot: Any, sequence: int) -> None:
        """Add a ClockSnapshot from this sequence. A snapshot contains the times of several clocks
        at the same moment.
        """
        if snapshot.primary_trace_clock and not self._stated:
            self.trace_clock = snapshot.primary_trace_clock
            self._stated = True
        times: dict[Clock, int] = {}
        for clock in snapshot.clocks:
            multiplier = clock.unit_multiplier_ns or 1
            own = clock.clock_id in _SEQUENCE_CLOCKS
            key = (sequence, clock.clock_id) if own else clock.clock_id
            times[key] = clock.timestamp * multiplier
            if own:
                self._own[key] = SequenceClock(times[key], multiplier, clock.is_incremental)
        self._snapshots.append(times)
        self._ways.clear()

    def time(self, stated: int, clock: int, sequence: int) -> int | None:
        """Convert a packet's time to nanoseconds on the trace's clock. Return None if the file
        doesn't relate the packet's clock to the trace's clock.
        """
        if clock == self.trace_clock:
            return stated
        if clock not in _SEQUENCE_CLOCKS:
            return self._converted(stated, clock)
        own = self._own.get((sequence, clock))
        return None if own is None else self._converted(own.time(stated), (sequence, clock))

    def _converted(self, time: int, clock: Clock) -> int | None:
        """Convert a time to the trace's clock with the latest snapshot of both clocks before that
        time. If there is no earlier snapshot, use the first one.
        """
        if clock not in self._ways:
            self._ways[clock] = [*starmap(self._times_of_both, pairwise(self._route(clock)))]
        for here, there in self._ways[clock]:
            snapshot = max(0, bisect_right(here, time) - 1)
            time += there[snapshot] - here[snapshot]
        return time if self._ways[clock] else None

    def _route(self, clock: Clock) -> tuple[Clock, ...]:
        """Return the chain of clocks that connects this clock to the trace's clock. Return an empty
        tuple if no snapshots connect these clocks.
        """
        # One intermediate clock is enough for all known files.
        beside, reaching = (
            {other for snapshot in self._snapshots if end in snapshot for other in snapshot}
            for end in (clock, self.trace_clock)
        )
        if self.trace_clock in beside:
            return (clock, self.trace_clock)
        between = sorted(beside & reaching, key=str)
        return (clock, between[0], self.trace_clock) if between else ()

    def _times_of_both(self, clock: Clock, other: Clock) -> tuple[list[int], list[int]]:
        both = sorted((s[clock], s[other]) for s in self._snapshots if clock in s and other in s)
        return [here for here, _ in both], [there for _, there in both]

    def realtime_offsets(self) -> list[int]:
        """Return the offsets that convert the trace's times to nanoseconds since 1970. Each
        snapshot that contains both clocks provides one offset.
        """
        clock = self.trace_clock
        return [s[REALTIME] - s[clock] for s in self._snapshots if REALTIME in s and clock in s]


_UNITS = {1: "ns", 2: "count", 3: "bytes"}
"""Units from CounterDescriptor.Unit
(protos/perfetto/trace/track_event/counter_descriptor.proto).
"""

_PLACES = tuple(
    re.compile(pattern)
    for pattern in (
        # rocprofv3 (rocprofiler-sdk, source/lib/output/generatePerfetto.cpp)
        r"COMPUTE (?P<label>\w+) \[(?P<agent>[0-9]{1,10})\] QUEUE \[(?P<queue>[0-9]{1,10})\]",
        r"COPY (?:BYTES )?to (?P<label>\w+) \[(?P<agent>[0-9]{1,10})\]",
        r"STREAM \[\W*(?P<stream>[0-9]{1,10})\W*\]",
        r"THREAD [0-9]{1,10} \((?P<thread>[0-9]{1,10})\)",
        # rocprof-sys (rocprofiler-systems, source/lib/rocprof-sys/library)
        r"GPU Kernel Dispatch \[(?P<index>[0-9]{1,10})\] Queue (?P<queue>[0-9]{1,10})",
        r"GPU Memory Copy to (?P<label>Agent) \[(?P<agent>[0-9]{1,10})\]",
        r"HIP Activity Stream (?P<stream>[0-9]{1,10})",
        r"Thread [0-9]{1,10} .*\(S\) (?P<thread>[0-9]{1,10})$",
        r"GPU \[(?P<index>[0-9]{1,10})\] ",
        r"GPU .*\[(?P<index>[0-9]{1,10})\] \(S\)$",
        # omnitrace, its predecessor
        r"HIP Activity Device (?P<index>[0-9]{1,10})(?:, Queue (?P<queue>[0-9]{1,10}))?",
    )
)
"""Patterns for the track names of AMD's profilers. `agent` numbers all agents of a node, including
CPUs, unless the label is a type of device (`GPU`). `index` numbers only GPUs.
"""

_PROCESSOR = re.compile(r"\((CPU|GPU)\)$")
_MAXIMUM_NUMBER = 2**31
_MAXIMUM_ANCESTORS = 64


@dataclass(frozen=True)
class Place:
    """Process, thread and device of the events on a track. Unknown numbers are ABSENT.

    - device: number of the device. If `counts_agents` is True, it is the device's number among all
      agents of a node, including CPUs. Otherwise, it is the device's number among the GPUs.
    - unit: unit of a counter
    - multiplier: factor that converts a counter's values to its unit
    - is_incremental: True if each counter value is the increase since the last value
    """

    name: str
    process: int = ABSENT
    thread: int = ABSENT
    device: int = ABSENT
    queue: int = ABSENT
    stream: int = ABSENT
    counts_agents: bool = False
    is_cpu: bool = False
    unit: str | None = None
    multiplier: int = 1
    is_incremental: bool = False


class Tracks:
    """All tracks of a file.

    - codes: small number for each track identifier
    """

    def __init__(self) -> None:
        self.codes = Codes()
        self._descriptors: dict[int, Any] = {}

    def add(self, descriptor: Any) -> None:
        """Add a TrackDescriptor. Values from earlier descriptors of the same track are kept."""
        # Copy the descriptor, because a part of a message keeps the whole message in memory.
        known = self._descriptors.setdefault(descriptor.uuid, type(descriptor)())
        if descriptor.process.cmdline:
            known.process.ClearField("cmdline")
        known.MergeFrom(descriptor)

    def places(self) -> list[Place]:
        """Return the place of every track, in the order of the codes."""
        return [self._place(uuid) for uuid in self.codes]

    def commands(self) -> dict[int, str]:
        """Return each process's command line, by process ID. If there is no command line, use the
        process name.
        """
        described = (
            track.process for track in self._descriptors.values() if track.HasField("process")
        )
        found = {
            process.pid: " ".join(map(text, process.cmdline or [process.process_name]))
            for process in described
        }
        return {pid: command for pid, command in found.items() if command}

    def _place(self, uuid: int) -> Place:
        own = track = self._descriptors.get(uuid)
        if own is None:
            return Place("")
        process, thread, name = ABSENT, ABSENT, ""
        # The number of rounds is limited, because a damaged track can be its own ancestor.
        for _ in range(_MAXIMUM_ANCESTORS):
            if track.HasField("thread"):
                process, thread = track.thread.pid, track.thread.tid
            if track.HasField("process"):
                process = track.process.pid
            name = name or text(track.name or track.static_name or track.thread.thread_name)
            track = self._descriptors.get(track.parent_uuid)
            if process != ABSENT or track is None:
                break
        name = name or text(own.process.process_name)
        counter = own.counter
        unit = text(counter.unit_name) or _UNITS.get(counter.unit)
        described = {
            "unit": unit,
            "multiplier": counter.unit_multiplier or 1,
            "is_incremental": counter.is_incremental,
        }
        return Place(name, process, **{"thread": thread, **described, **_named(name)})


def _named(name: str) -> dict[str, Any]:
    match = next(filter(None, (pattern.match(name) for pattern in _PLACES)), None)
    if not match:
        return {}
    groups = match.groupdict()
    numbers = {key: int(value) for key, value in groups.items() if value and key != "label"}
    if any(value >= _MAXIMUM_NUMBER for value in numbers.values()):
        return {}
    arguments: dict[str, Any] = {
        key: numbers[key] for key in ("queue", "stream", "thread") if key in numbers
    }
    if "agent" in numbers or "index" in numbers:
        # rocprofv3 puts the kind of device before its number, and rocprof-sys puts it at the end.
        label = (groups.get("label") or "").upper()
        processor = _PROCESSOR.search(name)
        arguments["is_cpu"] = label == "CPU" or bool(processor and processor[1] == "CPU")
        arguments["counts_agents"] = "agent" in numbers and label not in ("CPU", "GPU")
        arguments["device"] = numbers.get("agent", numbers.get("index"))
    return arguments
