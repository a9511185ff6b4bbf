"""The tables of rocprofv3's `--stats`, with its number formats (class stats_formatter of rocprofiler-sdk)."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

STATISTICS_HEADER = ("Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage", "MinNs", "MaxNs", "StdDev")
"""StdDev is the sample's deviation (0 for a single call); Percentage is of this file's total, 0 to 100."""


def statistics_rows(names: pd.Series, durations_ns: pd.Series) -> list[list[str]]:
    """Cells of a table with a row per name, largest total first, formatted except for the name's quotes."""
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
    """Cells of domain_stats: the same columns with a row per domain that has records."""
    present = {domain: values for domain, values in durations_of_domain.items() if len(values)}
    if not present:
        return []
    names = pd.Series([domain for domain, values in present.items() for _ in range(len(values))])
    return statistics_rows(names, pd.concat(list(present.values()), ignore_index=True))


def decimal(value: float) -> str:
    """Six places from 1 upwards, scientific with eight below."""
    return f"{value:.6f}" if value >= 1 else f"{value:.8e}"


def percentage(value: float) -> str:
    """Two places from 1 upwards, four from 0.01, scientific with three below."""
    if value >= 1:
        return f"{value:.2f}"
    return f"{value:.4f}" if value >= 0.01 else f"{value:.3e}"
