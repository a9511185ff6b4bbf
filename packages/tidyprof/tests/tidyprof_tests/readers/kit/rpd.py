"""The databases of rocmProfileData."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests.readers.kit import Event, Sample, Writer, content_of, damages_in_file
from tidyprof_tests.rpd_writer import START_NS, RpdWriter, small_file

SAMPLES = {
    # Small pages, so that damage hits many different structures
    "": Sample(
        "trace.rpd",
        content_of(lambda path: small_file(path, page_bytes=512)),
        tidyprof.read_rpd,
        is_text=False,
        damages=damages_in_file("rpd"),
        recording="rpd-mi200-matmul/matmul_result.rpd",
    )
}


def write(folder: Path, events: Sequence[Event]) -> Path:
    writer = RpdWriter(folder / "x.rpd", version=2 + len(events) % 2)
    writer.call("hipInit", 0, 10)  # a file of samples alone is refused
    for one in events:
        times = (one.start, one.duration)
        if one.kind == "call":
            writer.call(f"hip{one.name}", *times)
        elif one.kind == "UserMarker":
            text = f"{one.name}, op_id = 7" if one.number % 2 else one.name
            writer.call("UserMarker", *times, args=text)
        elif one.kind == "monitor":
            writer.monitor("800", one.start, one.start + one.duration)
        elif one.launched:
            writer.kernel(one.name, *times, stream=hex(one.stream or 0), tid=one.thread)
        elif one.kind in ("kernel", "Task"):
            writer.operation(one.kind.replace("kernel", "KernelExecution"), one.name, *times)
        else:
            writer.operation(one.kind, "", *times)
    return writer.close()


WRITER = Writer(
    write,
    START_NS,
    (
        *("kernel", "Task", "CopyHostToDevice", "CopyDeviceToDevice", "FillBuffer", "Barrier"),
        *("MarkerPacket", "call", "UserMarker", "monitor"),
    ),
    sampled=("monitor",),
    streams=True,
)
