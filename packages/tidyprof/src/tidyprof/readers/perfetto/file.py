"""Events, counters and metadata of one Perfetto trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.errors import NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import ByteStream
from tidyprof.readers.perfetto.decoder import (
    CLOCK_NAMES,
    LOST_PACKETS,
    NO_BEGIN,
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
from tidyprof.tables.codes import KIND_CODE, ON_DEVICE, Codes
from tidyprof.tables.damage import (
    cut_hip_overlaps,
    left_out,
    refuse_damage,
    without_damage,
)
from tidyprof.tables.launches import keys_of, link
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records

OPEN_PER_TRACK = 256
"""Maximum number of slices per track that can be cut off at the start or end of the trace. The
limit is about the depth of a call stack. If more slices are cut off, the file is damaged.
"""

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
    for packets in batches(path, ByteStream(path, maximum_bytes).chunks()):
        decoder.add(packets)
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
    facts = _facts(decoder) | {"tool": tool} | places
    if not len(records) and not len(counters):
        losses = facts.get("data_loss")
        raise (ProfileReadError if losses else NothingRecordedError)(
            path,
            "the Perfetto trace has no slices, counters or samples"
            + (f" and lost data ({_listed(losses)})" if losses else ""),
            "the program ended too early, or no kind of event was selected",
            "record again with rocprofv3 --runtime-trace or ROCPROFSYS_TRACE=true",
        )
    warnings = _warnings(decoder, facts, records)
    warnings += cut_hip_overlaps(path, records, records["hip_stream"])
    return Part(
        path,
        records,
        [counters],
        facts,
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
    return facts


def _warnings(decoder: Decoder, facts: dict[str, Any], records: Records) -> list[str]:
    """Return warnings about problems with the file, starting with lost data."""
    name, found = decoder.path.name, []
    if losses := facts.get("data_loss"):
        found.append(
            f"{name}: the trace lost data ({_listed(losses)}), and part of it is missing. Counts"
            " and sums are too small. Likely cause: the trace buffer was too small. Next step:"
            " record fewer steps, or set a larger buffer (rocprofv3 --perfetto-buffer-size or"
            " ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB)."
        )
    unread = +Counter({**decoder.not_kept, CLOSING_ZEROS: 0})
    found += left_out(decoder.path, unread, "type")
    if facts["tool"] in _NO_GPU_EVENTS and not ON_DEVICE[records["kind"]].any():
        cause = _NO_GPU_EVENTS[facts["tool"]]
        found.append(f"{name}: the trace has no GPU events. Likely cause: {cause}.")
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
    key, has_id = keys_of(slices["correlation_id"], slices["process"])
    repeated = on_stream & np.isin(key, key[calls & has_id])
    slices.keep(~repeated)
    slices.not_kept += +Counter({REPEATED_CALLS: int(repeated.sum())})


def _refuse_damage(decoder: Decoder, without_end: int) -> None:
    dropped = decoder.dropped
    cut_off = without_end + dropped[NO_BEGIN] - OPEN_PER_TRACK * max(1, len(decoder.tracks))
    reasons = Counter({**dropped, NO_BEGIN: 0, "truncated at either end": cut_off})
    refuse_damage(
        decoder.path,
        "events",
        +reasons,
        len(decoder.slices) // 5 + len(decoder.counter_values) + dropped.total(),
        "the trace buffer was too small, or the file was damaged",
        "record again with a larger buffer or fewer steps",
    )
