"""The metrics that the gate can judge.

This module imports no part of tidyprof, because the command line lists the metrics before it
reads anything.
"""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A column of the times files ("" for steps), what a report calls its value, and the
    quantile (0 to 1) to judge; None for the mean.
    """

    column: str
    words: str
    quantile: float | None = None


METRICS = {
    "step": Metric("", "Mean step"),
    "latency": Metric("latency_ms", "Mean latency of a request"),
    "latency-p99": Metric("latency_ms", "99th percentile of the latency", 0.99),
    "ttft": Metric("ttft_ms", "Mean time to the first token"),
    "ttft-p99": Metric("ttft_ms", "99th percentile of the time to the first token", 0.99),
}
"""Value of `--metric` -> the metric."""
