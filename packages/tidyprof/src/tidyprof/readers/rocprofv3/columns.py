"""Names of rocprofv3's columns and domains in ROCm 6.2 to 7.x, and the roles of files with these
columns.

The names come from source/lib/output/generateCSV.cpp in https://github.com/ROCm/rocprofiler-sdk.
rocpd's converter capitalizes them differently, for example as `Lds_Block_Size`, so the reader
ignores case.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

_READ = {
    "kind": "category",
    "domain": "category",
    "function": "name",
    "kernel_name": "name",
    "direction": "name",
    "operation": "name",
    "instruction": "name",
    "agent_id": "agent",
    "source_agent_id": "source_agent",
    "destination_agent_id": "destination_agent",
    "queue_id": "queue",
    "stream_id": "stream",
    "thread_id": "thread",
    "process_id": "process",
    "start_timestamp": "start",
    "end_timestamp": "end",
    "sample_timestamp": "start",
    "timestamp": "start",
    "allocation_size": "bytes",
    "lds_block_size": "lds_bytes",
    "group_segment_size": "lds_bytes",
    "scratch_size": "scratch_bytes",
    "private_segment_size": "scratch_bytes",
    "vgpr_count": "vgprs",
    "accum_vgpr_count": "accum_vgprs",
    "sgpr_count": "sgprs",
    "workgroup_size_x": "block_x",
    "workgroup_size_y": "block_y",
    "workgroup_size_z": "block_z",
    "grid_size_x": "grid_x",
    "grid_size_y": "grid_y",
    "grid_size_z": "grid_z",
    "grid_size": "work_items",
    "workgroup_size": "workgroup_size",
    "instruction_comment": "source_line",
    "wave_issued_instruction": "wave_issued",
    "dispatch_id": "dispatch_id",
    "correlation_id": "correlation_id",
    "counter_name": "counter",
    "counter_value": "value",
    "exec_mask": "exec_mask",
    "wave_count": "wave_count",
    "instruction_type": "instruction_type",
    "stall_reason": "stall_reason",
    "guid": "guid",
    "replay_pass": "replay_pass",
    "pass_id": "replay_pass",
}
"""tidyprof's name for each column. The columns are in lowercase."""

UNUSED = frozenset(
    {"address", "alloc_flags", "duration", "kernel_id", "graph_exec_id", "graph_node_id"}
)
"""Known columns that this reader doesn't use. Other columns have the same contents, or a Profile
can't store these columns.
"""

_NAMES = frozenset(_READ.values())

TEXTS = frozenset(
    {
        "name",
        "source_line",
        "category",
        "agent",
        "source_agent",
        "destination_agent",
        "counter",
        "instruction_type",
        "stall_reason",
        "guid",
    }
)
"""String columns. All other columns contain numbers."""

SIZES = frozenset(
    {"lds_bytes", "scratch_bytes", "vgprs", "accum_vgprs", "sgprs", "wave_issued", "wave_count"}
    | {f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"}
)
"""Numeric columns whose values the hardware limits to 32 bits."""

_STATISTICS = {
    "name",
    "calls",
    "totaldurationns",
    "averagens",
    "percentage",
    "minns",
    "maxns",
    "stddev",
}
_KINDS = (
    (r"KERNEL_DISPATCH", "kernel"),
    (r"MEMORY_COPY", "copy"),
    (r"MARKER_CORE(_RANGE)?_API|(HIP_)?GRAPH([ _]LAUNCH)?", "annotation"),
    (r"PC_SAMPLING_\w+", "sample"),
    (r"SCRATCH_MEMORY|MEMORY_ALLOCATION|OMPT|\w+_API(_EXT)?|\w+_EXT_API", "runtime"),
)


_COUNTER = re.compile(
    r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+(_(sum|avr|avg|max|min))?(\[\d+\])*"
    r"|[A-Z][A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*|[A-Z]{2,}[a-z][A-Za-z0-9]*|Wavefronts"
)
"""Pattern for the counter names in source/share/rocprofiler-sdk/counter_defs.yaml. Examples are
`SQ_WAVES`, `TCC_HIT_sum`, `TCC_HIT[3]`, `L2CacheHit` and `VALUBusy`. The tool's own columns have
names like `Dispatch_Id`.
"""


def canonical(column: str) -> str:
    """Return tidyprof's name for a column, which is the same for all releases. If the column is
    unknown, return its name in lowercase.
    """
    column = column.lower()
    return _READ.get(column, column)


def is_known(column: str) -> bool:
    """Return True if rocprofv3 is known to write this column."""
    return column.lower() in _READ.keys() | UNUSED or column in _NAMES


def header_of(head: bytes) -> list[str] | None:
    """Return the column names in the first line of a file, or None if the file isn't CSV."""
    line, end, _ = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if not end:
        return None
    try:
        return next(csv.reader([line.rstrip(b"\r").decode("utf-8")], strict=True), None)
    except (csv.Error, UnicodeDecodeError):
        return None


def role_of(header: list[str]) -> str | None:
    """Return the role of a CSV file with this header. Return None if the file isn't from rocprofv3.

    The roles are:

    - `trace`: events with their times
    - `samples`: samples of the program counter
    - `counters`: table with one row per dispatch and counter
    - `wide counters`: table with one column per counter
    - `statistics`: calls and durations by name
    - `agents`: CPUs and GPUs
    """
    names = {column.lower() for column in header}
    if names >= _STATISTICS:
        return "statistics"
    if names >= {"node_id", "agent_type"}:
        return "agents"
    # rocprof-compute writes similar long and wide tables, but with GPU_ID and Dispatch_ID.
    if names >= {"counter_name", "counter_value", "dispatch_id"} and "gpu_id" not in names:
        return "counters"
    if names >= {"sample_timestamp", "instruction"}:
        return "samples"
    if names >= {"start_timestamp", "end_timestamp"} and names & {"kind", "domain"}:
        return "trace"
    is_long = bool(names & {"counter_name", "counter_value"})
    if (
        {"Dispatch_Id", "Kernel_Name", "Agent_Id"} <= set(header)
        and not is_long
        and counter_columns(header)
    ):
        return "wide counters"
    return None


def counter_columns(header: list[str]) -> list[str]:
    """Return the names of the counter columns in a `wide counters` file."""
    return [column for column in header if not is_known(column)]


def without_a_counters_name(columns: Iterable[str]) -> list[str]:
    """Return the counter columns whose names don't look like counter names. A newer release may
    have added these columns.
    """
    return [column for column in columns if not _COUNTER.fullmatch(column)]


def kind_of_domain(domain: str) -> str | None:
    """Return the kind of event in a domain, which is one of `contract.KINDS`. Return None if the
    domain's records aren't kept.
    """
    for pattern, kind in _KINDS:
        if re.fullmatch(pattern, domain, re.IGNORECASE):
            return kind
    return None
