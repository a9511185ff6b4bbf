"""One Perfetto trace as columns, with what it says about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidyprof.io.byte_stream import ByteStream
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.perfetto.counters import counter_columns
from tidyprof.readers.perfetto.devices import link, locate
from tidyprof.readers.perfetto.events import NO_NAME, NO_STACK, NO_STATE, EventColumns, Tables
from tidyprof.readers.perfetto.kinds import kinds_of, tool_of
from tidyprof.readers.perfetto.meta import FileFacts, cut_stacks_warning, missing_gpu_warning
from tidyprof.readers.perfetto.nesting import add_nesting
from tidyprof.readers.perfetto.packets import PacketReader
from tidyprof.readers.perfetto.samples import with_stack_samples
from tidyprof.readers.perfetto.slices import NO_BEGIN, cut_off, settled
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.damage import UNFINISHED, refuse_damage
from tidyprof.tables.kinds import ON_DEVICE

REPEATED_CALLS = "calls repeated on their stream's track"


@dataclass
class TraceFile:
    """What one file holds.

    rank     -- None where it is not known; traces do not state it themselves.
    columns  -- int64 arrays of equal length, ABSENT where the file does not say: those of `settled` that describe
                the event, and kind, process, thread, device, launch, launch_thread, depth, parent, sample.
    counters -- time, track, process, device; value as float64; name and unit as codes of `counter_texts`.
    extras   -- annotation that was asked for -> places in the columns and values.
    dropped  -- why rows were left out -> how many; not_kept -- what is no row by rule -> how many.
    """

    path: Path
    rank: int | None
    columns: dict[str, np.ndarray]
    track_names: list[str]
    counters: dict[str, np.ndarray]
    counter_texts: list[str]
    extras: dict[str, tuple[np.ndarray, list[Any]]]
    facts: dict[str, Any]
    categories: Counter[str]
    dropped: Counter[str]
    not_kept: Counter[str]
    unlaunched: int
    packets: int
    warnings: list[str] = field(default_factory=list)

    @property
    def spans(self) -> dict[int, tuple[int, int]]:
        """Process id -> start of its first and end of its last event in ns."""
        process, start = self.columns["process"], self.columns["start"]
        end = start + self.columns["duration"]
        known = np.unique(process[process != ABSENT]).tolist()
        return {pid: (int(start[process == pid].min()), int(end[process == pid].max())) for pid in known}


def read_file(
    path: Path, tables: Tables, wanted: Iterable[str], maximum_bytes: int, advance: Callable[[int], Any]
) -> TraceFile:
    """Read one trace; `advance` is told how many bytes of the file were consumed since its last call.

    Raises ProfileReadError where the file is no sound Perfetto trace.
    """
    stream = ByteStream(path, maximum_bytes)
    reader = PacketReader(path, stream.chunks(), maximum_bytes)
    collected, facts = EventColumns(tables, wanted), FileFacts()

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
        raise ProfileReadError(
            path, "the file is empty", "the run ended before the profiler wrote its results", "record again"
        )
    return _assembled(path, collected, facts, reader.count)


def _assembled(path: Path, collected: EventColumns, facts: FileFacts, packets: int) -> TraceFile:
    places = collected.tracks.places()
    counters, texts = counter_columns(collected, places)
    columns, extras, entries, unlaunched = _events(path, collected, places)
    _refuse_damage(path, collected, len(columns["start"]) + len(collected.counter_values))
    entries |= facts.entries(collected)
    if not len(columns["start"]) and not len(counters["time"]):
        raise _nothing(path, entries.get("data_loss", {}))
    doubts = [
        None if ON_DEVICE[columns["kind"]].any() else missing_gpu_warning(path.name, entries["tool"]),
        cut_stacks_warning(path.name, entries["tool"], columns["sample"][columns["sample"] != ABSENT]),
    ]
    return TraceFile(
        path=path,
        rank=None,
        columns=columns,
        track_names=[place.name for place in places],
        counters=counters,
        counter_texts=texts,
        extras=extras,
        facts=entries,
        categories=_by_category(columns["category"], collected.tables.categories.texts),
        dropped=collected.dropped,
        not_kept=+collected.not_kept,
        unlaunched=unlaunched,
        packets=packets,
        warnings=[*facts.warnings(path.name, collected), *filter(None, doubts)],
    )


def _events(
    path: Path, collected: EventColumns, places: Sequence[Place]
) -> tuple[dict[str, np.ndarray], dict[str, tuple[np.ndarray, list[Any]]], dict[str, Any], int]:
    """Slices and samples as columns; wanted annotations; entries of `Profile.meta`; device events without launch."""
    tables = collected.tables
    names, categories = tables.names.texts, tables.categories.texts
    columns = settled(collected)
    entries = {"tool": tool_of(columns["category"], categories, columns["name"], names)}
    columns["kind"] = kinds_of(columns["category"], categories, columns["name"], names, columns.pop("kernel_id"))
    entries |= locate(columns, places, names, tables.labels.texts)
    columns, repeated, unlaunched = link(columns, categories)
    collected.not_kept[REPEATED_CALLS] += repeated
    extras = _extras(collected, columns.pop("row"))
    add_nesting(columns)
    return with_stack_samples(path, columns, collected, places), extras, entries, unlaunched


def _by_category(codes: np.ndarray, categories: list[str]) -> Counter[str]:
    found, counts = np.unique(codes[codes >= 0], return_counts=True)
    return Counter({categories[code]: int(count) for code, count in zip(found, counts, strict=True)})


def _extras(collected: EventColumns, rows: np.ndarray) -> dict[str, tuple[np.ndarray, list[Any]]]:
    """Values of annotations that were asked for, with the places of their rows in `rows`, those that are kept."""
    found = {}
    for name, pairs in collected.extras.items():
        wanted = np.array([row for row, _ in pairs], np.int64)
        is_kept = np.isin(wanted, rows)
        found[name] = (np.searchsorted(rows, wanted[is_kept]), [pairs[i][1] for i in np.flatnonzero(is_kept)])
    return found


def _refuse_damage(path: Path, collected: EventColumns, kept: int) -> None:
    reasons = Counter({reason: n for reason, n in collected.dropped.items() if reason not in (UNFINISHED, NO_BEGIN)})
    reasons += Counter({"cut off at the start or end": cut_off(collected)})
    lost_state = reasons[NO_STATE] + reasons[NO_NAME] + reasons[NO_STACK] > reasons.total() / 2
    refuse_damage(
        path,
        "events",
        reasons,
        kept + collected.dropped.total(),
        "the buffer was too small, so that the start of the recording was overwritten or packets were lost"
        if lost_state
        else "the profiler lost times or records, or the file was damaged",
        "record again with a larger buffer or fewer steps" if lost_state else "record again",
    )


def _nothing(path: Path, losses: dict[str, int]) -> ProfileReadError:
    listed = ", ".join(f"{count} {what}" for what, count in losses.items())
    return ProfileReadError(
        path,
        "a Perfetto trace without slices, counters and samples" + (f" that lost data ({listed})" if listed else ""),
        "nothing was recorded: the program ended too early, or no kind of event was asked for",
        "record again, with rocprofv3 --runtime-trace or with ROCPROFSYS_TRACE=true",
    )
