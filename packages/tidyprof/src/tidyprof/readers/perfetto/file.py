"""Events, counters and metadata of one Perfetto trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from tidyprof.errors import EMPTY, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import ByteStream
from tidyprof.readers.perfetto.devices import (
    STREAM_CATEGORY,
    has_category,
    is_launching,
    kinds_of,
    locate,
    tool_of,
)
from tidyprof.readers.perfetto.events import NO_CLOCK, NO_NAME, NO_STATE, EventColumns
from tidyprof.readers.perfetto.packets import PacketReader
from tidyprof.readers.perfetto.sequences import text
from tidyprof.readers.perfetto.slices import (
    CLOSING_ZEROS,
    NO_BEGIN,
    OPEN_PER_TRACK,
    add_nesting,
    counter_table,
    slices_of,
)
from tidyprof.readers.perfetto.tracks import CLOCK_NAMES, Place
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, ON_DEVICE, Codes
from tidyprof.tables.damage import (
    CAUSE,
    NEXT_STEP,
    cut_hip_overlaps,
    left_out,
    refuse_damage,
    without_damage,
)
from tidyprof.tables.launches import first_of_each, link, rows_of
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records

_LOSSES = {
    "chunks_overwritten": "chunks overwritten in the buffer",
    "chunks_discarded": "chunks discarded by a full buffer",
    "trace_writer_packet_loss": "packets lost by the program's writer",
    "patches_failed": "packets cut in two",
    "abi_violations": "broken chunks",
}
"""Data losses per buffer (TraceStats.BufferStats in protos/perfetto/common/trace_stats.proto)."""

_TOTAL_LOSSES = {
    "chunks_discarded": "chunks discarded by the service",
    "patches_discarded": "patches discarded by the service",
    "invalid_packets": "invalid packets",
    "flushes_failed": "flushes failed",
}

_FILL_POLICIES = {1: "ring_buffer", 2: "discard"}
UNWIND_LIMIT, OWN_FRAMES = 64, 4
"""Number of frames at which rocprof-sys stops unwinding. The second constant is the maximum number
of these frames that belong to rocprof-sys itself.
"""

_MISSING_PART = {"ring_buffer": "its start is missing", "discard": "its end is missing"}
_CLOCK_TOLERANCE_NS = 10**9

_NO_GPU_EVENTS = {
    "rocprofv3": (
        "the program launched no GPU work, or kernels were not recorded because --kernel-trace or"
        " --runtime-trace is missing (--hip-trace records only calls)"
    ),
    "rocprof-sys": (
        "the program launched no GPU work, the tool was built without ROCm, or the settings exclude"
        " kernels (ROCPROFSYS_USE_ROCM is off, or ROCPROFSYS_ROCM_DOMAINS lacks kernel_dispatch)"
    ),
}

LOST_PACKETS = "packets missing in a sequence"


class FileFacts:
    """Metadata from packets that contain no events.

    - traces: identifiers of the traces in the file. A file can contain several concatenated traces.
    - losses: number of losses of each kind, or None if the file has no statistics
    """

    def __init__(self) -> None:
        self.traces: list[str] = []
        self.losses: Counter[str] | None = None
        self._earlier_losses: Counter[str] = Counter()
        self._facts: dict[str, Any] = {}

    def add(self, payload: str | None, packet: Any) -> None:
        """Add one packet. `payload` is the name of the packet's field."""
        if payload == "trace_stats":
            # Statistics are cumulative within a trace. Statistics of concatenated traces are added.
            self.losses = self._earlier_losses + _losses(packet.trace_stats)
        elif payload == "system_info":
            self._facts |= _machine(packet.system_info)
        elif payload == "trace_uuid":
            number = (packet.trace_uuid.msb % 2**64) << 64 | packet.trace_uuid.lsb % 2**64
            self.traces.append(str(UUID(int=number)))
            self._earlier_losses = self.losses or Counter()
        elif payload == "trace_config":
            buffers = packet.trace_config.buffers
            self._facts["buffer_kilobytes"] = sum(buffer.size_kb for buffer in buffers)
            policies = {_FILL_POLICIES.get(buffer.fill_policy) for buffer in buffers} - {None}
            if policies:
                self._facts["buffer_fill_policy"] = ", ".join(sorted(policies))

    def entries(self, collected: EventColumns) -> dict[str, Any]:
        """Return the entries for `Profile.meta`, starting with `data_loss`. Unknown entries are
        omitted.
        """
        gaps = sum(sequence.gaps for sequence in collected.sequences.values())
        entries: dict[str, Any] = {}
        if self.losses is not None or gaps:
            entries["data_loss"] = dict((self.losses or Counter()) + Counter({LOST_PACKETS: gaps}))
        entries["clock"] = CLOCK_NAMES.get(
            collected.clocks.trace_clock, str(collected.clocks.trace_clock)
        )
        offsets = collected.clocks.realtime_offsets()
        if offsets:
            entries["realtime_offset_ns"] = offsets[0]
        commands = collected.tracks.commands()
        if commands:
            entries["commands"] = commands
        if self.traces:
            entries["traces"] = list(self.traces)
        return entries | self._facts

    def warnings(self, name: str, collected: EventColumns, losses: dict[str, int]) -> list[str]:
        """Return warnings about problems with the file, starting with lost data."""
        found = []
        if losses:
            listed = ", ".join(f"{count} {what}" for what, count in losses.items())
            missing = _MISSING_PART.get(
                self._facts.get("buffer_fill_policy", ""), "part of it is missing"
            )
            found.append(
                f"{name}: the trace lost data ({listed}), and {missing}. Counts and sums are too"
                " small. Likely cause: the trace buffer was too small. Next step: record fewer"
                " steps, or set a larger buffer (rocprofv3 --perfetto-buffer-size or"
                " ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB)."
            )
        offsets = collected.clocks.realtime_offsets()
        if offsets and max(offsets) - min(offsets) > _CLOCK_TOLERANCE_NS:
            found.append(
                f"{name}: parts of the trace disagree about the time of day by"
                f" {(max(offsets) - min(offsets)) / 1e9:.3g} s. Times of different processes may"
                " not be comparable. Likely cause: the parts come from several machines, or a"
                " clock was adjusted."
            )
        return found


def cut_stacks_warning(name: str, tool: str, samples: np.ndarray) -> str | None:
    """Return a warning if call stacks are incomplete.

    - samples: sample number of every frame
    """
    frames = np.unique(samples, return_counts=True)[1]
    deepest = int(frames.max(initial=0))
    cut = int((frames == deepest).sum())
    if tool != "rocprof-sys" or not UNWIND_LIMIT - OWN_FRAMES <= deepest <= UNWIND_LIMIT or cut < 2:
        return None
    return (
        f"{name}: {cut} of {len(frames)} call-stack samples have {deepest} frames. The tool's limit"
        f" is {UNWIND_LIMIT} frames, including its own. The outermost frames of these samples are"
        " missing."
    )


def missing_gpu_warning(name: str, tool: str) -> str | None:
    """Return a warning about missing GPU events if a GPU profiler wrote the file. The caller checks
    whether the file has GPU events.
    """
    cause = _NO_GPU_EVENTS.get(tool)
    return f"{name}: the trace has no GPU events. Likely cause: {cause}." if cause else None


def _losses(stats: Any) -> Counter[str]:
    found = Counter({text: getattr(stats, key) for key, text in _TOTAL_LOSSES.items()})
    for buffer in stats.buffer_stats:
        found.update({text: getattr(buffer, key) for key, text in _LOSSES.items()})
    return +found


def _machine(info: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    system = " ".join(
        filter(None, map(text, (info.utsname.sysname, info.utsname.release, info.utsname.machine)))
    )
    if system:
        facts["system"] = system
    if info.num_cpus:
        facts["cpus"] = info.num_cpus
    if info.tracing_service_version:
        facts["perfetto_version"] = text(info.tracing_service_version).split(" (")[0]
    return facts


_COMPRESSED = (
    "the packets in this file are compressed",
    "the trace configuration sets compression_type",
    "record without compression_type, or compress the whole file with gzip or zstd instead",
)

REPEATED_CALLS = "calls repeated on their stream's track"


def read_file(path: Path, texts: Codes, maximum_bytes: int, advance: Callable[[int], Any]) -> Part:
    """Read one trace.

    - advance: function that is called with the number of bytes read since the last call
    """
    stream = ByteStream(path, maximum_bytes)
    reader = PacketReader(path, stream.chunks())
    collected, facts = EventColumns(texts), FileFacts()

    def add_other(packet: Any) -> None:
        payload = packet.WhichOneof("data")
        if payload == "compressed_packets":
            raise ProfileReadError(path, *_COMPRESSED)
        collected.add_other(payload, packet)
        facts.add(payload, packet)

    reported = 0
    for packets in reader.batches():
        collected.add(packets, add_other)
        advance(stream.position - reported)
        reported = stream.position
    if not reader.count:
        raise ProfileReadError(path, *EMPTY)
    part = _assembled(path, collected, facts)
    part.facts["packets"] = reader.count
    return part


def _assembled(path: Path, collected: EventColumns, facts: FileFacts) -> Part:
    # Damage must be counted before slices are left out for other reasons. Lanes become track names
    # last, because places, kinds and nesting depend on lanes.
    places = collected.tracks.places()
    counters = counter_table(collected, places)
    records = slices_of(collected)
    _refuse_damage(path, collected, int((records["duration_ns"] == -records["start_ns"]).sum()))
    entries, shared = _place(path, records, places, collected)
    names = [collected.texts[place.name] if place.name else NO_TEXT for place in places]
    records["track"] = np.array(names, np.int32)[records["lane"]]
    records.dropped += collected.dropped
    records.not_kept += +collected.not_kept
    entries = facts.entries(collected) | entries
    losses = entries.get("data_loss", {})
    if not len(records) and not len(counters):
        raise _nothing(path, losses)
    overlaps = cut_hip_overlaps(path, records, records["hip_stream"])
    unread = +Counter({**collected.not_kept, CLOSING_ZEROS: 0})
    doubts = [
        (
            None
            if ON_DEVICE[records["kind"]].any()
            else missing_gpu_warning(path.name, entries["tool"])
        ),
        cut_stacks_warning(
            path.name, entries["tool"], records["sample"][records["sample"] != ABSENT]
        ),
    ]
    return Part(
        path,
        records,
        [counters],
        entries,
        processes=list(entries.get("commands", {})),
        shared_launches=shared,
        warnings=[
            *facts.warnings(path.name, collected, losses),
            *left_out(path, unread, "type"),
            *filter(None, doubts),
            *overlaps,
        ],
    )


def _place(
    path: Path, slices: Records, places: Sequence[Place], collected: EventColumns
) -> tuple[dict[str, Any], int]:
    """Complete the slices. Return entries for `Profile.meta` and the number of calls that share a
    correlation ID with another call.
    """
    texts = [*map(text, collected.texts)]
    slices["kind"] = kinds_of(slices, texts)
    without_damage(path, slices, {NO_CLOCK: slices["spoilt"] == 1})
    entries = {"tool": tool_of(slices, texts)} | locate(slices, places, texts)
    correlation = slices.get("correlation_id")
    slices["correlation_id"] = np.where(correlation == 0, ABSENT, correlation)
    _leave_out_repeated_calls(slices, texts)
    shared = link(slices, is_launching(slices, texts), slices["process"]).shared
    add_nesting(slices)
    return entries, shared


def _leave_out_repeated_calls(slices: Records, texts: list[str]) -> None:
    """Leave out the calls on stream tracks. rocprof-sys writes these calls on thread tracks as
    well, so they would count twice.
    """
    process, correlation = slices["process"], slices["correlation_id"]
    calls, _ = first_of_each(slices, correlation, is_launching(slices, texts), process)
    on_stream = (slices["kind"] == KIND_CODE["runtime"]) & has_category(
        slices, texts, {STREAM_CATEGORY}
    )
    repeated = rows_of(correlation, process, np.flatnonzero(on_stream), calls) >= 0
    slices.keep(~repeated)
    slices.not_kept += Counter({REPEATED_CALLS: int(repeated.sum())} if repeated.any() else {})


def _refuse_damage(path: Path, collected: EventColumns, without_end: int) -> None:
    reasons = Counter({reason: n for reason, n in collected.dropped.items() if reason != NO_BEGIN})
    cut_off = (
        without_end
        + collected.dropped[NO_BEGIN]
        - OPEN_PER_TRACK * max(1, len(collected.tracks.codes))
    )
    reasons += Counter({"truncated at either end": cut_off})
    lost_state = reasons[NO_STATE] + reasons[NO_NAME] > reasons.total() / 2
    total = len(collected.starts) + len(collected.counter_values)
    refuse_damage(
        path,
        "events",
        reasons,
        total + collected.dropped.total(),
        (
            "the buffer was too small, so the start of the trace was overwritten or packets were"
            " lost"
            if lost_state
            else CAUSE
        ),
        "record again with a larger buffer or fewer steps" if lost_state else NEXT_STEP,
    )


def _nothing(path: Path, losses: dict[str, int]) -> ProfileReadError:
    listed = ", ".join(f"{count} {what}" for what, count in losses.items())
    error = ProfileReadError if losses else NothingRecordedError
    return error(
        path,
        "the Perfetto trace has no slices, counters or samples"
        + (f" and lost data ({listed})" if listed else ""),
        "the program ended too early, or no kind of event was selected",
        "record again with rocprofv3 --runtime-trace or ROCPROFSYS_TRACE=true",
    )
