"""A Run as rocprofv3 writes it with `--output-format pftrace`: one Perfetto trace per process.

Track names, categories and arguments: rocprofiler-sdk, source/lib/output/generatePerfetto.cpp
(https://github.com/ROCm/rocm-systems). Slices are drawn by queue, as with `--group-by-queue` and
before ROCm 7.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import (
    dispatches_and_copies,
    first_cpu,
    kernel_symbols,
    work_with_launches,
)
from gpumodel.writers.common.files import (
    DEFAULT_PREFIX,
    has_ranges,
    output_path,
    put,
    ranks_of,
    write_marker,
)
from gpumodel.writers.perfetto.trace import Trace, Value, annotation_head, varint, with_number


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    prefix: str = DEFAULT_PREFIX,
    calls: bool = True,
) -> list[Path]:
    """Write one `<prefix>_results.pftrace` per process; returns these files and their marker.

    rank   -- write only this rank.
    prefix -- start of the files' names, with placeholders; see `output_path`.
    calls  -- whether HIP calls are recorded (`--hip-trace`).

    Raises UserError for a rank that the run does not have.
    """
    written = []
    for one in ranks_of(run, rank):
        path = output_path(run, one, folder, prefix, "results.pftrace")
        written.append(put(path, _trace(run, one, calls)))
    return [*written, write_marker(run, written[0].parent)]


def _trace(run: Run, rank: RankRun, calls: bool) -> bytes:
    trace = Trace(run, rank, buffer_kilobytes=1_048_576)
    if has_ranges(run):
        add_ranges(trace, rank, "marker_api")
    if calls:
        add_calls(trace, rank, "hip_api", tells_thread=True)
    add_device_work(
        trace, executed_work(rank), _describe(rank.agent, first_cpu(run)), has_dispatch=False
    )
    return trace.content()


def _describe(agent: int, host: int) -> Describe:
    def copy(work: Work) -> Place:
        source, destination = work.ends(host, agent)
        kind = "CPU" if destination == host else "GPU"
        track = f"COPY to AGENT [{destination}] THREAD [{work.thread_index}] ({kind})"
        arguments = {
            "stream_ID": work.stream,
            "tid": work.thread_id,
            "src_agent": source,
            "dst_agent": destination,
        }
        return Place(track, "memory_copy", work.name, arguments | {"copy_bytes": work.copy_bytes})

    def describe(work: Work) -> Place:
        if not work.kernel_id:
            return copy(work)
        arguments = {
            "tid": work.thread_id,
            "agent": agent,
            "queue": work.queue,
            "stream_ID": work.stream,
            "kernel_id": work.kernel_id,
            "Scratch_Size": work.scratch_bytes,
            "LDS_Block_Size": work.lds_bytes,
            "VGPR_Count": work.vector_registers,
            "Accum_VGPR_Count": work.accumulation_registers,
            "SGPR_Count": work.scalar_registers,
            "workgroup_size": work.workgroup_x * work.workgroup_y * work.workgroup_z,
            "grid_size": work.grid_x * work.grid_y * work.grid_z,
        }
        track = f"COMPUTE AGENT [{agent}] QUEUE [{work.queue}] (GPU)"
        return Place(track, "kernel_dispatch", work.name, arguments)

    return describe


AUTOGRAD_THREAD = "pt_autograd_0"
"""Name that PyTorch gives the thread of the backward pass (torch/csrc/autograd/engine.cpp)."""

_BEGIN, _END, _CORRELATION, _DISPATCH = map(
    annotation_head, ("begin_ns", "end_ns", "corr_id", "dispatch_id")
)


class Work(NamedTuple):
    """What many launches have in common: columns of `gpumodel.run.DEVICE_WORK`, for work as the
    hardware executes it.

    thread_id -- of the thread that launched it. thread_index -- number of that thread; the main
                 thread has 0.
    kernel_id -- number of the kernel, from 1; 0 for a copy by a copy engine, whose name is its
                 direction.
    """

    name: str
    stream: int
    queue: int
    grid_x: int
    grid_y: int
    grid_z: int
    workgroup_x: int
    workgroup_y: int
    workgroup_z: int
    vector_registers: int
    accumulation_registers: int
    scalar_registers: int
    lds_bytes: int
    scratch_bytes: int
    copy_bytes: int
    copy_direction: str
    thread_id: int
    thread_index: int
    kernel_id: int

    def ends(self, host: int, device: int) -> tuple[int, int]:
        """Agents at the source and the destination of a copy."""
        return (host, device) if self.copy_direction == "HostToDevice" else (device, host)


@dataclass(frozen=True)
class Place:
    """Where a slice is drawn, and what it states."""

    track: str
    category: str
    name: str
    arguments: Mapping[str, Value]


Describe = Callable[[Work], Place]
"""A function that says how a tool draws device work."""


def thread_indices(rank: RankRun) -> dict[int, int]:
    """Thread -> its number in the order of first use, for all threads with calls or ranges; the
    main thread has 0.
    """
    both = pd.concat(
        [rank.annotations[["start_ns", "thread_id"]], rank.calls[["start_ns", "thread_id"]]]
    )
    used = both.sort_values("start_ns", kind="stable")["thread_id"].unique().tolist()
    return {
        thread: index for index, thread in enumerate(dict.fromkeys([rank.main_thread_id, *used]))
    }


def executed_work(rank: RankRun) -> pd.DataFrame:
    """Device work as the hardware executes it, in order of start: the columns of Work, and those of
    each launch.
    """
    dispatches, copies = dispatches_and_copies(work_with_launches(rank))
    if len(dispatches):
        dispatches = dispatches.assign(kernel_id=kernel_symbols(dispatches)[1])
    work = pd.concat([dispatches, copies.assign(kernel_id=0)]).sort_values(
        "start_ns", kind="stable", ignore_index=True
    )
    indices = thread_indices(rank)
    work["thread_index"] = [indices.get(thread, 0) for thread in work["thread_id"].tolist()]
    work["copy_bytes"] = work["copy_bytes"].fillna(0).astype("int64")
    return work.astype({"kernel_id": "int64", "thread_index": "int64"})


def add_device_work(
    trace: Trace, work: pd.DataFrame, describe: Describe, has_dispatch: bool
) -> None:
    """Add a slice for every kernel and copy of `executed_work`.

    has_dispatch -- whether the tool states the number of a dispatch.
    """
    # A kernel is launched thousands of times, so what its launches have in common is encoded once.
    known: dict[tuple[Any, ...], tuple[bytes, int, bool]] = {}
    own_columns = ("correlation_id", "dispatch_id", "start_ns", "duration_ns")
    for common, correlation, dispatch, start, duration in zip(
        zip(*(work[name].tolist() for name in Work._fields), strict=True),
        *(work[name].tolist() for name in own_columns),
        strict=True,
    ):
        found = known.get(common)
        if found is None:
            place = describe(Work(*common))
            track = trace.track(place.track)
            part = trace.part(place.name, place.category, track, place.arguments)
            found = known[common] = (part, track, has_dispatch and common[-1] > 0)
        part, track, is_numbered = found
        begin, end = varint(start), varint(start + duration)
        own = trace.flow(correlation) + with_number(_BEGIN, begin) + with_number(_END, end)
        own += with_number(_CORRELATION, varint(correlation))
        if is_numbered:
            own += with_number(_DISPATCH, varint(dispatch))
        trace.slice(part, track, begin, end, own)


def add_calls(trace: Trace, rank: RankRun, category: str, tells_thread: bool) -> None:
    """Add a slice for every HIP call on the track of its thread. tells_thread -- whether the call
    states its thread, too.
    """
    known: dict[tuple[str, int], bytes] = {}
    columns = ("name", "thread_id", "start_ns", "duration_ns", "correlation_id")
    for name, thread, start, duration, correlation in zip(
        *(rank.calls[column].tolist() for column in columns), strict=True
    ):
        track = trace.thread_track(thread, AUTOGRAD_THREAD)
        part = known.get((name, thread))
        if part is None:
            arguments = {"tid": thread} if tells_thread else {}
            part = known[name, thread] = trace.part(name, category, track, arguments)
        begin = varint(start)
        own = (
            trace.flow(correlation)
            + with_number(_BEGIN, begin)
            + with_number(_CORRELATION, varint(correlation))
        )
        trace.slice(part, track, begin, varint(start + duration), own)


def add_ranges(trace: Trace, rank: RankRun, category: str) -> None:
    """Add a slice for every named range of the trainer (ROCTx) on the track of its thread."""
    # Of two ranges that start at once the longer one encloses the other, and comes first.
    ordered = rank.annotations.sort_values(
        ["start_ns", "duration_ns"], ascending=[True, False], kind="stable"
    )
    for row in ordered.itertuples():
        track = trace.thread_track(row.thread_id, AUTOGRAD_THREAD)
        begin, end = varint(row.start_ns), varint(row.start_ns + row.duration_ns)
        trace.slice(
            trace.part(row.name, category, track), track, begin, end, with_number(_BEGIN, begin)
        )
