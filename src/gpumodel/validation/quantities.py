"""What the model says where something was published: kernels of a step, and figures of played runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import median

import numpy as np
import pandas as pd

from cifar_train.config import TrainConfig
from gpumodel.devices import device
from gpumodel.kernels import duration_ns, launches_of
from gpumodel.kernels.matrix_products import product
from gpumodel.play.waits import GATHER, SCATTER
from gpumodel.recording.steps import operators_of_step
from gpumodel.run import RankRun, Run
from gpumodel.simulation import simulate
from gpumodel.workload import ShardedStep, Training

STEPS = 21
"""Steps of AMD's single-process run: its loop runs max_steps + 1 times."""

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
        (operator.name, launch.name, duration_ns(launch, target)[0], launch.flops if launch.matrix_cores else 0.0)
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
    return float(step_kernels("winograd")["duration_ns"].sum() / step_kernels("implicit-gemm")["duration_ns"].sum())


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
    steps = rank.annotations[rank.annotations["name"].str.startswith("ProfilerStep#")].set_index("step")
    if steps.empty:
        groups = rank.annotations.dropna(subset=["step"]).assign(
            end=lambda rows: rows["start_ns"] + rows["duration_ns"]
        )
        return groups.groupby("step").agg(start=("start_ns", "min"), end=("end", "max"))
    return pd.DataFrame({"start": steps["start_ns"], "end": steps["start_ns"] + steps["duration_ns"]})


def _window(rank: RankRun) -> tuple[int, int]:
    spans = _step_spans(rank).loc[list(PROFILED_STEPS)]
    return int(spans["start"].min()), int(spans["end"].max())


def _step_ms(rank: RankRun) -> float:
    start, end = _window(rank)
    return (end - start) / 1e6 / len(PROFILED_STEPS)


def _busy_ms(rank: RankRun, kinds: tuple[str, ...]) -> float:
    """Union of the device work of these kinds in the profiled steps, in ms per step."""
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
    """Mean over these collectives of the shortest duration on any rank, of the layers or of the outer unit."""

    def shortest_ms() -> float:
        tables = [rank.device_work[rank.device_work["collective"] == collective] for rank in _sharded().ranks]
        shortest = np.min([table["duration_ns"] for table in tables], axis=0)
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
