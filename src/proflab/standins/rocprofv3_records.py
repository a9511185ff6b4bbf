"""The part of a modelled run that rocprofv3 was asked to record, the table of `--summary`, and the
counters of `--pmc`.

Counters have a row for each kernel and counter; they are those that the model has for
rocprof-compute: see gpumodel.writers.rocprof_compute.counters for which are exact and which are
estimates. Columns: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/docs/data (ROCm
7.0), and of the summary source/lib/output/generateStats.cpp.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpumodel.devices import Device
from gpumodel.run import DEVICE_WORK, RankRun, Run
from gpumodel.writers.common.device_work import MEMORY_COPY_NAMES, truncated_name
from gpumodel.writers.rocprof_compute.counters import LEVEL, counters_of, runs_of
from gpumodel.writers.rocprofv3.csv_files import LDS_BLOCK, csv_text
from gpumodel.writers.rocprofv3.records import Records
from proflab.standins.options import ToolError
from proflab.standins.rocprofv3_options import enabled_domains
from tidyprof.errors import UserError
from tidyprof.whole_files import whole_file


def recorded(run: Run, options: argparse.Namespace) -> Run:
    """The run with kernel names as these options ask for them."""
    if not options.truncate_kernels:
        return run
    works = [rank.device_work for rank in run.ranks]
    works = [work.assign(name=work["name"].map(truncated_name).astype("object")) for work in works]
    ranks = zip(run.ranks, works, strict=True)
    return replace(run, ranks=tuple(replace(rank, device_work=work) for rank, work in ranks))


def traces_of(options: argparse.Namespace) -> tuple[str, ...]:
    """The recorded traces, in the words of gpumodel's writers.

    HSA calls, HIP compiler calls and allocations are not modelled: those domains stay empty.
    """
    domains = enabled_domains(options)
    return tuple(name for name, domain in _TRACES.items() if domain in domains)


_TRACES = {
    "kernel": "kernel_trace",
    "hip": "hip_runtime_trace",
    "memory_copy": "memory_copy_trace",
    "marker": "marker_trace",
    "rccl": "rccl_trace",
}


def of_traces(rank: RankRun, traces: Sequence[str]) -> RankRun:
    """The rank with only those rows of its tables that belong to these traces."""
    work = rank.device_work
    copies = is_memory_copy(work)
    wanted = (copies & ("memory_copy" in traces)) | (~copies & ("kernel" in traces))
    return replace(
        rank,
        device_work=work[wanted].reset_index(drop=True),
        calls=rank.calls if "hip" in traces else rank.calls.iloc[:0],
        annotations=rank.annotations if "marker" in traces else rank.annotations.iloc[:0],
    )


def is_memory_copy(work: pd.DataFrame) -> pd.Series:
    """Mask of the copies between host and device; rocprofv3 records all other device work as
    kernels.
    """
    return (work["kind"] == "copy") & work["copy_direction"].isin(list(MEMORY_COPY_NAMES))


_LAUNCHERS = (
    ("PBS_NODENUM", "PBS_O_TASKNUM"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
"""Launcher's variables of rank and size, in the order in which rocprofv3.py looks them up.
torchrun's are not among them.
"""


def is_profiled(environment: Mapping[str, str], options: argparse.Namespace) -> bool:
    """Whether `--profile-mpi-ranks` includes the process with this environment; without rank and
    size it does. Raises ToolError.
    """
    wanted = profiled_ranks(options.profile_mpi_ranks)
    named = (options.mpi_world_rank_variable, options.mpi_world_size_variable)
    pairs = (named,) if all(named) else _LAUNCHERS
    ranks = [
        environment[rank] for rank, size in pairs if rank in environment and size in environment
    ]
    return wanted is None or not ranks or int(ranks[0]) in wanted


def profiled_ranks(text: str | None) -> set[int] | None:
    """The ranks that `--profile-mpi-ranks 0-3,8` names; None for all. Raises ToolError for another
    text.
    """
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ToolError(
                f"Fatal error: --profile-mpi-ranks {text!r} is no list of ranks such as 0-3,8", 1
            )
        found |= set(range(int(first), int(last or first) + 1))
    return found


def within(rank: RankRun, begin: float, end: float) -> RankRun:
    """The rank with only the events that lie as a whole between two moments in ns."""

    def kept(table: pd.DataFrame) -> pd.DataFrame:
        inside = (table["start_ns"] >= begin) & (table["start_ns"] + table["duration_ns"] <= end)
        return table[inside].reset_index(drop=True)

    kept_tables = {
        name: kept(getattr(rank, name)) for name in ("device_work", "calls", "annotations")
    }
    return replace(rank, **kept_tables)


DIVISORS = {"sec": 1e9, "msec": 1e6, "usec": 1e3, "nsec": 1.0}


def print_summary(events: pd.DataFrame, unit: str) -> None:
    """Print the table of all events from `events_of` on stderr, with times in `unit`, a key of
    DIVISORS.
    """
    grouped = events.groupby(["name", "domain"], sort=False)["duration_ns"]
    rows = grouped.agg(["size", "sum", "mean", "min", "max", "std"]).fillna(0.0).reset_index()
    rows = rows.sort_values("sum", ascending=False, kind="stable")
    whole, shown = (0 if unit == "nsec" else 3), rows[["sum", "min", "max"]] / DIVISORS[unit]
    means = rows[["mean", "std"]] / DIVISORS[unit]
    table = pd.DataFrame(
        {
            "NAME": rows["name"],
            "DOMAIN": rows["domain"],
            "CALLS": rows["size"],
            f"DURATION ({unit})": shown["sum"].map(f"{{:.{whole}f}}".format),
            f"AVERAGE ({unit})": means["mean"].map("{:.3e}".format),
            "PERCENT (INC)": (100 * rows["sum"] / rows["sum"].sum()).map("{:.6f}".format),
            f"MIN ({unit})": shown["min"].map(f"{{:.{whole}f}}".format),
            f"MAX ({unit})": shown["max"].map(f"{{:.{whole}f}}".format),
            "STDDEV": means["std"].map("{:.3e}".format),
        }
    )
    widths = [
        max(len(name), int(table[name].astype(str).str.len().max())) for name in table.columns
    ]
    lines = [
        list(table.columns),
        ["-" * width for width in widths],
        *table.astype(str).to_numpy().tolist(),
    ]
    text = [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    print("\nROCPROFV3 SUMMARY:\n", *(f"| {line} |" for line in text), sep="\n", file=sys.stderr)


def events_of(run: Run, rank: RankRun, traces: Sequence[str]) -> pd.DataFrame:
    """One row for each event that these traces record: name, domain and duration_ns."""
    records = Records(run, rank)
    tables = {
        "kernel": ("KERNEL_DISPATCH", records.dispatches),
        "memory_copy": ("MEMORY_COPY", records.copies),
        "hip": ("HIP_API", records.calls),
        "marker": ("MARKER_API", records.markers),
        "rccl": ("RCCL_API", records.rccl_calls),
    }
    parts = [
        pd.DataFrame(
            {
                "name": table["name"],
                "domain": domain,
                "duration_ns": table["end_ns"] - table["start_ns"],
            }
        )
        for domain, table in (tables[trace] for trace in traces)
    ]
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else pd.DataFrame(columns=["name", "domain", "duration_ns"])
    )


COUNTER_FILE = "counter_collection.csv"


def modelled_counters(device: Device) -> list[str]:
    """Names of the counters that the model has; those that only rocprof-compute makes are left
    out.
    """
    nothing = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in DEVICE_WORK.items()})
    return [name for name in counters_of(nothing, device).columns if name != LEVEL]


def check_counters(names: Sequence[str], device: Device) -> None:
    """Raises UserError for a counter that is not modelled, and for more counters than the hardware
    counts in one pass.
    """
    known = modelled_counters(device)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(
            f"--pmc {' '.join(unknown)}: not modelled on {device.name}; `rocprofv3-avail list"
            " --pmc` names what is"
        )
    if len(runs_of(names)) > 1:
        raise UserError(
            f"--pmc with {len(names)} counters: more than the hardware counts in one pass (8 of SQ,"
            " 4 of TCC, 2 of SPI and GRBM each); start the program once for each group"
        )


def check(options: argparse.Namespace, device: Device) -> None:
    """Raises UserError for counters, formats and filters that the stand-in cannot handle."""
    check_counters(options.pmc, device)
    others = sorted(set(options.output_format or ["rocpd"]) - {"csv"})
    if others:
        raise UserError(f"--pmc is not modelled in the format {others[0]}; say --output-format csv")
    for pattern in (options.kernel_include_regex, options.kernel_exclude_regex):
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise UserError(f"{pattern!r} is no regular expression: {error}") from None


def write(run: Run, rank: RankRun, options: argparse.Namespace, prefix: Path) -> list[Path]:
    """Write `<prefix>_counter_collection.csv`; nothing if the filters leave no kernel. Raises
    UserError if the file cannot be written.
    """
    table = _chosen(Records(run, rank).dispatches, options)
    if table.empty:
        return []
    path = prefix.with_name(f"{prefix.name}_{COUNTER_FILE}")
    counted = _rows(table, rank, counters_of(table, run.device)[sorted(options.pmc)])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(
                csv_text(list(counted), list(counted.values())), encoding="utf-8", newline=""
            )
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}); give another output folder"
        ) from error
    return [path]


def _chosen(table: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """The kernels that the regular expressions on names leave, in the order of their dispatch."""
    keep = pd.Series(True, index=table.index)
    for pattern, wanted in (
        (options.kernel_include_regex, True),
        (options.kernel_exclude_regex, False),
    ):
        if pattern:
            keep &= (
                table["name"].map(lambda name, pattern=pattern: bool(re.search(pattern, name)))
                == wanted
            )
    return table[keep].sort_values("dispatch_id", ignore_index=True)


def _rows(table: pd.DataFrame, rank: RankRun, counters: pd.DataFrame) -> dict[str, Iterable[Any]]:
    """The columns of the file: dispatch after dispatch, in each the counters by name."""
    sizes = {
        what: np.prod([table[f"{what}_{axis}"].clip(lower=1).to_numpy() for axis in "xyz"], axis=0)
        for what in ("grid", "workgroup")
    }
    columns = {
        "Correlation_Id": table["correlation_id"],
        "Dispatch_Id": table["dispatch_id"],
        "Agent_Id": [f"Agent {rank.agent}"] * len(table),
        "Queue_Id": table["queue"],
        "Process_Id": [rank.process_id] * len(table),
        "Thread_Id": table["thread_id"],
        "Grid_Size": sizes["grid"],
        "Kernel_Id": table["kernel_id"],
        "Kernel_Name": table["name"],
        "Workgroup_Size": sizes["workgroup"],
        "LDS_Block_Size": (table["lds_bytes"] + LDS_BLOCK - 1) // LDS_BLOCK * LDS_BLOCK,
        "Scratch_Size": table["scratch_bytes"],
        "VGPR_Count": table["vector_registers"],
        "Accum_VGPR_Count": table["accumulation_registers"],
        "SGPR_Count": table["scalar_registers"],
    }
    times = {"Start_Timestamp": table["start_ns"], "End_Timestamp": table["end_ns"]}
    each = len(counters.columns)
    six_digits = Decimal("0.000000")
    return {
        **{name: _repeated(column, each) for name, column in columns.items()},
        "Counter_Name": [*counters.columns] * len(table),
        "Counter_Value": [
            Decimal(value).quantize(six_digits)
            for value in counters.to_numpy().reshape(-1).tolist()
        ],
        **{name: _repeated(column, each) for name, column in times.items()},
    }


def _repeated(column: Iterable[Any], times: int) -> list[Any]:
    return [value for value in list(column) for _ in range(times)]
