"""Tracks of a Perfetto trace: whose events they hold, and what their names tell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tidyprof.readers.perfetto.texts import text
from tidyprof.tables.codes import ABSENT, Codes

_UNITS = {1: "ns", 2: "count", 3: "bytes"}
"""CounterDescriptor.Unit (protos/perfetto/trace/track_event/counter_descriptor.proto)."""

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
"""What AMD's profilers name their tracks. `agent` counts all agents of a node, CPUs too, unless its label is
that of a kind of device (`GPU`); `index` counts GPUs."""

_PROCESSOR = re.compile(r"\((CPU|GPU)\)$")
_MAXIMUM_NUMBER = 2**31
_MAXIMUM_ANCESTORS = 64


@dataclass
class Track:
    """One track as its descriptors state it; numbers are ABSENT where they do not."""

    name: str = ""
    parent: int = 0
    pid: int = ABSENT
    tid: int = ABSENT
    process_name: str = ""
    command: tuple[str, ...] = ()
    unit: str | None = None
    multiplier: int = 1
    is_incremental: bool = False

    def update(self, descriptor: Any) -> None:
        """Take in a descriptor; a later one need not repeat what an earlier one said."""
        self.name = text(descriptor.name or descriptor.static_name) or self.name
        self.parent = descriptor.parent_uuid or self.parent
        if descriptor.HasField("thread"):
            self.pid, self.tid = descriptor.thread.pid, descriptor.thread.tid
            self.name = self.name or text(descriptor.thread.thread_name)
        if descriptor.HasField("process"):
            self.pid = descriptor.process.pid
            self.process_name = text(descriptor.process.process_name)
            self.command = tuple(map(text, descriptor.process.cmdline))
        if descriptor.HasField("counter"):
            counter = descriptor.counter
            self.unit = text(counter.unit_name) or _UNITS.get(counter.unit)
            self.multiplier = counter.unit_multiplier or 1
            self.is_incremental = counter.is_incremental


@dataclass(frozen=True)
class Place:
    """Where a track's events belong; numbers are ABSENT where the file does not say.

    device counts as `counts_agents` says: all agents of a node, CPUs too, or GPUs only.
    """

    name: str
    process: int = ABSENT
    thread: int = ABSENT
    device: int = ABSENT
    queue: int = ABSENT
    stream: int = ABSENT
    counts_agents: bool = False
    is_cpu: bool = False


class Tracks:
    """All tracks of a file.

    codes -- a track's identifier -> a small number of its own.
    """

    def __init__(self) -> None:
        self.codes = Codes()
        self._tracks: dict[int, Track] = {}

    def add(self, descriptor: Any) -> None:
        """Take in a TrackDescriptor."""
        self._tracks.setdefault(descriptor.uuid, Track()).update(descriptor)

    def get(self, uuid: int) -> Track:
        """What is known of a track so far, nothing if its descriptor has not come yet."""
        return self._tracks.get(uuid) or Track()

    def places(self) -> list[Place]:
        """For every code where the track belongs."""
        return [self._place(uuid) for uuid in self.codes]

    def commands(self) -> dict[int, str]:
        """Process id -> command line, or name where there is none."""
        found = {}
        for track in self._tracks.values():
            command = " ".join(track.command) or track.process_name
            if track.pid != ABSENT and command:
                found[track.pid] = command
        return found

    def _place(self, uuid: int) -> Place:
        own = self.get(uuid)
        process, thread, name = own.pid, own.tid, own.name or own.process_name
        track, passed = own, 0
        while process == ABSENT and track.parent in self._tracks and passed < _MAXIMUM_ANCESTORS:
            track = self._tracks[track.parent]
            process = track.pid
            thread = track.tid if thread == ABSENT else thread
            name = name or track.name
            passed += 1
        return Place(name, process, **({"thread": thread} | _named(name)))


def _named(name: str) -> dict[str, Any]:
    """What a track's name tells, as arguments of Place."""
    found = next(filter(None, (pattern.match(name) for pattern in _PLACES)), None)
    if not found:
        return {}
    parts = {key: int(value) for key, value in found.groupdict().items() if value and key != "label"}
    if any(value >= _MAXIMUM_NUMBER for value in parts.values()):
        return {}
    processor = _PROCESSOR.search(name)
    label = (found.groupdict().get("label") or "").upper()
    told: dict[str, Any] = {key: parts[key] for key in ("queue", "stream", "thread") if key in parts}
    if "agent" in parts or "index" in parts:
        told["is_cpu"] = label == "CPU" or bool(processor and processor[1] == "CPU")
        told["counts_agents"] = "agent" in parts and label not in ("CPU", "GPU")
        told["device"] = parts.get("agent", parts.get("index"))
    return told
