"""The databases of rocprofv3 (rocpd)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tidyprof
from tidyprof_tests.readers.kit import Event, Sample, Writer, content_of, damages_in_file
from tidyprof_tests.rocpd_writer import (
    CPU_AGENT,
    GPU_AGENTS,
    GUID,
    START_NS,
    RocpdWriter,
    small_database,
)


def full_names(sql: str) -> str:
    """A statement in which {table} stands for the full name of a table."""
    suffix = GUID.replace("-", "_")
    return re.sub(r"\{(\w+)\}", rf'"rocpd_\1_{suffix}"', sql)


SAMPLES = {
    "": Sample(
        "x_results.db",
        content_of(lambda path: small_database(path, page_bytes=512)),
        tidyprof.read_rocpd,
        is_text=False,
        damages=damages_in_file("rocpd", full_names),
    )
}


def write(folder: Path, events: Sequence[Event]) -> Path:
    writer = RocpdWriter(folder / "x_results.db", views=bool(len(events) % 2))
    for one in events:
        times = (one.start, one.duration)
        if one.kind == "kernel":
            options = {"stream": one.stream or 0, "tid": one.thread, "gpu": 0}
            if not one.launched:
                options |= {"correlation": 0}
            event = writer.kernel(one.name, *times, **options)
            if one.number % 3 == 0:
                writer.counter("SQ_WAVES", event, [1.0, 2.0])
        elif one.kind == "copy":
            writer.copy("HOST_TO_DEVICE", *times, 1, CPU_AGENT, GPU_AGENTS[0])
        elif one.kind == "mark":
            writer.call("roctxMarkA", one.start, 0, category="MARKER_CORE_API", message=one.name)
        else:
            writer.call(one.name, *times, category=one.kind, message=one.name)
    return writer.close()


WRITER = Writer(
    write,
    START_NS,
    (
        *("kernel", "copy", "HIP_RUNTIME_API_EXT", "HSA_CORE_API", "RCCL_API"),
        *("MARKER_CORE_RANGE_API", "python", "something new", "mark"),
    ),
    counted=lambda events: sum(one.kind == "kernel" and one.number % 3 == 0 for one in events),
    streams=True,
)
