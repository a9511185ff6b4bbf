"""torch's memory snapshots."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests import snapshot_writer
from tidyprof_tests.readers.kit import Event, Sample, Writer

SAMPLES = {
    "": Sample(
        "a.pickle",
        pickle.dumps(snapshot_writer.small_snapshot(), 4),
        tidyprof.read_memory_snapshot,
        is_text=False,
    )
}


def write(folder: Path, events: Sequence[Event]) -> Path:
    entries = [
        snapshot_writer.entry(one.kind, one.start, 4096, 64 * one.number) | {"device_free": 1}
        for one in events
    ]
    content = snapshot_writer.small_snapshot() | {"device_traces": [entries[::2], entries[1::2]]}
    return snapshot_writer.write(folder / "x.pickle", content)


WRITER = Writer(
    write,
    1_700_000_000_000_000_000,
    ("alloc", "free_requested", "free_completed", "segment_alloc", "oom", "new action"),
    unit_ns=1000,
)
