"""A Run as rocprofv3 writes it with `--output-format pftrace`: one Perfetto trace per process.

Track names, categories and arguments: rocprofiler-sdk, source/lib/output/generatePerfetto.cpp
(https://github.com/ROCm/rocm-systems). Slices are drawn by queue, as with `--group-by-queue` and before ROCm 7.0.
"""

from __future__ import annotations

from pathlib import Path

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.agents import first_cpu
from gpumodel.writers.common.marker import has_ranges, ranks_of, write_marker
from gpumodel.writers.common.output_names import DEFAULT_PREFIX, output_path
from gpumodel.writers.common.placing import put
from gpumodel.writers.perfetto.events import (
    Describe,
    Place,
    Work,
    add_calls,
    add_device_work,
    add_ranges,
    executed_work,
)
from gpumodel.writers.perfetto.trace import Trace


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    prefix: str = DEFAULT_PREFIX,
    calls: bool = True,
) -> list[Path]:
    """Write one `<prefix>_results.pftrace` per process; the files that were written, and their marker.

    rank   -- only this rank. prefix -- start of the files' names, with placeholders; see `output_path`.
    calls  -- whether HIP calls are in it (`--hip-trace`).

    Raises UserError for a rank that there is not.
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
    add_device_work(trace, executed_work(rank), _describe(rank.agent, first_cpu(run)), has_dispatch=False)
    return trace.content()


def _describe(agent: int, host: int) -> Describe:
    def copy(work: Work) -> Place:
        source, destination = work.ends(host, agent)
        kind = "CPU" if destination == host else "GPU"
        track = f"COPY to AGENT [{destination}] THREAD [{work.thread_index}] ({kind})"
        arguments = {"stream_ID": work.stream, "tid": work.thread_id, "src_agent": source, "dst_agent": destination}
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
