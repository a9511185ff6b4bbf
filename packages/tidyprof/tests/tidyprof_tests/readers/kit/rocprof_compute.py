"""Workload folders and databases of rocprof-compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests.compute_writer import (
    START_NS,
    Dispatch,
    long_rows,
    two_kernels,
    wide_rows,
    write_csv,
    write_folder,
)
from tidyprof_tests.readers.kit import Event, Sample, Writer, content_of

SAMPLES = {
    "": Sample(
        "pmc_perf.csv",
        content_of(lambda path: write_csv(path, wide_rows(two_kernels()))),
        tidyprof.read_rocprof_compute,
    )
}


def write(folder: Path, events: Sequence[Event]) -> Path:
    rows = [
        Dispatch(
            one.number + 1,
            one.name,
            one.start,
            one.duration,
            {"SQ_WAVES": 1.0 + one.number, "SQ_INSTS": 5.0},
        )
        for one in events
    ]
    return write_folder(folder / "x", (long_rows if len(events) % 2 else wide_rows)(rows))


WRITER = Writer(write, START_NS, ("kernel",), counted=lambda events: 2 * len(events))
