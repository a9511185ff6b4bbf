"""A Run as rocprof-sys 1.5.0 (ROCm 7.12) writes it: a Perfetto trace, and beside it profiles as
tables.

Names of tracks, categories and arguments: ROCm/rocm-systems, projects/rocprofiler-systems,
source/lib/core/trace_cache/perfetto_processor.cpp. That version draws kernels by HSA queue and
keeps no track of clocks. Its tables of GPU telemetry (`sampling_gpu_...`) are not written: no real
one is published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import first_cpu
from gpumodel.writers.common.files import has_ranges, put, ranks_of, write_marker
from gpumodel.writers.perfetto.trace import Trace, annotation, program_of, varint
from gpumodel.writers.perfetto.writer import (
    Describe,
    Place,
    Work,
    add_calls,
    add_device_work,
    add_ranges,
    executed_work,
    thread_indices,
)
from gpumodel.writers.rocprof_sys.tables import (
    SAMPLED_COUNT,
    SAMPLED_SHARE,
    SAMPLED_TIME,
    WALL_CLOCK,
    Metric,
    Node,
    counted,
    hash_of,
    sampled_shares,
    sampled_time,
    timed_regions,
    write_table,
)

VERSION, ROCM_VERSION = "1.5.0", "7.12.0"

_MEGABYTE = 1e6
"""Bytes of timemory's MB (source/timemory/units.hpp)."""

_COUNTERS = {
    "gfx_activity": ("GFX Busy", "%", 1.0),
    "memory_activity": ("UMC Busy", "%", 1.0),
    "temperature": ("Temperature", "deg C", 1.0),
    "power": ("Power", "W", 1.0),
    "memory_used": ("Memory Usage", "MB", 1 / _MEGABYTE),
}
"""Quantity of a run -> its name in rocprof-sys, its unit there, and the factor to that unit."""


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    trace: bool = True,
    profile: bool = False,
    output: str | None = None,
    prefix: str = "",
    time_output: bool = True,
) -> list[Path]:
    """Write `rocprofsys-<program>-output/<day>_<time>/` below `folder`, one set of files per rank.

    rank           -- write only this rank.
    trace, profile -- whether each was asked for (`--trace`, `--profile`).
    output, prefix -- name of the folder, and beginning of the file names (`-o PATH PREFIX`).
    time_output    -- whether there is a folder named after day and minute, in UTC
                      (ROCPROFSYS_TIME_OUTPUT).

    With `trace` it writes perfetto-trace-<process>.proto. With `profile` it writes
    wall_clock-<process>.txt and .json, and, if the run has call stacks, sampling_wall_clock,
    sampling_percent and trip_count. Always it writes metadata-<process>.json and
    functions-<process>.json. The number is that of the process, since a torch job never calls
    MPI_Init. Returns the files that were written; raises UserError for a rank that the run does not
    have.
    """
    ranks = ranks_of(run, rank)
    place = folder / (f"rocprofsys-{program_of(run)}-output" if output is None else output)
    if time_output:
        place /= _time_of_day(run).strftime("%Y-%m-%d_%H.%M")
    place.mkdir(parents=True, exist_ok=True)
    written = [
        path
        for one in ranks
        for path in _write_rank(run, one, place, prefix, trace=trace, profile=profile)
    ]
    return [*written, write_marker(run, place)]


def _write_rank(
    run: Run, rank: RankRun, place: Path, prefix: str, *, trace: bool, profile: bool
) -> list[Path]:
    own: dict[str, list[Path]] = {}
    if trace:
        own["perfetto"] = [
            put(place / f"{prefix}perfetto-trace-{rank.process_id}.proto", _trace(run, rank))
        ]
    tables = _tables(run, rank, profile)
    for metric, roots in tables:
        stem = place / f"{prefix}{metric.name}-{rank.process_id}"
        own[metric.name] = write_table(metric, roots, rank.process_id, stem)
    # The descriptions list all other files and their labels, so they are written last.
    labels = {node.label for _, roots in tables for root in roots for node in root.below()}
    described = _write_descriptions(run, place, f"{prefix}{{}}-{rank.process_id}.json", own, labels)
    return [*(path for paths in own.values() for path in paths), *described]


def _time_of_day(run: Run) -> datetime:
    return datetime.fromtimestamp((run.start_ns + run.wall_clock_offset_ns) // 10**9, UTC)


def _tables(run: Run, rank: RankRun, profile: bool) -> list[tuple[Metric, list[Node]]]:
    if not profile:
        return []
    found = [(WALL_CLOCK, timed_regions(run, rank, program_of(run), has_ranges(run)))]
    if len(rank.samples):
        tree = sampled_time(run, rank)
        found += [
            (SAMPLED_TIME, tree),
            (SAMPLED_SHARE, sampled_shares(rank)),
            (SAMPLED_COUNT, counted(tree)),
        ]
    return found


def _trace(run: Run, rank: RankRun) -> bytes:
    trace = Trace(run, rank)
    whole = trace.part(program_of(run), "host", trace.main_track, {"begin_ns": run.start_ns})
    ending = annotation("end_ns", run.end_ns)
    trace.slice(whole, trace.main_track, varint(run.start_ns), varint(run.end_ns), end_own=ending)
    if has_ranges(run):
        add_ranges(trace, rank, "rocm_marker_api")
    add_calls(trace, rank, "rocm_hip_api", tells_thread=False)
    add_device_work(trace, executed_work(rank), _describe(rank, first_cpu(run)), has_dispatch=True)
    _add_samples(trace, run, rank)
    for name, rows in rank.counters.groupby("name", sort=False):
        if name in _COUNTERS:
            label, unit, factor = _COUNTERS[name]
            track = trace.track(f"GPU [{rank.device}] {label} (S)", unit)
            for time, value in zip(rows["time_ns"].tolist(), rows["value"].tolist(), strict=True):
                trace.counter(track, time, value * factor)
    return trace.content()


def _add_samples(trace: Trace, run: Run, rank: RankRun) -> None:
    """Add each sample as one slice per frame, from the time of the thread's sample before to its
    own time.
    """
    indices = thread_indices(rank)
    for thread, rows in rank.samples.groupby("thread_id", sort=False):
        track = trace.track(f"Thread {indices.setdefault(thread, len(indices))} (S) {thread}")
        category, begin = "timer_sampling", run.start_ns
        whole = trace.part("samples [rocprof-sys]", category, track, {"begin_ns": begin})
        trace.slice(whole, track, varint(begin), varint(int(rows["time_ns"].max())))
        parts: dict[str, bytes] = {}
        for time, stack in zip(rows["time_ns"].tolist(), rows["stack"].tolist(), strict=True):
            own = annotation("begin_ns", begin) + annotation("end_ns", time)
            for function in stack:
                if function not in parts:
                    parts[function] = trace.part(function, category, track)
                trace.slice(parts[function], track, varint(begin), varint(time), own)
                own = b""
            begin = time


def _describe(rank: RankRun, host: int) -> Describe:
    def copy(work: Work) -> Place:
        source, destination = work.ends(host, rank.agent)
        track = f"GPU Memory Copy to Agent [{destination}] Thread {work.thread_index}"
        arguments = {"stream_id": work.stream, "bytes": work.copy_bytes, "src_agent_id": source}
        return Place(
            track, "rocm_memory_copy", work.name, arguments | {"dst_agent_id": destination}
        )

    def describe(work: Work) -> Place:
        if not work.kernel_id:
            return copy(work)
        arguments = {
            "stream_id": work.stream,
            "queue": work.queue,
            "kernel_id": work.kernel_id,
            "private_segment_size": work.scratch_bytes,
            "group_segment_size": work.lds_bytes,
            "workgroup_size": f"({work.workgroup_x},{work.workgroup_y},{work.workgroup_z})",
            "grid_size": f"({work.grid_x},{work.grid_y},{work.grid_z})",
        }
        track = f"GPU Kernel Dispatch [{rank.device}] Queue {work.queue}"
        return Place(track, "rocm_kernel_dispatch", work.name, arguments)

    return describe


def _write_descriptions(
    run: Run, place: Path, name: str, outputs: dict[str, list[Path]], labels: set[str]
) -> Sequence[Path]:
    """Write the two files that describe a run: one with settings and a list of outputs, one with
    the numbers of all labels.
    """
    metadata, functions = (place / name.format(what) for what in ("metadata", "functions"))
    listed: dict[str, list[dict[str, Any]]] = {"json": [], "protobuf": [], "text": []}
    kinds = {".json": "json", ".txt": "text", ".proto": "protobuf"}
    for key, paths in sorted(outputs.items()):
        for path in paths:
            listed[kinds[path.suffix]].append({"key": key, "value": [str(path)]})
    content = {"info": _facts(run), "settings": _settings(run), "output": listed, "environment": []}
    for path, what in (
        (metadata, {"metadata": content}),
        (functions, {"functions": {label: [hash_of(label)] for label in sorted(labels)}}),
    ):
        put(path, json.dumps({"rocprofiler-systems": what}, indent=1) + "\n")
    return metadata, functions


def _facts(run: Run) -> dict[str, Any]:
    launched = _time_of_day(run)
    return {
        "LAUNCH_DATE": launched.strftime("%m/%d/%y"),
        "LAUNCH_TIME": launched.strftime("%H:%M"),
        "ROCPROFSYS_LIBRARY_ARCH": "x86_64-linux-gnu",
        "ROCPROFSYS_SYSTEM_NAME": "Linux",
        "ROCPROFSYS_SYSTEM_PROCESSOR": "x86_64",
        "ROCPROFSYS_ROCM_VERSION": ROCM_VERSION,
        "ROCPROFSYS_VERSION": VERSION,
        "TIMEMORY_API": "tim::project::timemory",
    }


def _settings(run: Run) -> dict[str, Any]:
    """The settings that differ from the tool's defaults; the tool's own file lists all."""
    has_stacks = any(len(one.samples) for one in run.ranks)
    values = {"ROCPROFSYS_USE_SAMPLING": has_stacks}
    return {"cereal_class_version": 2} | {
        key: {
            "name": key.removeprefix("ROCPROFSYS_").lower(),
            "environ": key,
            "value": value,
            "updated": "environ",
        }
        for key, value in values.items()
        if value
    }
