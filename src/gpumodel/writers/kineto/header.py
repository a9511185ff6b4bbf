"""The members of a trace before its events."""

from __future__ import annotations

import json
from typing import Any

from gpumodel.writers.common.marker import MARK, config_of, identity, marker
from gpumodel.writers.kineto.window import Recording

HIP_VERSION = 70_051_831
"""hip_runtime_version of ROCm 7.0, major * 10^7 + minor * 10^5 + patch."""


def header_text(recording: Recording) -> str:
    """The text between the opening brace and the first event, in Kineto's layout."""
    lines = ['  "schemaVersion": 1,', '  "deviceProperties": [', _device_properties(recording), "  ],"]
    lines += [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}," for name, value in _members(recording)]
    return "\n".join([*lines, '  "traceEvents": [\n'])


def _members(recording: Recording) -> list[tuple[str, Any]]:
    run, config = recording.run, config_of(recording.run)
    members: list[tuple[str, Any]] = [
        ("roctracer_version", 4.1),
        ("hip_runtime_version", HIP_VERSION),
        ("hip_driver_version", HIP_VERSION),
    ]
    if len(run.ranks) > 1:
        members.append(("distributedInfo", _distributed(recording)))
    if recording.record_shapes:
        members.append(("record_shapes", 1))
    if config is not None:
        members += [(option, 1) for option in ("with_stack", "profile_memory", "with_flops") if getattr(config, option)]
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
    """One block per visible device, as libkineto's DeviceProperties.cpp lists them."""
    device = recording.run.device
    major, minor = (int(device.gfx[3:-2] or 0), int(device.gfx[-2], 16)) if len(device.gfx) > 5 else (0, 0)
    blocks = [
        "    {\n"
        f'      "id": {index}, "name": {json.dumps(device.marketing_name)}, "totalGlobalMem": {device.memory_bytes},\n'
        f'      "computeMajor": {major}, "computeMinor": {minor},\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        f'      "regsPerBlock": 65536, "warpSize": {device.wavefront_size},\n'
        f'      "sharedMemPerBlock": {device.lds_bytes}, "numSms": {device.compute_units}\n'
        f'    , "maxSharedMemoryPerMultiProcessor": {device.lds_bytes}\n'
        "    }"
        for index in range(max(rank.device for rank in recording.run.ranks) + 1)
    ]
    return ",\n".join(blocks)
