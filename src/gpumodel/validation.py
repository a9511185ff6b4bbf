"""The model against published measurements: what it was fitted on, what it was not, and where it
fails.

`rows()` compares everything. `clause()` is the short form that figures carry in their corner (see
gpumodel.devices). A quantity is the model's value for something that was published: for the kernels
of a step, and for figures of played runs. The bars are this course's own choice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from cifar_train.config import TrainConfig
from gpumodel.devices import device
from gpumodel.kernels import duration_ns, launches_of
from gpumodel.kernels.matrix_products import product
from gpumodel.play.waits import GATHER, SCATTER
from gpumodel.recording.steps import operators_of_step
from gpumodel.run import RankRun, Run
from gpumodel.simulation import simulate
from gpumodel.workload import ShardedStep, Training

CALLS_BAR = 0.10
"""Largest relative error allowed in the calls per step of the published top kernels."""

AVERAGES_BAR = 0.30
"""Largest median allowed of the relative errors of their average durations."""

TOP = 12
WANTED_IN_TOP = 7
"""By total time, WANTED_IN_TOP of the published top nine kernels must be among the modelled top
TOP.
"""

CATEGORY_BAR = 0.30
"""Largest relative error allowed in the kernel time of an operator in the 4-rank trace."""


TABLE_BEGINS, TABLE_ENDS = "<!-- validation -->", "<!-- end of validation -->"
"""Where a page has the table of all comparisons."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    published -- None where nobody has measured it. error -- modelled / published - 1, or None.
    bar       -- largest |error| allowed, None where the figure is only reported.
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
    """All comparisons: kernels of the single process, categories of the 4-rank trace, single
    figures.
    """
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
            Row(
                label,
                kernel["calls"] / STEPS,
                len(mine),
                "/step",
                CALLS_BAR,
                kernel["calls_origin"],
                "rocprofv3",
            )
        )
        averages.append(
            Row(
                label,
                kernel["average_ns"] / 1e3,
                average / 1e3,
                "us",
                None,
                "held out",
                "rocprofv3",
            )
        )
        errors.append(abs(averages[-1].error or 0.0))
    # A row's error is modelled / published - 1. So a count gets the bar 1 - 7/9, with room for
    # rounding, and a median of errors stands as 1 + median beside 1.
    top = Row(
        f"top 9 in our top {TOP}", 9.0, float(found), "", 1 - WANTED_IN_TOP / 9 + 1e-9, "held out"
    )
    spread = Row(
        "median error of averages",
        1.0,
        1.0 + median(errors),
        "x",
        AVERAGES_BAR,
        "held out",
        "rocprofv3",
    )
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
    page.write_text(
        f"{head}{TABLE_BEGINS}\n{markdown(compared)}\n{TABLE_ENDS}{tail}", encoding="utf-8"
    )


def clause() -> str:
    """The model's error in one clause, computed anew from figures that were not used for the fit.

    It stands below every modelled figure, so it is short: what it means is in docs/gpumodel.md.
    """
    compared = (*kernel_rows(), *figure_rows(only=("single_kernel_ms", "four_collective_ms")))
    errors = {row.quantity: row.error or 0.0 for row in compared}
    worst = max(
        (row for row in compared if row.unit == "us"), key=lambda row: abs(row.error or 0.0)
    )
    return (
        f"error: kernel time {_percent(errors['kernel time, 21 steps'])}, one kernel"
        f" ±{abs(100 * errors['median error of averages']):.0f} % (worst"
        f" {_percent(worst.error or 0.0)}), collectives {_percent(errors['4 ranks: collectives'])}"
    )


def _percent(error: float) -> str:
    return f"{100 * error:+.0f} %"


STEPS = 21
"""Steps of AMD's single-process run (amd/HPCTrainingExamples, MLExamples/PyTorch_Profiling): its
loop runs max_steps + 1 times.
"""

SETTLED_STEPS = 6
"""Steps before this one are warm-up in the published throughput, and are left out here too."""

PROFILED_STEPS = (9, 10, 11)
"""Steps that the 4-rank recording holds."""


@cache
def step_kernels(solutions: str, model: str = "resnet") -> pd.DataFrame:
    """Launches of one step on one MI300X, collectives left out.

    Columns: operator, name, duration_ns (mean, without jitter), flops.
    """
    target = device("MI300X")
    operators = operators_of_step(TrainConfig(model=model))
    parents = {operator.parent for operator in operators}
    rows = [
        (
            operator.name,
            launch.name,
            duration_ns(launch, target)[0],
            launch.flops if launch.matrix_cores else 0.0,
        )
        for operator in operators
        if operator.index not in parents
        for launch in launches_of(operator, target, solutions)
        if launch.kind != "collective"
    ]
    return pd.DataFrame(rows, columns=["operator", "name", "duration_ns", "flops"])


@cache
def played(ranks: int, solutions: str, profiler: str, model: str = "resnet") -> Run:
    """A played run of the published configuration: batch 256, automixed, 21 steps."""
    config = TrainConfig(model=model, max_steps=STEPS)
    return simulate(Training(config=config, ranks=ranks, solutions=solutions, profiler=profiler))


def quantity(name: str) -> float:
    """The modelled value of a figure of data/published.toml, in its unit."""
    return _QUANTITIES[name]()


def _single_kernel_ms() -> float:
    return float(step_kernels("implicit-gemm")["duration_ns"].sum()) * STEPS / 1e6


def _winograd_ratio() -> float:
    return float(
        step_kernels("winograd")["duration_ns"].sum()
        / step_kernels("implicit-gemm")["duration_ns"].sum()
    )


def _gflop_per_step() -> float:
    return float(step_kernels("implicit-gemm")["flops"].sum()) / 1e9


def _images(model: str, ranks: int = 1) -> Callable[[], float]:
    """Median images per second and device that rank 0 prints, after warm-up."""

    def per_second() -> float:
        run = played(ranks, "implicit-gemm", "none", model)
        return float(median(run.ranks[0].images_per_second[SETTLED_STEPS:]))

    return per_second


def _single_idle_share() -> float:
    run = played(1, "implicit-gemm", "none")
    spans = [_step_spans(rank).loc[SETTLED_STEPS:] for rank in run.ranks]
    wall = sum(float((span["end"] - span["start"]).sum()) for span in spans)
    work = run.ranks[0].device_work
    busy = float(work.loc[work["step"] >= SETTLED_STEPS, "duration_ns"].sum())
    return 100 * (1 - busy / wall)


def _four(measure: Callable[[RankRun], float]) -> Callable[[], float]:
    """Mean over the ranks of the profiled 4-rank run."""

    def over_ranks() -> float:
        ranks = played(4, "winograd", "torch").ranks
        return sum(measure(rank) for rank in ranks) / len(ranks)

    return over_ranks


def _step_spans(rank: RankRun) -> pd.DataFrame:
    """Start and end of each step's range on the host, by step."""
    steps = rank.annotations[rank.annotations["name"].str.startswith("ProfilerStep#")].set_index(
        "step"
    )
    if steps.empty:
        groups = rank.annotations.dropna(subset=["step"]).assign(
            end=lambda rows: rows["start_ns"] + rows["duration_ns"]
        )
        return groups.groupby("step").agg(start=("start_ns", "min"), end=("end", "max"))
    return pd.DataFrame(
        {"start": steps["start_ns"], "end": steps["start_ns"] + steps["duration_ns"]}
    )


def _window(rank: RankRun) -> tuple[int, int]:
    spans = _step_spans(rank).loc[list(PROFILED_STEPS)]
    return int(spans["start"].min()), int(spans["end"].max())


def _step_ms(rank: RankRun) -> float:
    start, end = _window(rank)
    return (end - start) / 1e6 / len(PROFILED_STEPS)


def _busy_ms(rank: RankRun, kinds: tuple[str, ...]) -> float:
    """Time that device work of these kinds covers in the profiled steps, in ms per step; where two
    overlap they count once.
    """
    from tidyprof.tables.intervals import union_length

    work = rank.device_work[rank.device_work["kind"].isin(kinds)]
    start, end = _window(rank)
    begins = work["start_ns"].clip(start, end).to_numpy()
    ends = (work["start_ns"] + work["duration_ns"]).clip(start, end).to_numpy()
    return union_length(begins, ends) / 1e6 / len(PROFILED_STEPS)


def _collective_ms(rank: RankRun) -> float:
    return _busy_ms(rank, ("collective",))


def _compute_ms(rank: RankRun) -> float:
    return _busy_ms(rank, ("kernel", "fill"))


def _exposed_ms(rank: RankRun) -> float:
    return _busy_ms(rank, ("kernel", "fill", "collective")) - _compute_ms(rank)


def _idle_share(rank: RankRun) -> float:
    return 100 * (1 - _busy_ms(rank, ("kernel", "fill", "collective", "copy")) / _step_ms(rank))


@cache
def _sharded() -> Run:
    return simulate(ShardedStep())


def _transfer_ms(collective: str, outer: bool) -> Callable[[], float]:
    """Mean over these collectives, of the layers or of the outer unit, of the shortest duration on
    any rank: the rank that comes last waits for nobody.
    """

    def shortest_ms() -> float:
        tables = [
            rank.device_work[rank.device_work["collective"] == collective]
            for rank in _sharded().ranks
        ]
        shortest = np.min([table["duration_ns"] for table in tables], axis=0)
        # The outer unit, embedding and head, moves the most bytes.
        moved = tables[0]["bytes_read"].to_numpy()
        return float(shortest[(moved == moved.max()) == outer].mean()) / 1e6

    return shortest_ms


def _sharded_compute_ms() -> float:
    work = _sharded().ranks[0].device_work
    return float(work.loc[work["kind"] == "kernel", "duration_ns"].sum()) / 1e6


def _matrix_ms(rows: int, inner: int, columns: int) -> Callable[[], float]:
    def kernel_ms() -> float:
        target = device("MI250X")
        launch = product(rows, columns, inner, 1, "float32", "Ailk_Bljk", target)
        return duration_ns(launch, target)[0] / 1e6

    return kernel_ms


_QUANTITIES: dict[str, Callable[[], float]] = {
    "single_kernel_ms": _single_kernel_ms,
    "winograd_ratio": _winograd_ratio,
    "gflop_per_step": _gflop_per_step,
    "four_step_ms": _four(_step_ms),
    "four_compute_ms": _four(_compute_ms),
    "four_collective_ms": _four(_collective_ms),
    "four_exposed_ms": _four(_exposed_ms),
    "four_idle_share": _four(_idle_share),
    "single_images": _images("resnet"),
    "single_idle_share": _single_idle_share,
    "eight_images": _images("resnet", ranks=8),
    "vit_images": _images("vit"),
    "swin_images": _images("swinv2"),
    "sharded_compute_ms": _sharded_compute_ms,
    "layer_gather_ms": _transfer_ms(GATHER, outer=False),
    "outer_gather_ms": _transfer_ms(GATHER, outer=True),
    "layer_scatter_ms": _transfer_ms(SCATTER, outer=False),
    "outer_scatter_ms": _transfer_ms(SCATTER, outer=True),
    "matrix_small_ms": _matrix_ms(50000, 10000, 800),
    "matrix_large_ms": _matrix_ms(100000, 50000, 800),
}
