"""Workload folders and databases of rocprof-compute."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import tidyprof
from tidyprof_tests.compute_writer import (
    START_NS,
    SYSINFO,
    Dispatch,
    long_rows,
    two_kernels,
    wide_rows,
    write_csv,
    write_folder,
)
from tidyprof_tests.readers.kit import TRUTH, Event, Sample, Writer, content_of, damages_in_file

DISPATCHES = two_kernels()
WIDE = content_of(lambda path: write_csv(path, wide_rows(DISPATCHES)))
LEVELS = {"SQ_LEVEL_WAVES": 1, "SQ_ACCUM_PREV_HIRES": 5, "GRBM_GUI_ACTIVE": 9}
COMPANY = {
    "sysinfo": content_of(lambda path: write_csv(path, [SYSINFO])),
    "roofline": b"device,HBMBw,L2Bw,MFMAF16Flops\n0,4168,25768,925525\n",
    "timestamps": WIDE,
    "SQ_LEVEL_WAVES": content_of(
        lambda path: write_csv(path, [row | LEVELS for row in wide_rows(DISPATCHES)])
    ),
}
"""Files next to pmc_perf.csv. In the sample of each, the others are whole."""


def _database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((TRUTH / "rocprof_compute_db.sql").read_text())
    return path


SAMPLES = {
    "": Sample(
        "pmc_perf.csv",
        WIDE,
        tidyprof.read_rocprof_compute,
        damages=damages_in_file("rocprof_compute"),
        recording="rocprof-compute-mi308x-montecarlo/pmc_perf.csv",
    ),
    "long": Sample(
        "pmc_perf.csv",
        content_of(lambda path: write_csv(path, long_rows(DISPATCHES))),
        tidyprof.read_rocprof_compute,
        damages=damages_in_file("rocprof_compute-long"),
    ),
    "db": Sample(
        "analysis.db",
        content_of(_database),
        tidyprof.read_rocprof_compute,
        is_text=False,
        damages=damages_in_file("rocprof_compute-db"),
    ),
    **{
        name: Sample(
            f"{name}.csv",
            content,
            tidyprof.read_rocprof_compute,
            others={"pmc_perf.csv": WIDE}
            | {f"{other}.csv": COMPANY[other] for other in COMPANY if other != name},
        )
        for name, content in COMPANY.items()
    },
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
