"""Events, counters and metadata of one Perfetto trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.errors import EMPTY, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import ByteStream
from tidyprof.readers.perfetto.decoder import (
    CLOCK_NAMES,
    LOST_PACKETS,
    NO_BEGIN,
    NO_NAME,
    NO_STATE,
    Decoder,
    text,
)
from tidyprof.readers.perfetto.packets import batches
from tidyprof.readers.perfetto.slices import (
    CLOSING_ZEROS,
    STREAM_CATEGORY,
    add_nesting,
    counter_table,
    has_category,
    is_launching,
    locate,
    slices_of,
    tool_of,
    track_table,
)
from tidyprof.tables.codes import ABSENT, KIND_CODE, ON_DEVICE, Codes
from tidyprof.tables.damage import (
    CAUSE,
    NEXT_STEP,
    cut_hip_overlaps,
    left_out,
    refuse_damage,
    without_damage,
)
from tidyprof.tables.launches import first_matches, link
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records

OPEN_PER_TRACK = 256
"""Maximum number of slices per track that can be cut off at the start or end of the trace. The
limit is about the depth of a call stack. If more slices are cut off, the file is damaged.
"""

UNWIND_LIMITS = range(60, 65)
"""Numbers of frames at which rocprof-sys stops unwinding. It stops at 64 frames, of which up to
four belong to rocprof-sys itself.
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

REPEATED_CALLS = "calls repeated on their stream's track"


def read_file(path: Path, texts: Codes, maximum_bytes: int) -> Part:
    """Read one trace. Raises ProfileReadError if it can't be read."""
    decoder = Decoder(path, texts)
    count = 0
    for packets in batches(path, ByteStream(path, maximum_bytes).chunks()):
        decoder.add(packets)
        count += len(packets)
    if not count:
        raise ProfileReadError(path, *EMPTY)
    tracks = track_table(decoder)
    counters = counter_table(decoder, tracks)
    records = slices_of(decoder, tracks)
    # Damage must be counted before slices are left out for other reasons.
    _refuse_damage(decoder, int((records["duration_ns"] == -records["start_ns"]).sum()))
    labels = [*map(text, texts)]
    without_damage(path, records)
    tool = tool_of(records, labels)
    places = locate(records, tracks, labels)
    _leave_out_repeated_calls(records, labels)
    link(records, is_launching(records, labels), records["process"])
    add_nesting(records)
    records.dropped += decoder.dropped
    records.not_kept += +decoder.not_kept
    facts = _facts(decoder) | {"tool": tool, "packets": count} | places
    if not len(records) and not len(counters):
        raise _nothing(path, facts.get("data_loss", {}))
    warnings = _warnings(decoder, facts, records)
    warnings += cut_hip_overlaps(path, records, records["hip_stream"])
    return Part(
        path,
        records,
        [counters],
        facts,
        processes=list(facts.get("commands", {})),
        warnings=warnings,
    )


def _facts(decoder: Decoder) -> dict[str, Any]:
    """Return the entries for `Profile.meta`, starting with `data_loss`. Unknown entries are
    omitted.
    """
    facts: dict[str, Any] = {}
    if decoder.losses is not None or decoder.gaps:
        gaps = Counter({LOST_PACKETS: decoder.gaps})
        facts["data_loss"] = dict((decoder.losses or Counter()) + gaps)
    facts["clock"] = CLOCK_NAMES.get(decoder.trace_clock, str(decoder.trace_clock))
    if decoder.realtime_offsets:
        facts["realtime_offset_ns"] = decoder.realtime_offsets[0]
    described = (
        track.process for track in decoder.descriptors.values() if track.HasField("process")
    )
    commands = {
        process.pid: " ".join(map(text, process.cmdline or [process.process_name]))
        for process in described
    }
    if commands := {pid: command for pid, command in commands.items() if command}:
        facts["commands"] = commands
    return facts | decoder.facts


def _warnings(decoder: Decoder, facts: dict[str, Any], records: Records) -> list[str]:
    """Return warnings about problems with the file, starting with lost data."""
    name, found = decoder.path.name, []
    if losses := facts.get("data_loss"):
        missing = _MISSING_PART.get(facts.get("buffer_fill_policy", ""), "part of it is missing")
        found.append(
            f"{name}: the trace lost data ({_listed(losses)}), and {missing}. Counts and sums are"
            " too small. Likely cause: the trace buffer was too small. Next step: record fewer"
            " steps, or set a larger buffer (rocprofv3 --perfetto-buffer-size or"
            " ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB)."
        )
    offsets = decoder.realtime_offsets
    if offsets and max(offsets) - min(offsets) > _CLOCK_TOLERANCE_NS:
        found.append(
            f"{name}: parts of the trace disagree about the time of day by"
            f" {(max(offsets) - min(offsets)) / 1e9:.3g} s. Times of different processes may"
            " not be comparable. Likely cause: the parts come from several machines, or a"
            " clock was adjusted."
        )
    unread = +Counter({**decoder.not_kept, CLOSING_ZEROS: 0})
    found += left_out(decoder.path, unread, "type")
    if facts["tool"] in _NO_GPU_EVENTS and not ON_DEVICE[records["kind"]].any():
        cause = _NO_GPU_EVENTS[facts["tool"]]
        found.append(f"{name}: the trace has no GPU events. Likely cause: {cause}.")
    samples = records["sample"]
    frames = np.unique(samples[samples != ABSENT], return_counts=True)[1]
    deepest = int(frames.max(initial=0))
    cut = int((frames == deepest).sum())
    if facts["tool"] == "rocprof-sys" and cut > 1 and deepest in UNWIND_LIMITS:
        found.append(
            f"{name}: {cut} of {len(frames)} call-stack samples have {deepest} frames. The tool's"
            f" limit is {max(UNWIND_LIMITS)} frames, including its own. The outermost frames of"
            " these samples are missing."
        )
    return found


def _listed(losses: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in losses.items())


def _leave_out_repeated_calls(slices: Records, texts: list[str]) -> None:
    """Leave out the calls on stream tracks. rocprof-sys writes these calls on thread tracks as
    well, so they would count twice.
    """
    on_stream = (slices["kind"] == KIND_CODE["runtime"]) & has_category(
        slices, texts, {STREAM_CATEGORY}
    )
    calls = is_launching(slices, texts)
    repeated = (
        first_matches(slices, slices["correlation_id"], slices["process"], on_stream, calls) >= 0
    )
    slices.keep(~repeated)
    slices.not_kept += +Counter({REPEATED_CALLS: int(repeated.sum())})


def _refuse_damage(decoder: Decoder, without_end: int) -> None:
    dropped = decoder.dropped
    cut_off = without_end + dropped[NO_BEGIN] - OPEN_PER_TRACK * max(1, len(decoder.tracks))
    reasons = Counter({**dropped, NO_BEGIN: 0, "truncated at either end": cut_off})
    lost_state = reasons[NO_STATE] + reasons[NO_NAME] > (+reasons).total() / 2
    refuse_damage(
        decoder.path,
        "events",
        +reasons,
        len(decoder.slices) // 5 + len(decoder.counter_values) + dropped.total(),
        (
            "the buffer was too small, so the start of the trace was overwritten or packets were"
            " lost"
            if lost_state
            else CAUSE
        ),
        "record again with a larger buffer or fewer steps" if lost_state else NEXT_STEP,
    )


def _nothing(path: Path, losses: dict[str, int]) -> ProfileReadError:
    error = ProfileReadError if losses else NothingRecordedError
    return error(
        path,
        "the Perfetto trace has no slices, counters or samples"
        + (f" and lost data ({_listed(losses)})" if losses else ""),
        "the program ended too early, or no kind of event was selected",
        "record again with rocprofv3 --runtime-trace or ROCPROFSYS_TRACE=true",
    )
