"""The model against published measurements: what it was fitted on, what it was not, and where it fails.

`rows()` compares everything, `clause()` says what of it figures carry in their corner (see gpumodel.simulation).
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from rich.table import Table

from gpumodel.validation.quantities import PROFILED_STEPS, STEPS, quantity, step_kernels

CALLS_BAR = 0.10
"""Largest relative error of calls per step of the published top kernels."""

AVERAGES_BAR = 0.30
"""Largest median of the relative errors of their average durations."""

TOP = 12
WANTED_IN_TOP = 7
"""So many of the published top nine must be among the modelled top twelve by total time."""

CATEGORY_BAR = 0.30
"""Largest relative error of kernel time by operator in the 4-rank trace."""


TABLE_BEGINS, TABLE_ENDS = "<!-- validation -->", "<!-- end of validation -->"
"""Where a page has the table of all comparisons."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    published -- None where nobody has measured it. error -- modelled / published - 1, or None.
    bar       -- what |error| may be, None where the figure is only reported.
    origin    -- "fitted" or "held out". source -- key of the sources in data/published.toml, or "".
    missed_because -- why the bar is known to be missed, or "".
    """

    quantity: str
    published: float | None
    modelled: float
    unit: str
    bar: float | None
    origin: str
    source: str = ""
    missed_because: str = ""

    @property
    def error(self) -> float | None:
        """Relative error of the model."""
        return self.modelled / self.published - 1 if self.published else None

    @property
    def missed(self) -> bool:
        """Whether a bar is set and not met."""
        return self.bar is not None and (self.error is None or abs(self.error) > self.bar)


@cache
def published() -> dict[str, Any]:
    """The published figures and their sources."""
    return tomllib.loads((files("gpumodel") / "data" / "published.toml").read_text())


def rows() -> list[Row]:
    """All comparisons: kernels of the single process, categories of the 4-rank trace, single figures."""
    return [*kernel_rows(), *category_rows(), *figure_rows()]


def kernel_rows() -> list[Row]:
    """The single-process run against AMD's rocprofv3 statistics, kernel by kernel."""
    step = step_kernels("implicit-gemm")
    totals = step.groupby("name")["duration_ns"].sum().nlargest(TOP)
    found, calls, averages, errors = 0, [], [], []
    for kernel in published()["kernels"]:
        mine = step[step["name"].str.contains(kernel["pattern"], regex=False)]
        found += totals.index.str.contains(kernel["pattern"], regex=False).any()
        label, average = kernel["label"], float(mine["duration_ns"].mean())
        calls.append(
            Row(label, kernel["calls"] / STEPS, len(mine), "/step", CALLS_BAR, kernel["calls_origin"], "rocprofv3")
        )
        averages.append(Row(label, kernel["average_ns"] / 1e3, average / 1e3, "us", None, "held out", "rocprofv3"))
        errors.append(abs(averages[-1].error or 0.0))
    top = Row(f"top 9 in our top {TOP}", 9.0, float(found), "", 1 - WANTED_IN_TOP / 9 + 1e-9, "held out")
    spread = Row("median error of averages", 1.0, 1.0 + median(errors), "x", AVERAGES_BAR, "held out", "rocprofv3")
    return [*calls, *averages, top, spread]


def category_rows() -> list[Row]:
    """Kernel time per step by operator against the 4-rank trace."""
    step = step_kernels("winograd")
    return [
        Row(
            category["label"],
            category["total_ms"] / len(PROFILED_STEPS),
            _time_of(step, category["operators"]),
            "ms",
            CATEGORY_BAR,
            "fitted",
            "tracelens",
        )
        for category in published()["categories"]
    ]


def _time_of(step: pd.DataFrame, operators: list[str]) -> float:
    return float(step.loc[step["operator"].isin(operators), "duration_ns"].sum()) / 1e6


def figure_rows(only: Collection[str] | None = None) -> list[Row]:
    """Single figures, most of them from played runs; `only` takes those with these names."""
    return [
        Row(
            figure["label"],
            figure.get("value"),
            quantity(figure["name"]),
            figure["unit"],
            figure.get("bar"),
            figure["origin"],
            figure.get("source", ""),
            figure.get("missed_because", ""),
        )
        for figure in published()["figures"]
        if only is None or figure["name"] in only
    ]


def table(compared: Iterable[Row]) -> Table:
    """The comparison for a terminal of 80 columns."""
    title = "gpumodel against published measurements (MI300X unless stated)"
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name, side in (
        ("quantity", "left"),
        ("published", "right"),
        ("modelled", "right"),
        ("unit", "left"),
        ("error", "right"),
        ("bar", "right"),
        ("origin", "left"),
        ("", "left"),
    ):
        shown.add_column(name, justify=side, no_wrap=True)
    for row in compared:
        shown.add_row(
            row.quantity,
            "-" if row.published is None else f"{row.published:.5g}",
            f"{row.modelled:.5g}",
            row.unit,
            "-" if row.error is None else f"{row.error:+.0%}",
            "-" if row.bar is None else f"{row.bar:.0%}",
            row.origin,
            "missed" if row.missed else "",
            style="red" if row.missed else None,
        )
    return shown


def markdown(compared: Iterable[Row]) -> str:
    """The comparison as a table for a page."""
    lines = [
        "| quantity | published | modelled | unit | error | bar | origin |",
        "| --- | --: | --: | --- | --: | --: | --- |",
    ]
    for row in compared:
        published = "-" if row.published is None else f"{row.published:.4g}"
        error = "-" if row.error is None else f"{100 * row.error:+.0f} %"
        bar = "-" if row.bar is None else f"{100 * row.bar:.0f} %"
        cells = (row.quantity, published, f"{row.modelled:.4g}", row.unit, error, bar, row.origin)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(compared: Iterable[Row], page: Path) -> None:
    """Replace the table in a page, between the two comments that mark its place."""
    head, rest = page.read_text(encoding="utf-8").split(TABLE_BEGINS)
    _, tail = rest.split(TABLE_ENDS)
    page.write_text(f"{head}{TABLE_BEGINS}\n{markdown(compared)}\n{TABLE_ENDS}{tail}", encoding="utf-8")


def clause() -> str:
    """What to say about the model's error in one clause, computed anew from figures that were held out."""
    compared = (*kernel_rows(), *figure_rows(only=("single_kernel_ms", "four_collective_ms")))
    errors = {row.quantity: row.error or 0.0 for row in compared}
    return (
        f"error against AMD's runs: kernel time {_percent(errors['kernel time, 21 steps'])}, single kernels "
        f"±{abs(100 * errors['median error of averages']):.0f} %, collectives "
        f"{_percent(errors['4 ranks: collectives'])}"
    )


def _percent(error: float) -> str:
    return f"{100 * error:+.0f} %"
