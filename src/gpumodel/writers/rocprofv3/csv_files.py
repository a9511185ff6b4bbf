"""CSV files as rocprofv3 writes them (source/lib/output/generateCSV.cpp of ROCm/rocprofiler-sdk).

The tables of `--stats` have the number formats of its class stats_formatter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import agents_of, first_cpu, properties
from gpumodel.writers.common.files import DEFAULT_PREFIX, MARK, marker, output_path, put, ranks_of
from gpumodel.writers.rocprofv3.records import DOMAINS, Records, check_domains

LDS_BLOCK = 512
"""Bytes: LDS is allocated, and stated, in multiples of this."""

AGENT_HEADER = (
    "Node_Id",
    "Logical_Node_Id",
    "Agent_Type",
    "Cpu_Cores_Count",
    "Simd_Count",
    "Cpu_Core_Id_Base",
    "Simd_Id_Base",
    "Max_Waves_Per_Simd",
    "Lds_Size_In_Kb",
    "Gds_Size_In_Kb",
    "Num_Gws",
    "Wave_Front_Size",
    "Num_Xcc",
    "Cu_Count",
    "Array_Count",
    "Num_Shader_Banks",
    "Simd_Arrays_Per_Engine",
    "Cu_Per_Simd_Array",
    "Simd_Per_Cu",
    "Max_Slots_Scratch_Cu",
    "Gfx_Target_Version",
    "Vendor_Id",
    "Device_Id",
    "Location_Id",
    "Domain",
    "Drm_Render_Minor",
    "Num_Sdma_Engines",
    "Num_Sdma_Xgmi_Engines",
    "Num_Sdma_Queues_Per_Engine",
    "Num_Cp_Queues",
    "Max_Engine_Clk_Ccompute",
    "Max_Engine_Clk_Fcompute",
    "Sdma_Fw_Version",
    "Fw_Version",
    "Capability",
    "Cu_Per_Engine",
    "Max_Waves_Per_Cu",
    "Family_Id",
    "Workgroup_Max_Size",
    "Grid_Max_Size",
    "Local_Mem_Size",
    "Hive_Id",
    "Gpu_Id",
    "Workgroup_Max_Dim_X",
    "Workgroup_Max_Dim_Y",
    "Workgroup_Max_Dim_Z",
    "Grid_Max_Dim_X",
    "Grid_Max_Dim_Y",
    "Grid_Max_Dim_Z",
    "Name",
    "Vendor_Name",
    "Product_Name",
    "Model_Name",
)
"""Columns of agent_info. What the model does not know of an agent is 0, as the tool writes sizes
that it does not know.
"""

_CALL_HEADER = (
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
)
_LAYOUT = ("workgroup_x", "workgroup_y", "workgroup_z", "grid_x", "grid_y", "grid_z")
_LAYOUT_HEADER = [f"{what}_Size_{axis}" for what in ("Workgroup", "Grid") for axis in "XYZ"]


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    prefix: str = DEFAULT_PREFIX,
    traces: Sequence[str] = DOMAINS,
    stats: bool = False,
) -> list[Path]:
    """Write the files of each process, as ROCm 7.0 does: one per domain with records, its
    statistics, the agents, and `modelled.json`.

    rank   -- write only this rank.
    prefix -- start of the files' names, with placeholders; see `output_path`.
    traces -- some of DOMAINS: kernel, hip, memory_copy, marker (needs the trainer's --roctx), rccl.
    stats  -- add `*_stats.csv` for each of them and `domain_stats.csv`.

    As with the tool, names are in quotes, and quotes within them are not doubled; copies within a
    device and fills are kernels of the runtime. Returns the files; raises UserError for an unknown
    rank or domain.
    """
    check_domains(traces)
    return [
        path
        for one in ranks_of(run, rank)
        for path in _write_rank(run, one, folder, prefix, traces, stats)
    ]


def _write_rank(
    run: Run, rank: RankRun, folder: Path, prefix: str, traces: Sequence[str], stats: bool
) -> list[Path]:
    records = Records(run, rank)
    texts = {"agent_info.csv": _agent_text(run)}
    durations: dict[str, pd.Series] = {}
    for domain in (domain for domain in DOMAINS if domain in traces):
        file, make = _FILES[domain]
        table = make(records)
        # As with the tool, a domain without records has no file.
        if not len(table.names):
            continue
        texts[f"{file}_trace.csv"] = csv_text(table.header, table.columns)
        if stats:
            rows = statistics_rows(table.names, table.durations_ns)
            texts[f"{file}_stats.csv"] = _statistics_text(rows)
            durations[table.domain] = table.durations_ns
    if durations:
        texts["domain_stats.csv"] = _statistics_text(domain_rows(durations))
    texts[f"{MARK}.json"] = json.dumps({MARK: marker(run)}, ensure_ascii=False, indent=1) + "\n"
    written = []
    for ending, text in texts.items():
        path = output_path(run, rank, folder, prefix, ending)
        written.append(put(path, text))
    return written


def csv_text(header: Sequence[str], columns: Sequence[Iterable[Any]]) -> str:
    """Lines of CSV from columns of equal length. Texts are in quotes, numbers are not, and nothing
    is escaped.
    """
    lines = [",".join(f'"{name}"' for name in header)]
    lines += map(",".join, zip(*map(_cells, columns), strict=True))
    return "\n".join(lines) + "\n"


def _cells(column: Iterable[Any]) -> list[str]:
    values = column.tolist() if isinstance(column, pd.Series) else list(column)
    return [f'"{value}"' if isinstance(value, str) else str(value) for value in values]


def _statistics_text(rows: list[list[str]]) -> str:
    lines = [",".join(f'"{name}"' for name in STATISTICS_HEADER)]
    return (
        "\n".join([*lines, *(",".join([f'"{name}"', *numbers]) for name, *numbers in rows)]) + "\n"
    )


@dataclass(frozen=True)
class _Table:
    """A trace file: its columns, and the names and durations that its statistics are made from."""

    domain: str
    header: Sequence[str]
    columns: Sequence[Iterable[Any]]
    names: pd.Series
    durations_ns: pd.Series


def _kernels(records: Records) -> _Table:
    table = records.dispatches
    symbol = records.symbols.set_index("kernel_id").loc[table["kernel_id"]].reset_index()
    # LDS is stated per kernel: all its dispatches have that of the largest.
    blocks = (symbol["lds_bytes"] + LDS_BLOCK - 1) // LDS_BLOCK * LDS_BLOCK
    columns: dict[str, Iterable[Any]] = {
        "Kind": ["KERNEL_DISPATCH"] * len(table),
        "Agent_Id": [f"Agent {records.rank.agent}"] * len(table),
        "Queue_Id": table["queue"],
        "Stream_Id": table["stream"],
        "Thread_Id": table["thread_id"],
        "Dispatch_Id": table["dispatch_id"],
        "Kernel_Id": table["kernel_id"],
        "Kernel_Name": table["name"],
        "Correlation_Id": table["correlation_id"],
        "Start_Timestamp": table["start_ns"],
        "End_Timestamp": table["end_ns"],
        "LDS_Block_Size": blocks,
        "Scratch_Size": table["scratch_bytes"],
        "VGPR_Count": table["vector_registers"],
        "Accum_VGPR_Count": table["accumulation_registers"],
        "SGPR_Count": table["scalar_registers"],
    }
    columns |= dict(zip(_LAYOUT_HEADER, (table[column] for column in _LAYOUT), strict=True))
    durations = table["duration_ns"]
    return _Table(
        "KERNEL_DISPATCH", list(columns), list(columns.values()), table["name"], durations
    )


def _memory_copies(records: Records) -> _Table:
    table = records.copies
    host = f"Agent {first_cpu(records.run)}"
    device = f"Agent {records.rank.agent}"
    to_device = table["copy_direction"] == "HostToDevice"
    columns: dict[str, Iterable[Any]] = {
        "Kind": ["MEMORY_COPY"] * len(table),
        "Direction": table["name"],
        "Stream_Id": table["stream"],
        "Source_Agent_Id": [host if inward else device for inward in to_device],
        "Destination_Agent_Id": [device if inward else host for inward in to_device],
        "Correlation_Id": table["correlation_id"],
        "Start_Timestamp": table["start_ns"],
        "End_Timestamp": table["end_ns"],
    }
    return _Table(
        "MEMORY_COPY", list(columns), list(columns.values()), table["name"], table["duration_ns"]
    )


def _calls(records: Records, table: pd.DataFrame, domain: str, group: str) -> _Table:
    columns = [
        [domain] * len(table),
        table["name"],
        [records.rank.process_id] * len(table),
        *(table[column] for column in ("thread_id", "correlation_id", "start_ns", "end_ns")),
    ]
    return _Table(group, _CALL_HEADER, columns, table["name"], table["end_ns"] - table["start_ns"])


_FILES: dict[str, tuple[str, Callable[[Records], _Table]]] = {
    "kernel": ("kernel", _kernels),
    "hip": (
        "hip_api",
        lambda records: _calls(records, records.calls, "HIP_RUNTIME_API_EXT", "HIP_API"),
    ),
    "memory_copy": ("memory_copy", _memory_copies),
    "marker": (
        "marker_api",
        lambda records: _calls(records, records.markers, "MARKER_CORE_RANGE_API", "MARKER_API"),
    ),
    "rccl": (
        "rccl_api",
        lambda records: _calls(records, records.rccl_calls, "RCCL_API", "RCCL_API"),
    ),
}
"""Domain -> beginning of the names of its files, and the function that makes their table."""


def _agent_text(run: Run) -> str:
    rows = []
    for agent in agents_of(run):
        known = {name.title(): value for name, value in properties(agent, run).items()}
        known |= {"Node_Id": agent.number, "Logical_Node_Id": agent.number}
        known |= {"Agent_Type": "GPU" if agent.is_gpu else "CPU"}
        rows.append([known.get(column, 0) for column in AGENT_HEADER])
    return csv_text(AGENT_HEADER, list(zip(*rows, strict=True)))


STATISTICS_HEADER = (
    "Name",
    "Calls",
    "TotalDurationNs",
    "AverageNs",
    "Percentage",
    "MinNs",
    "MaxNs",
    "StdDev",
)
"""StdDev is the standard deviation of the sample (0 for a single call). Percentage is the share of
the file's total, 0 to 100.
"""


def statistics_rows(names: pd.Series, durations_ns: pd.Series) -> list[list[str]]:
    """Cells of a table with a row per name, the largest total first; only the quotes of the name
    are still missing.
    """
    grouped = durations_ns.groupby(names.to_numpy(), sort=False)
    table = grouped.agg(["count", "sum", "mean", "min", "max", "std"]).fillna(0.0)
    table = table.sort_values("sum", ascending=False, kind="stable")
    total = max(1, int(table["sum"].sum()))
    return [
        [
            str(name),
            str(int(row["count"])),
            str(int(row["sum"])),
            decimal(row["mean"]),
            percentage(100 * row["sum"] / total),
            str(int(row["min"])),
            str(int(row["max"])),
            decimal(row["std"]),
        ]
        for name, row in zip(table.index, table.to_dict("records"), strict=True)
    ]


def domain_rows(durations_of_domain: Mapping[str, pd.Series]) -> list[list[str]]:
    """Cells of domain_stats: the same columns, with a row per domain that has records."""
    present = {domain: values for domain, values in durations_of_domain.items() if len(values)}
    if not present:
        return []
    names = pd.Series([domain for domain, values in present.items() for _ in range(len(values))])
    return statistics_rows(names, pd.concat(list(present.values()), ignore_index=True))


def decimal(value: float) -> str:
    """A number with six places from 1 upwards; below that, scientific with eight."""
    return f"{value:.6f}" if value >= 1 else f"{value:.8e}"


def percentage(value: float) -> str:
    """A percentage with two places from 1 upwards, four from 0.01 upwards; below that, scientific
    with three.
    """
    if value >= 1:
        return f"{value:.2f}"
    return f"{value:.4f}" if value >= 0.01 else f"{value:.3e}"
