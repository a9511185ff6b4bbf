"""The tables of `rocprof-compute analyze`: kernels and dispatches (0), Speed-of-Light (2), computed
by tidyprof.

Titles and columns: github.com/ROCm/rocm-systems, projects/rocprofiler-compute,
docs/how-to/analyze/cli.rst.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import tidyprof
from proflab.standins import release
from proflab.standins.options import ToolError
from tidyprof.errors import UserError
from tidyprof.readers.rocprof_compute.recognition import COUNTER_FILE, counter_files

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

NEWER_METRICS = ("CU Utilization",)
"""Rows of tidyprof's table that the tool has only since 3.4; before that, `Active CUs` had their
place.
"""

_DIVISORS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_NAME_WIDTH = 48

SPEED_OF_LIGHT_NAMES = (
    "VALU FLOPs",
    "VALU IOPs",
    "MFMA FLOPs (F8)",
    "MFMA FLOPs (BF16)",
    "MFMA FLOPs (F16)",
    "MFMA FLOPs (F32)",
    "MFMA FLOPs (F64)",
    "MFMA IOPs (Int8)",
    "Active CUs",
    "SALU Utilization",
    "VALU Utilization",
    "MFMA Utilization",
    "VMEM Utilization",
    "Branch Utilization",
    "VALU Active Threads",
    "IPC",
    "Wavefront Occupancy",
    "Theoretical LDS Bandwidth",
    "LDS Bank Conflicts/Access",
    "vL1D Cache Hit Rate",
    "vL1D Cache BW",
    "L2 Cache Hit Rate",
    "L2 Cache BW",
    "L2-Fabric Read BW",
    "L2-Fabric Write BW",
    "L2-Fabric Read Latency",
    "L2-Fabric Write Latency",
    "sL1D Cache Hit Rate",
    "sL1D Cache BW",
    "L1I Hit Rate",
    "L1I BW",
    "L1I Fetch Latency",
)
"""Names of table 2.1 on gfx942, in the order of their numbers."""


def print_metric_ids(architecture: str) -> None:
    """Print the ids of the Speed-of-Light table; other blocks are not modelled."""
    if architecture not in ("", "gfx942"):
        raise UserError(f"the ids of {architecture} are not modelled; there is gfx942")
    print("0 -> Top Stats\n0.1 -> Top Kernels\n0.2 -> Dispatch List\n2 -> System Speed-of-Light")
    print(f"2.1 -> {_title()}")
    for number, name in enumerate(SPEED_OF_LIGHT_NAMES):
        print(f"2.1.{number} -> {name}")


def _title() -> str:
    return release.default("rocprof-compute", "title of table 2.1", "System Speed-of-Light")


def join_runs(folder: Path) -> None:
    """Join the runs of a workload in pmc_perf.csv, as analyze does before anything else.

    Raises UserError if that file cannot be written.
    """
    runs = counter_files(folder)
    if not any(file.name.startswith("results_") for file in runs):
        return
    tables = [pd.read_csv(file, dtype=str, keep_default_na=False) for file in runs]
    target = folder / (f"{COUNTER_FILE}.gz" if release.is_at_least("10.2") else COUNTER_FILE)
    try:
        pd.concat(tables).to_csv(target, index=False)
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror})") from error


def tables_of(folder: Path, options: argparse.Namespace) -> str:
    """The tables of a workload folder as text. Raises UserError for a folder that is not a
    workload's, and for other blocks.
    """
    try:
        profile = tidyprof.read_rocprof_compute(folder)
    except tidyprof.ProfileReadError as error:
        raise UserError(str(error)) from error
    kernels = tidyprof.kernels(profile)
    wanted = _wanted_blocks(options)
    parts = [f"\nAnalysis of {folder} with tidyprof; rocprof-compute has more blocks\n"]
    if "0.1" in wanted:
        parts.append(
            _section("0. Top Stats", "0.1 Top Kernels", _top_kernels(profile, kernels, options))
        )
    if "0.2" in wanted:
        parts.append(_section("", "0.2 Dispatch List", _dispatches(profile, options)))
    if "2.1" in wanted:
        table = _speed_of_light(profile, _chosen_kernel(kernels, options), options)
        parts.append(_section("2. System Speed-of-Light", f"2.1 {_title()}", table))
    return "".join(parts)


def _wanted_blocks(options: argparse.Namespace) -> set[str]:
    if options.list_stats:
        return {"0.1", "0.2"}
    if not options.block:
        return {"0.1", "2.1"}
    found = set()
    for name in options.block:
        tables = [
            table
            for table in ("0.1", "0.2", "2.1")
            if f"{name}.".startswith(f"{table}.") or table.startswith(f"{name}.")
        ]
        if not tables:
            raise UserError(
                f"block {name} is not modelled; there are 0 (top stats) and 2 (Speed-of-Light)"
            )
        found |= set(tables)
    return found | {"0.1"}


def _section(title: str, name: str, table: pd.DataFrame) -> str:
    head = f"\n{'-' * 80}\n{title}\n" if title else "\n"
    return f"{head}{name}\n{boxed(table)}\n"


def _top_kernels(
    profile: Profile, kernels: pd.DataFrame, options: argparse.Namespace
) -> pd.DataFrame:
    medians = profile.events.groupby("name", observed=True)["duration_ns"].median()
    scale, unit, digits = _DIVISORS[options.time_unit], options.time_unit, options.decimal
    rows = kernels.head(options.max_stat_num)
    return pd.DataFrame(
        {
            "": [str(number) for number in range(len(rows))],
            "Kernel_Name": rows["name"].astype(str).tolist(),
            "Count": [f"{calls:.{digits}f}" for calls in rows["calls"]],
            f"Sum({unit})": [f"{value / scale:.{digits}f}" for value in rows["total_ns"]],
            f"Mean({unit})": [f"{value / scale:.{digits}f}" for value in rows["mean_ns"]],
            f"Median({unit})": [f"{medians[name] / scale:.{digits}f}" for name in rows["name"]],
            release.default("rocprof-compute", "share of a kernel", "Pct"): [
                f"{value:.{digits}f}" for value in rows["percent"]
            ],
        }
    )


def _dispatches(profile: Profile, options: argparse.Namespace) -> pd.DataFrame:
    events = profile.events.head(options.max_stat_num)
    return pd.DataFrame(
        {
            "": [str(number) for number in range(len(events))],
            "Dispatch_ID": events["dispatch_id"].astype(str).tolist(),
            "Kernel_Name": events["name"].astype(str).tolist(),
            "GPU_ID": events["device"].astype(str).tolist(),
        }
    )


def _chosen_kernel(kernels: pd.DataFrame, options: argparse.Namespace) -> str | None:
    if not options.kernel:
        return None
    if len(options.kernel) > 1:
        raise UserError("-k with several kernels is not modelled; give one number of --list-stats")
    number = options.kernel[0]
    if not 0 <= number < len(kernels):
        raise ToolError(
            f"ERROR {number} is an invalid kernel id; --list-stats has 0 to {len(kernels) - 1}", 1
        )
    return str(kernels["name"].iloc[number])


def _speed_of_light(
    profile: Profile, kernel: str | None, options: argparse.Namespace
) -> pd.DataFrame:
    try:
        table = tidyprof.speed_of_light(profile, kernel=kernel)
    except ValueError as error:
        raise UserError(f"the Speed-of-Light table cannot be computed: {error}") from error
    table = table[~table["metric"].isin(NEWER_METRICS)].reset_index(drop=True)
    rows = [(f"2.1.{number}", row) for number, row in enumerate(table.itertuples())]
    asked = [name for name in options.block if name.count(".") == 2]
    if asked and "2" not in options.block and "2.1" not in options.block:
        rows = [(name, row) for name, row in rows if name in asked]
    digits = options.decimal
    share = release.default("rocprof-compute", "share of the peak", "Pct of Peak")
    return pd.DataFrame(
        [
            {
                "Metric_ID": name,
                "Metric": row.metric,
                "Avg": _cell(row.value, digits),
                "Unit": row.unit,
                "Peak": _cell(row.peak, digits),
                share: _cell(row.percent, digits),
            }
            for name, row in rows
        ],
        columns=["Metric_ID", "Metric", "Avg", "Unit", "Peak", share],
    )


def _cell(value: float, digits: int) -> str:
    return "N/A" if pd.isna(value) else f"{value:.{digits}f}"


def boxed(table: pd.DataFrame) -> str:
    """The table in a box; long names go on in the next line, as in the tool."""
    cells = [
        [_folded(str(text)) for text in row] for row in [table.columns, *table.to_numpy().tolist()]
    ]
    widths = [
        max(len(line) for row in cells for line in row[column])
        for column in range(len(table.columns))
    ]
    edges = {
        place: mark.join("═" * (width + 2) for width in widths)
        for place, mark in (("top", "╤"), ("head", "╪"), ("end", "╧"))
    }
    between = "├" + "┼".join("─" * (width + 2) for width in widths) + "┤"
    body = f"\n{between}\n".join(_box_row(row, widths) for row in cells[1:])
    lines = [
        f"╒{edges['top']}╕",
        _box_row(cells[0], widths),
        f"╞{edges['head']}╡",
        body,
        f"╘{edges['end']}╛",
    ]
    return "\n".join(line for line in lines if line)


def _folded(text: str) -> list[str]:
    return [text[begin : begin + _NAME_WIDTH] for begin in range(0, len(text), _NAME_WIDTH)] or [""]


def _box_row(row: Sequence[list[str]], widths: Sequence[int]) -> str:
    height = max(map(len, row))
    lines = []
    for number in range(height):
        parts = [cell[number] if number < len(cell) else "" for cell in row]
        lines.append(
            "│ "
            + " │ ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
            + " │"
        )
    return "\n".join(lines)
