"""The table that `rocprofv3 --summary` prints at the end.

Columns: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/lib/output/generateStats.cpp.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.rocprofv3.records import Records

DIVISORS = {"sec": 1e9, "msec": 1e6, "usec": 1e3, "nsec": 1.0}


def print_summary(events: pd.DataFrame, unit: str) -> None:
    """Print the table of all events from `events_of` on stderr, with times in `unit`."""
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
    widths = [max(len(name), int(table[name].astype(str).str.len().max())) for name in table.columns]
    lines = [list(table.columns), ["-" * width for width in widths], *table.astype(str).to_numpy().tolist()]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    print("\nROCPROFV3 SUMMARY:\n", *(f"| {line} |" for line in text), sep="\n", file=sys.stderr)


def events_of(run: Run, rank: RankRun, traces: Sequence[str]) -> pd.DataFrame:
    """name, domain and duration_ns of all that these traces record."""
    records = Records(run, rank)
    tables = {
        "kernel": ("KERNEL_DISPATCH", records.dispatches),
        "memory_copy": ("MEMORY_COPY", records.copies),
        "hip": ("HIP_API", records.calls),
        "marker": ("MARKER_API", records.markers),
        "rccl": ("RCCL_API", records.rccl_calls),
    }
    parts = [
        pd.DataFrame({"name": table["name"], "domain": domain, "duration_ns": table["end_ns"] - table["start_ns"]})
        for domain, table in (tables[trace] for trace in traces)
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["name", "domain", "duration_ns"])
