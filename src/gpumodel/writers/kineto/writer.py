"""Chrome traces as torch.profiler writes them on ROCm (libkineto/src/output_json.cpp of
pytorch/kineto).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.files import MARK, config_of, identity, marker, put, ranks_of
from gpumodel.writers.kineto.events import event_texts
from gpumodel.writers.kineto.window import Recording, Window

_STEP = re.compile(r"ProfilerStep#(\d+)")


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    compress: bool = True,
) -> list[Path]:
    """Write one trace per rank and profiler cycle, named like those of the trainer:
    `trace_rank0_of_4.json.gz`.

    rank -- write only this rank. compress -- whether to gzip it, as the trainer does.

    As with Kineto over roctracer (torch up to early 2026), `device` is ROCm's agent number, and the
    runtime's copies and fills keep names of their own. Shapes are written if the trainer's
    configuration asks for them, and if the workload does not profile itself.

    If the workload profiles itself (`config.torch_profile`), the traces hold the steps of its
    schedule, of rank 0 alone unless `profile_all_ranks`; else one trace holds the whole run. A
    recorded window has, as with the real profiler, the device work that was launched before and
    runs in it; that work has no grid and no operator.

    What a Run does not have is left out: strides and values of arguments, Python functions,
    allocations. Returns the files; raises UserError for a rank that the run does not have.
    """
    config = config_of(run)
    record_shapes = config is not None and (config.record_shapes or not config.torch_profile)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in ranks_of(run, rank):
        for suffix, window in _windows(run, one):
            stem = f"trace_rank{one.rank}_of_{len(run.ranks)}{suffix}"
            path = folder / f"{stem}.json{'.gz' if compress else ''}"
            _write_trace(Recording(run, one, window, record_shapes), path)
            written.append(path)
    return written


def _write_trace(recording: Recording, path: Path) -> None:
    """One trace, compressed if its name says so."""
    compress = path.suffix == ".gz"
    text = f"\n{{\n{header_text(recording)}{event_texts(recording)}\n  ],\n"
    text += f'  "traceName": {json.dumps(str(path.with_suffix("") if compress else path))}\n}}\n'
    data = text.encode("utf-8", "surrogatepass")
    put(path, gzip.compress(data, compresslevel=3, mtime=0) if compress else data)


def _windows(run: Run, rank: RankRun) -> Iterator[tuple[str, Window | None]]:
    """The ending of each file's name, and its window; None is the whole run."""
    config = config_of(run)
    schedule = config.schedule_for() if config is not None else None
    if schedule is None:
        yield "", None
        return
    if rank.rank != 0 and not config.profile_all_ranks:
        return
    steps = _step_times(rank)
    length = schedule.wait + schedule.warmup + schedule.active
    for cycle in range(1):
        first = cycle * length + schedule.wait + schedule.warmup
        recorded = [steps[step] for step in range(first, first + schedule.active) if step in steps]
        if recorded:
            suffix = f"_cycle{cycle + 1}" if cycle else ""
            yield (
                suffix,
                Window(min(start for start, _ in recorded), max(end for _, end in recorded)),
            )


def _step_times(rank: RankRun) -> dict[int, tuple[int, int]]:
    """Start and end of each training step in ns, by its number."""
    found = {}
    table = rank.annotations[["name", "start_ns", "duration_ns"]]
    for name, start, duration in table.itertuples(index=False):
        if match := _STEP.fullmatch(name):
            found[int(match[1])] = (start, start + duration)
    return found


HIP_VERSION = 70_051_831
"""hip_runtime_version of ROCm 7.0 in a public trace of MI300X
(https://github.com/AMD-AGI/TraceLens): major * 10^7 + minor * 10^5 + patch.
"""


def header_text(recording: Recording) -> str:
    """The text from the opening brace to the first event, in Kineto's layout."""
    lines = [
        '  "schemaVersion": 1,',
        '  "deviceProperties": [',
        _device_properties(recording),
        "  ],",
    ]
    lines += [
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)},"
        for name, value in _members(recording)
    ]
    return "\n".join([*lines, '  "traceEvents": [\n'])


def _members(recording: Recording) -> list[tuple[str, Any]]:
    run = recording.run
    members: list[tuple[str, Any]] = [
        ("roctracer_version", 4.1),
        ("hip_runtime_version", HIP_VERSION),
        ("hip_driver_version", HIP_VERSION),
    ]
    if len(run.ranks) > 1:
        members.append(("distributedInfo", _distributed(recording)))
    if recording.record_shapes:
        members.append(("record_shapes", 1))
    return [
        *members,
        ("trace_id", identity(run, recording.rank).upper()),
        (MARK, marker(run)),
        ("displayTimeUnit", "ms"),
        ("baseTimeNanoseconds", recording.base_ns),
    ]


def _distributed(recording: Recording) -> dict[str, Any]:
    size = len(recording.run.ranks)
    group = {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cuda:nccl",
        "pg_size": size,
        "ranks": list(range(size)),
    }
    return {
        "backend": "nccl",
        "rank": recording.rank.rank,
        "world_size": size,
        "pg_count": 1,
        "pg_config": [group],
        "nccl_version": "2.26.6",
    }


def _device_properties(recording: Recording) -> str:
    """One block per visible device, as libkineto's DeviceProperties.cpp writes them."""
    device = recording.run.device
    major, minor = (
        (int(device.gfx[3:-2] or 0), int(device.gfx[-2], 16)) if len(device.gfx) > 5 else (0, 0)
    )
    blocks = [
        "    {\n"
        f'      "id": {index}, "name": {json.dumps(device.marketing_name)}, "totalGlobalMem":'
        f" {device.memory_bytes},\n"
        f'      "computeMajor": {major}, "computeMinor": {minor},\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        f'      "regsPerBlock": 65536, "warpSize": {device.wavefront_size},\n'
        f'      "sharedMemPerBlock": {device.lds_bytes}, "numSms": {device.compute_units}\n'
        f'    , "maxSharedMemoryPerMultiProcessor": {device.lds_bytes}\n'
        "    }"
        for index in range(max(rank.device for rank in recording.run.ranks) + 1)
    ]
    return ",\n".join(blocks)
