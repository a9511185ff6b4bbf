"""rocprofv3's CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests.readers.kit import Event, Writer
from tidyprof_tests.readers.text_samples import text_samples
from tidyprof_tests.rocprofv3_writer import (
    START_NS,
    Call,
    Copy,
    Kernel,
    rows_csv,
)

SAMPLES = text_samples("rocprofv3_csv", tidyprof.read_rocprofv3)


def parts(events: Sequence[Event]) -> tuple[list[Kernel], list[Call], list[Copy]]:
    """The events as rocprofv3's tables have them."""
    kernels, calls, copies = [], [], []
    for one in events:
        times = (one.start, one.duration)
        ids = (one.number + 1, one.number + 1)
        if one.kind == "kernel":
            kernels.append(Kernel(one.name, *times, *ids, stream=one.stream, thread=one.thread))
        elif one.kind == "copy":
            copies.append(Copy("HOST_TO_DEVICE", *times, ids[0]))
        else:
            calls.append(Call(one.name, *times, ids[0], domain=one.kind))
        if one.launched:
            launch = (one.start - 5_000, 3_000, ids[0])
            calls.append(Call("hipLaunchKernel", *launch, thread=one.thread))
    return kernels, calls, copies


def write(folder: Path, events: Sequence[Event]) -> Path:
    kernels, calls, copies = parts(events)
    tables: dict[str, Sequence[Kernel | Call | Copy]] = {"kernel": kernels, "memory_copy": copies}
    for part in ("HIP", "MARKER"):
        tables[f"{part.lower()}_api"] = [call for call in calls if call.domain.startswith(part)]
    for subject, records in tables.items():
        if records:
            (folder / f"1_{subject}_trace.csv").write_text(rows_csv(records))
    return folder


KINDS = ("kernel", "copy", "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API")
WRITER = Writer(write, START_NS, KINDS, streams=True)
