"""Seconds of processor time and memory to read a large Perfetto trace, against the plain way of
doing it.

Run with: python -m pytest benchmarks/bench_perfetto.py

The trace is made here: what rocprofv3 writes, with SLICES slices, three of four of them HIP calls,
the fourth a kernel. The plain way parses the file at once and loops over packets and arguments.
Each way runs in a process of its own, so that the peak of its memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
SLICES = 300_000
LEAST_SPEED_RATIO = 1.2
LEAST_MEMORY_RATIO = 2

MEASURE = """
import json, sys, time
from benchmarks.peak_memory import peak_bytes
from {module} import {function} as way
before = peak_bytes()
begin = time.process_time()
rows = way(sys.argv[1])
seconds = time.process_time() - begin
print(json.dumps({{"rows": rows, "seconds": seconds, "bytes": peak_bytes() - before}}))
"""


def write_large_trace(path: Path, slices: int) -> None:
    """A trace of one sequence: descriptors and names first, then begin and end of every slice."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    arguments = ("begin_ns", "end_ns", "delta_ns", "tid", "kind", "operation", "corr_id")
    details = ("agent", "queue", "kernel_id", "private_segment_size", "workgroup_size", "grid_size")
    trace = Trace()
    first = trace.packet.add(trusted_packet_sequence_id=2, sequence_flags=1)
    first.trace_packet_defaults.timestamp_clock_id = 6
    for number, name in enumerate((*arguments, *details), 1):
        first.interned_data.debug_annotation_names.add(iid=number, name=name)
    for number, name in enumerate(("hip_api", "kernel_dispatch"), 1):
        first.interned_data.event_categories.add(iid=number, name=name)
    for number in range(1, 200):
        first.interned_data.event_names.add(
            iid=number, name=f"void kernel_{number}<float>(float*) [clone .kd]"
        )
    process = trace.packet.add(trusted_packet_sequence_id=2).track_descriptor
    process.uuid, process.process.pid = 1, 100
    thread = trace.packet.add(trusted_packet_sequence_id=2).track_descriptor
    thread.uuid, thread.parent_uuid, thread.thread.pid, thread.thread.tid = 2, 1, 100, 101
    queue = trace.packet.add(trusted_packet_sequence_id=2).track_descriptor
    queue.uuid, queue.parent_uuid, queue.name = 3, 1, "COMPUTE AGENT [4] QUEUE [0] (GPU)"
    with path.open("wb") as file:
        file.write(trace.SerializeToString())
        for number in range(slices):
            file.write(slice_packets(number, arguments, details))


def slice_packets(number: int, arguments: tuple[str, ...], details: tuple[str, ...]) -> bytes:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    is_kernel = number % 4 == 3
    begin = 2_054_412_267_720_328 + 10_000 * number
    trace = Trace()
    packet = trace.packet.add(trusted_packet_sequence_id=2, sequence_flags=2, timestamp=begin)
    event = packet.track_event
    event.type, event.track_uuid, event.name_iid = 1, 3 if is_kernel else 2, 1 + number % 199
    event.category_iids.append(2 if is_kernel else 1)
    values = (
        begin,
        begin + 9_000,
        9_000,
        101,
        5,
        215,
        number // 4 + 1,
        4,
        1,
        number % 199,
        0,
        256,
        100_000,
    )
    for iid in range(1, (len(arguments) + len(details) if is_kernel else len(arguments)) + 1):
        event.debug_annotations.add(name_iid=iid, uint_value=values[iid - 1])
    end = trace.packet.add(
        trusted_packet_sequence_id=2, sequence_flags=2, timestamp=begin + 9_000
    ).track_event
    end.type, end.track_uuid = 2, event.track_uuid
    return trace.SerializeToString()


def read_tidy(path: str) -> int:
    """The reader."""
    from tidyprof.readers.perfetto.reader import read_perfetto

    return len(read_perfetto(path, progress=False).events)


def read_plainly(path: str) -> int:
    """The whole file at once, then packet by packet into a list of dictionaries and a table."""
    import pandas as pd
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    names: dict[str, dict[int, str]] = {
        "event_names": {},
        "event_categories": {},
        "debug_annotation_names": {},
    }
    rows: list[dict] = []
    opened: dict[int, list[dict]] = {}
    for packet in Trace.FromString(Path(path).read_bytes()).packet:
        for field, table in names.items():
            table |= {entry.iid: entry.name for entry in getattr(packet.interned_data, field)}
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type == 1:
            row = {
                "start_ns": packet.timestamp,
                "track": event.track_uuid,
                "name": names["event_names"][event.name_iid],
            }
            row["category"] = names["event_categories"][event.category_iids[0]]
            for annotation in event.debug_annotations:
                name = names["debug_annotation_names"][annotation.name_iid]
                row[name] = getattr(annotation, annotation.WhichOneof("value"))
            rows.append(row)
            opened.setdefault(event.track_uuid, []).append(row)
        elif event.type == 2:
            row = opened[event.track_uuid].pop()
            row["duration_ns"] = packet.timestamp - row["start_ns"]
    return len(pd.DataFrame(rows))


def measured(function: str, path: Path) -> dict:
    code = MEASURE.format(module="benchmarks.bench_perfetto", function=function)
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def large_trace(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("perfetto") / "large.pftrace"
    write_large_trace(path, SLICES)
    return path


def test_reading_a_large_trace(large_trace, record_property):
    ways = {name: [] for name in ("read_tidy", "read_plainly")}
    for _ in range(3):
        for name, results in ways.items():
            results.append(measured(name, large_trace))
    assert {result["rows"] for results in ways.values() for result in results} == {SLICES}
    size = large_trace.stat().st_size
    best = {name: min(result["seconds"] for result in results) for name, results in ways.items()}
    peak = {name: min(result["bytes"] for result in results) for name, results in ways.items()}
    for name in ways:
        record_property(name, {"seconds": best[name], "bytes": peak[name]})
        print(
            f"{name}: {best[name]:.2f} s, {peak[name] / size:.1f} times the file's"
            f" {size / 1e6:.0f} MB"
        )
    assert best["read_plainly"] >= LEAST_SPEED_RATIO * best["read_tidy"]
    assert peak["read_plainly"] >= LEAST_MEMORY_RATIO * peak["read_tidy"]
