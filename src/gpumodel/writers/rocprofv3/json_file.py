"""The `*_results.json` of rocprofv3 (`--output-format json`), in the structure of rocprofiler-sdk
1.0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import (
    Agent,
    agents_of,
    first_cpu,
    properties,
    truncated_name,
)
from gpumodel.writers.common.files import DEFAULT_PREFIX, MARK, marker, output_path, put, ranks_of
from gpumodel.writers.rocprofv3.records import DOMAINS, Records, check_domains

FIRST_HANDLE = 37_944
"""Handle of agent 0, made up. A handle is a number without meaning, by which records refer to an
agent.
"""

_KINDS = (
    "NONE",
    "HIP_RUNTIME_API_EXT",
    "MARKER_CORE_RANGE_API",
    "MEMORY_COPY",
    "KERNEL_DISPATCH",
    "RCCL_API",
)
_COPY_OPERATIONS = (
    "MEMORY_COPY_NONE",
    "MEMORY_COPY_HOST_TO_HOST",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_HOST",
    "MEMORY_COPY_DEVICE_TO_DEVICE",
)
_DISPATCH_OPERATIONS = (
    "KERNEL_DISPATCH_NONE",
    "KERNEL_DISPATCH_ENQUEUE",
    "KERNEL_DISPATCH_COMPLETE",
)
_MARKER_OPERATIONS = ("roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA", "roctxGetThreadId")
_LISTS = (
    "kernel_dispatch",
    "hip_api",
    "hsa_api",
    "marker_api",
    "rccl_api",
    "memory_copy",
    "memory_allocation",
    "scratch_memory",
    "rocdecode_api",
    "rocjpeg_api",
    "pc_sample_host_trap",
    "pc_sample_stochastic",
)


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    prefix: str = DEFAULT_PREFIX,
    traces: Sequence[str] = DOMAINS,
) -> list[Path]:
    """Write one `<prefix>_results.json` per process; `rank`, `prefix` and `traces` are as in the
    CSV writer.

    The lists of domains and operations hold only what the file refers to, not all that the tool
    knows. The marker of the model is a member of `metadata`. Returns the files; raises UserError
    for an unknown rank or domain.
    """
    check_domains(traces)
    written = []
    for one in ranks_of(run, rank):
        path = output_path(run, one, folder, prefix, "results.json")
        tool = _tool(run, one, prefix, traces)
        text = json.dumps(
            {"rocprofiler-sdk-tool": [tool]}, separators=(",", ":"), ensure_ascii=False
        )
        written.append(put(path, text))
    return written


def _tool(run: Run, rank: RankRun, prefix: str, traces: Sequence[str]) -> dict[str, Any]:
    records = Records(run, rank)
    functions = list(dict.fromkeys(records.calls["name"].tolist()))
    rccl_functions = list(dict.fromkeys(records.rccl_calls["name"].tolist()))
    operations = {
        "HIP_RUNTIME_API_EXT": functions,
        "MARKER_CORE_RANGE_API": _MARKER_OPERATIONS,
        "MEMORY_COPY": _COPY_OPERATIONS,
        "KERNEL_DISPATCH": _DISPATCH_OPERATIONS,
        "RCCL_API": rccl_functions,
    }
    lists = {
        "kernel_dispatch": ("kernel", lambda: _dispatches(records)),
        "hip_api": ("hip", lambda: _calls(records.calls, "HIP_RUNTIME_API_EXT", functions)),
        "marker_api": ("marker", lambda: _calls(records.markers, "MARKER_CORE_RANGE_API", None)),
        "rccl_api": ("rccl", lambda: _calls(records.rccl_calls, "RCCL_API", rccl_functions)),
        "memory_copy": ("memory_copy", lambda: _copies(records)),
    }
    asked_for = {name: make() for name, (domain, make) in lists.items() if domain in traces}
    texts = zip(
        records.markers["correlation_id"].tolist(), records.markers["name"].tolist(), strict=True
    )
    return {
        "metadata": _metadata(run, rank, prefix),
        "agents": [_agent(agent, run) for agent in agents_of(run)],
        "counters": [],
        "strings": {
            "callback_records": [],
            "buffer_records": [
                {"kind": kind, "operations": list(operations.get(kind, ()))} for kind in _KINDS
            ],
            "marker_api": [{"key": key, "value": text} for key, text in texts],
            "correlation_id": {"external": []},
            "counters": {"dimension_ids": []},
            "pc_sample_instructions": [],
            "pc_sample_comments": [],
        },
        "code_objects": [_code_object(rank)],
        "kernel_symbols": [_symbol(row) for row in records.symbols.to_dict("records")],
        "host_functions": [],
        "summary": [],
        "callback_records": {"counter_collection": []},
        "buffer_records": {name: asked_for.get(name, []) for name in _LISTS},
    }


def _metadata(run: Run, rank: RankRun, prefix: str) -> dict[str, Any]:
    return {
        "node": {
            "id": 0,
            "hash": 0,
            "machine_id": "",
            "system_name": "Linux",
            "hostname": run.hostname,
        },
        "pid": rank.process_id,
        "init_time": run.start_ns,
        "fini_time": run.end_ns,
        "command": list(run.command),
        "config": {"raw_output_file": prefix, "json_output": True},
        MARK: marker(run),
    }


def _agent(agent: Agent, run: Run) -> dict[str, Any]:
    return {
        "size": 312,
        "id": {"handle": FIRST_HANDLE + agent.number},
        "type": 2 if agent.is_gpu else 1,
        **properties(agent, run),
        "node_id": agent.number,
        "logical_node_id": agent.number,
        "logical_node_type_id": agent.index,
        "gpu_index": agent.index if agent.is_gpu else -1,
    }


def _code_object(rank: RankRun) -> dict[str, Any]:
    return {
        "size": 88,
        "code_object_id": 1,
        "agent_id": {"handle": FIRST_HANDLE + rank.agent},
        "uri": "",
        "load_base": 0,
        "load_size": 0,
        "load_delta": 0,
        "storage_type": 2,
    }


def _symbol(row: dict[str, Any]) -> dict[str, Any]:
    """A kernel: its names, with and without the ending that the compiler adds, and the registers
    and memory that it gets.
    """
    name = row["name"]
    return {
        "size": 88,
        "kernel_id": row["kernel_id"],
        "code_object_id": 1,
        "kernel_name": f"{name}.kd",
        "kernel_object": 0,
        "kernarg_segment_size": 0,
        "kernarg_segment_alignment": 16,
        "group_segment_size": row["lds_bytes"],
        "private_segment_size": row["scratch_bytes"],
        "sgpr_count": row["scalar_registers"],
        "arch_vgpr_count": row["vector_registers"],
        "accum_vgpr_count": row["accumulation_registers"],
        "formatted_kernel_name": name,
        "demangled_kernel_name": f"{name}.kd",
        "truncated_kernel_name": truncated_name(name),
    }


def _common(
    kind: str, operation: int, size: int, thread: int, correlation: int, start: int, end: int
) -> dict:
    return {
        "size": size,
        "kind": _KINDS.index(kind),
        "operation": operation,
        "thread_id": thread,
        "correlation_id": {"internal": correlation, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
    }


_TIMED = ("thread_id", "correlation_id", "start_ns", "end_ns")


def _dispatches(records: Records) -> list[dict[str, Any]]:
    table = records.dispatches
    agent = {"handle": FIRST_HANDLE + records.rank.agent}
    sizes = [f"{what}_{axis}" for what in ("workgroup", "grid") for axis in "xyz"]
    columns = ("queue", "kernel_id", "dispatch_id", "scratch_bytes", "lds_bytes", "stream", *sizes)
    rows = zip(*(table[column].tolist() for column in (*_TIMED, *columns)), strict=True)
    complete = _DISPATCH_OPERATIONS.index("KERNEL_DISPATCH_COMPLETE")
    return [
        {
            **_common("KERNEL_DISPATCH", complete, 184, *timed),
            "dispatch_info": {
                "size": 72,
                "agent_id": agent,
                "queue_id": {"handle": queue},
                "kernel_id": kernel,
                "dispatch_id": dispatch,
                "private_segment_size": scratch,
                "group_segment_size": shared,
                "workgroup_size": {"x": wx, "y": wy, "z": wz},
                "grid_size": {"x": gx, "y": gy, "z": gz},
            },
            "stream_id": {"handle": stream},
        }
        for *timed, queue, kernel, dispatch, scratch, shared, stream, wx, wy, wz, gx, gy, gz in rows
    ]


def _copies(records: Records) -> list[dict[str, Any]]:
    table = records.copies
    host = {"handle": FIRST_HANDLE + first_cpu(records.run)}
    device = {"handle": FIRST_HANDLE + records.rank.agent}
    columns = (*_TIMED, "name", "stream", "copy_bytes")
    rows = zip(*(table[column].tolist() for column in columns), strict=True)
    return [
        {
            **_common("MEMORY_COPY", _COPY_OPERATIONS.index(name), 72, *timed),
            "dst_agent_id": device if name.endswith("TO_DEVICE") else host,
            "src_agent_id": host if name.endswith("TO_DEVICE") else device,
            "bytes": 0 if pd.isna(size) else size,
            "stream_id": {"handle": stream},
        }
        for *timed, name, stream, size in rows
    ]


def _calls(table: pd.DataFrame, kind: str, functions: list[str] | None) -> list[dict[str, Any]]:
    """Calls or ranges. functions -- names of the calls, in the order of their numbers; None for
    ROCTx ranges, whose texts are among the strings.
    """
    place = {name: number for number, name in enumerate(functions or ())}
    default = _MARKER_OPERATIONS.index("roctxThreadRangeA")
    rows = zip(*(table[column].tolist() for column in (*_TIMED, "name")), strict=True)
    return [_common(kind, place.get(name, default), 64, *timed) for *timed, name in rows]
