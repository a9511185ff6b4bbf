"""The lines that the workload would have printed: its report, for the modelled run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from cifar_train.config import apply_to_config, precision_label
from gpumodel.workload import MatrixProduct

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run


def trainer_lines(run: Run) -> list[str]:
    """The workload's result as it prints it, for all ranks; the loss is left out, since the model
    does no arithmetic.
    """
    if isinstance(run.workload, MatrixProduct):
        return _product_lines(run)
    return _training_lines(run)


def _device(run: Run) -> str:
    return f"{run.device.marketing_name} (modelled)"


def _product_lines(run: Run) -> list[str]:
    product, rank = run.workload, run.ranks[0]
    flops = 2 * product.rows * product.inner * product.columns
    work = rank.device_work
    first = min(int(rank.calls["start_ns"].min()), int(work["start_ns"].min()))
    end = int((work["start_ns"] + work["duration_ns"]).max())
    each = (end - first) / product.repeat / 1e6
    return [
        f"{flops / 1e9:.2f} GFLOP on {_device(run)}: {each:.2f} ms with copies (mean of"
        f" {product.repeat})"
    ]


def _batch(run: Run) -> int:
    return apply_to_config(run.workload.config).batch_size


def _steady(run: Run, rank: RankRun) -> tuple[float, ...]:
    """Images per second of each steady step; of all steps if none is steady."""
    rates = rank.images_per_second
    return rates[run.workload.config.warmup_for(len(rates)) :] or rates


def _rate(run: Run, rank: RankRun) -> float:
    """Images over time, as the trainer computes them: the harmonic mean of the steps' rates."""
    return statistics.harmonic_mean(_steady(run, rank))


def _training_lines(run: Run) -> list[str]:
    config, first = run.workload.config, run.ranks[0]
    precision = precision_label(config.precision, "float16")
    lines = [f"{config.model}, {precision}, batch {_batch(run)}, {_device(run)}"]
    rates = first.images_per_second
    if not rates:
        return lines
    milliseconds = [1e3 * _batch(run) / rate for rate in rates]
    steady = [1e3 * _batch(run) / rate for rate in _steady(run, first)]
    lines.append(
        f"steps          {len(rates)} ({config.warmup_for(len(rates))} warm-up, reported apart)"
    )
    lines.append(f"first step     {milliseconds[0]:.1f} ms")
    lines.append(f"step           {statistics.median(steady):.1f} ms median")
    lines.append(f"images/s       {_rates_text(run)}")
    if memory := _peak_memory(run):
        lines.append(f"memory in use  at most {memory / 1e6:.0f} MB a rank")
    lines.append("loss           not modelled")
    return lines


def _rates_text(run: Run) -> str:
    rates = [_rate(run, rank) for rank in run.ranks]
    if len(rates) == 1:
        return f"{rates[0]:.1f}"
    return (
        f"{sum(rates):.1f} in all; {statistics.median(rates):.1f} a rank ({min(rates):.1f} to"
        f" {max(rates):.1f})"
    )


def _peak_memory(run: Run) -> float | None:
    peaks = [
        float(rank.counters.loc[rank.counters["name"] == "memory_used", "value"].max())
        for rank in run.ranks
        if (rank.counters["name"] == "memory_used").any()
    ]
    return max(peaks, default=None)
