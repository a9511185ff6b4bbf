"""Print the kernels, busy time and gaps in rocprofv3 traces.

    python 04_busy_time.py FOLDER_OR_FILE...

The script reads <name>_kernel_trace.csv files, which `rocprofv3 --kernel-trace
--output-format csv` writes. If you pass a folder, the script reads all of these files
in the folder. For each file and GPU, the script prints these values:

- the largest kernels
- the busy time, when at least one kernel runs (the union)
- the idle time, grouped by gap length

Kernels with nccl or rccl in their name are collectives. Collective time includes
waiting for other ranks, so the script also prints this time separately.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd

GAPS = [1, 10, 100, 1000, float("inf")]
"""Boundaries between gap length groups, in microseconds."""


def busy_ns(kernels: pd.DataFrame) -> int:
    """Return the total time during which at least one kernel runs. `kernels` is sorted
    by start time.
    """
    if kernels.empty:
        return 0
    start, end = kernels["Start_Timestamp"], kernels["End_Timestamp"]
    seen = end.cummax().shift(fill_value=start.iloc[0])
    return (end - start.clip(lower=seen)).clip(lower=0).sum()


def report(name: str, kernels: pd.DataFrame) -> None:
    """Print the kernels, busy time and gaps of one GPU in one file."""
    start, end = kernels["Start_Timestamp"], kernels["End_Timestamp"]
    kernels = kernels.assign(us=(end - start) / 1000)
    span_ns = end.max() - start.min()
    any_ns = busy_ns(kernels)
    is_collective = kernels["Kernel_Name"].str.contains(
        "nccl|rccl", flags=re.IGNORECASE
    )
    alone_ns = any_ns - busy_ns(kernels[~is_collective])
    print(f"\n{name}: {len(kernels):,} kernels in {span_ns / 1e6:.1f} ms")
    print(
        f"busy {100 * any_ns / span_ns:.1f}%, of which only collectives "
        f"{100 * alone_ns / span_ns:.1f}%"
    )

    table = kernels.groupby("Kernel_Name")["us"].agg(
        ["count", "sum", "mean", "min", "max"]
    )
    table["% of span"] = 100 * table["sum"] * 1000 / span_ns
    largest = table.nlargest(8, "sum").reset_index()
    largest["Kernel_Name"] = (
        largest["Kernel_Name"].str.replace(r"^void ", "", regex=True).str[:48]
    )
    print(largest.to_string(index=False, float_format=lambda value: f"{value:.1f}"))

    gaps_us = (start - end.cummax().shift(fill_value=start.iloc[0])) / 1000
    for low, high in pairwise(GAPS):
        some = gaps_us[(gaps_us >= low) & (gaps_us < high)]
        print(
            f"gaps of {low} to {high} µs: {len(some):,}, "
            f"{100 * some.sum() * 1000 / span_ns:.1f}% of the time"
        )


def main() -> None:
    given = [Path(word) for word in sys.argv[1:]]
    files = [
        file
        for path in given
        for file in (
            sorted(path.rglob("*kernel_trace.csv")) if path.is_dir() else [path]
        )
    ]
    if not files:
        sys.exit(
            f"usage: python {sys.argv[0]} FOLDER_OR_FILE...; found no "
            "*_kernel_trace.csv"
        )
    for file in files:
        trace = pd.read_csv(file).sort_values("Start_Timestamp")
        for device, kernels in trace.groupby("Agent_Id"):
            report(f"{file.name}, {device}", kernels)


if __name__ == "__main__":
    main()
