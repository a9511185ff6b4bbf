"""One Perfetto trace as events and counters, with what it says about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.errors import EMPTY, ProfileReadError
from tidyprof.io.byte_stream import ByteStream
from tidyprof.readers.perfetto.counters import counter_table
from tidyprof.readers.perfetto.devices import locate
from tidyprof.readers.perfetto.events import NO_CLOCK, NO_NAME, NO_STATE, EventColumns
from tidyprof.readers.perfetto.kinds import STREAM_CATEGORY, has_category, is_launching, kinds_of, tool_of
from tidyprof.readers.perfetto.meta import FileFacts, cut_stacks_warning, missing_gpu_warning
from tidyprof.readers.perfetto.nesting import add_nesting
from tidyprof.readers.perfetto.packets import PacketReader
from tidyprof.readers.perfetto.slices import NO_BEGIN, OPEN_PER_TRACK, slices_of
from tidyprof.readers.perfetto.texts import text
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes
from tidyprof.tables.damage import CAUSE, NEXT_STEP, refuse_damage, without_damage
from tidyprof.tables.kinds import KIND_CODE, ON_DEVICE
from tidyprof.tables.launches import first_of_each, link, rows_of
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records

REPEATED_CALLS = "calls repeated on their stream's track"


def read_file(
    path: Path, texts: Codes, wanted: Iterable[str], maximum_bytes: int, advance: Callable[[int], Any]
) -> Part:
    """Read one trace; `advance` is told how many bytes of the file were consumed since its last call.

    Raises ProfileReadError where the file is no sound Perfetto trace.
    """
    stream = ByteStream(path, maximum_bytes)
    reader = PacketReader(path, stream.chunks(), maximum_bytes)
    collected, facts = EventColumns(texts, wanted), FileFacts()

    def add_other(packet: Any) -> None:
        payload = packet.WhichOneof("data")
        if payload == "compressed_packets":
            collected.add(reader.unpacked(packet.compressed_packets), add_other)
        else:
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
    doubts = [
        None if ON_DEVICE[records["kind"]].any() else missing_gpu_warning(path.name, entries["tool"]),
        cut_stacks_warning(path.name, entries["tool"], records["sample"][records["sample"] != ABSENT]),
    ]
    return Part(
        path,
        records,
        [counters],
        entries,
        processes=list(entries.get("commands", {})),
        shared_launches=shared,
        warnings=[*facts.warnings(path.name, collected, losses), *filter(None, doubts)],
    )


def _place(path: Path, slices: Records, places: Sequence[Place], collected: EventColumns) -> tuple[dict[str, Any], int]:
    """Complete the slices and leave out what is damaged or there twice.

    Returns entries of `Profile.meta`, and the number of calls with the correlation id of another one.
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
    """rocprof-sys draws calls on their thread, and again on their stream's track."""
    process, correlation = slices["process"], slices["correlation_id"]
    calls, _ = first_of_each(slices, correlation, is_launching(slices, texts), process)
    on_stream = (slices["kind"] == KIND_CODE["runtime"]) & has_category(slices, texts, {STREAM_CATEGORY})
    repeated = rows_of(correlation, process, np.flatnonzero(on_stream), calls) >= 0
    slices.keep(~repeated)
    slices.not_kept += Counter({REPEATED_CALLS: int(repeated.sum())} if repeated.any() else {})


def _refuse_damage(path: Path, collected: EventColumns, without_end: int) -> None:
    """Too many events that packets without state, name, clock or value leave unusable, or that begin or end only."""
    reasons = Counter({reason: n for reason, n in collected.dropped.items() if reason != NO_BEGIN})
    cut_off = without_end + collected.dropped[NO_BEGIN] - OPEN_PER_TRACK * max(1, len(collected.tracks.codes))
    reasons += Counter({"cut off at the start or end": cut_off})
    lost_state = reasons[NO_STATE] + reasons[NO_NAME] > reasons.total() / 2
    total = len(collected.starts) + len(collected.counter_values)
    refuse_damage(
        path,
        "events",
        reasons,
        total + collected.dropped.total(),
        "the buffer was too small, so that the start of the recording was overwritten or packets were lost"
        if lost_state
        else CAUSE,
        "record again with a larger buffer or fewer steps" if lost_state else NEXT_STEP,
    )


def _nothing(path: Path, losses: dict[str, int]) -> ProfileReadError:
    listed = ", ".join(f"{count} {what}" for what, count in losses.items())
    return ProfileReadError(
        path,
        "a Perfetto trace without slices, counters and samples" + (f" that lost data ({listed})" if listed else ""),
        "nothing was recorded: the program ended too early, or no kind of event was asked for",
        "record again, with rocprofv3 --runtime-trace or with ROCPROFSYS_TRACE=true",
    )
