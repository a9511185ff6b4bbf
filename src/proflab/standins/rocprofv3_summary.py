"""The tables that `rocprofv3 --summary` prints at the end.

Columns: github.com/ROCm/rocm-systems, projects/rocprofiler-sdk, source/lib/output/generateStats.cpp.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.rocprofv3.records import Records

DIVISORS = {"sec": 1e9, "msec": 1e6, "usec": 1e3, "nsec": 1.0}


def print_summaries(table: pd.DataFrame, options: argparse.Namespace, prefix: Path) -> None:
    """Print or write the tables that were asked for: of everything, per domain, per group of domains.

    table -- from `events_of`; prefix -- of the files, where the tables go into one.
    """
    parts = []
    if options.summary_per_domain:
        parts += [(domain, rows) for domain, rows in table.groupby("domain", sort=True)]
    for pattern in options.summary_groups or ():
        matching = table[table["domain"].map(lambda domain, pattern=pattern: bool(re.search(pattern, domain)))]
        parts.append((pattern, matching))
    if options.summary:
        parts.append(("ROCPROFV3", table))
    text = "".join(_rendered(title, rows, options.summary_units or "nsec") for title, rows in parts if len(rows))
    where = (options.summary_output_file or "stderr").lower()
    if where in ("stdout", "stderr"):
        print(text, end="", file=getattr(sys, where))
    elif text:
        path = prefix.parent / f"{prefix.name}_{options.summary_output_file}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


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


def _rendered(title: str, events: pd.DataFrame, unit: str) -> str:
    grouped = events.groupby(["name", "domain"], sort=False)["duration_ns"]
    rows = grouped.agg(["size", "sum", "mean", "min", "max", "std"]).fillna(0.0).reset_index()
    rows = rows.sort_values("sum", ascending=False, kind="stable")
    total, scale = rows["sum"].sum(), DIVISORS[unit]
    shown = pd.DataFrame(
        {
            "NAME": rows["name"],
            "DOMAIN": rows["domain"],
            "CALLS": rows["size"].astype(str),
            f"DURATION ({unit})": rows["sum"].map(lambda value: _number(value / scale, unit)),
            f"AVERAGE ({unit})": rows["mean"].map(lambda value: f"{value / scale:.3e}"),
            "PERCENT (INC)": (100 * rows["sum"] / total).map("{:.6f}".format),
            f"MIN ({unit})": rows["min"].map(lambda value: _number(value / scale, unit)),
            f"MAX ({unit})": rows["max"].map(lambda value: _number(value / scale, unit)),
            "STDDEV": rows["std"].map(lambda value: f"{value / scale:.3e}"),
        }
    )
    return f"\n{title} SUMMARY:\n\n{_boxed(shown)}\n"


def _number(value: float, unit: str) -> str:
    return f"{value:.0f}" if unit == "nsec" else f"{value:.6g}"


def _boxed(table: pd.DataFrame) -> str:
    widths = [max(len(column), int(table[column].str.len().max())) for column in table.columns]
    line = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    head = "| " + " | ".join(name.center(width) for name, width in zip(table.columns, widths, strict=True)) + " |"
    body = [
        "| " + " | ".join(_cell(i, text, width) for i, (text, width) in enumerate(zip(row, widths, strict=True))) + " |"
        for row in table.itertuples(index=False)
    ]
    return "\n".join([line, head, line, *body, line])


def _cell(column: int, text: str, width: int) -> str:
    return text.ljust(width) if column < 2 else text.rjust(width)
