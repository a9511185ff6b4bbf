"""Perfetto traces of rocprofv3 and rocprof-sys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests import perfetto_writer
from tidyprof_tests.readers.kit import Event, Sample, Writer

SAMPLES = {
    "": Sample(
        "trace.pftrace",
        perfetto_writer.small_trace(),
        tidyprof.read_perfetto,
        is_text=False,
        recording="rocprofv3-lumi-taylor/results.pftrace",
    )
}
BASE = 10**9


def write(folder: Path, events: Sequence[Event]) -> Path:
    parts = []
    for one in events:
        begin, end, number = BASE + one.start, BASE + one.start + one.duration, one.number + 1
        if one.kind == "kernel":
            options = {"tid": one.thread} | (
                {} if one.stream is None else {"stream_ID": one.stream}
            )
            packet = perfetto_writer.kernel(
                begin, end, one.name, number, agent="Agent-4", **options
            )
        elif one.kind == "counter":
            packet = perfetto_writer.counter(begin, 5.0)
        else:
            packet = perfetto_writer.slice_(begin, end, one.name, one.kind, corr_id=number)
        parts.append((begin, packet))
        if one.launched:
            call = perfetto_writer.call(begin - 5_000, begin - 2_000, "hipLaunchKernel", number)
            parts.append((begin - 5_000, call))
    packets = [part for _, part in sorted(parts, key=lambda part: part[0])]
    start = (perfetto_writer.start(), perfetto_writer.tracks())
    return perfetto_writer.write_trace(folder / "x.pftrace", *start, *packets)


WRITER = Writer(
    write,
    BASE,
    ("kernel", "hip_api", "hsa_api", "marker_api", "host", "python", "rccl_api", "counter"),
    sampled=("counter",),
    streams=True,
)
