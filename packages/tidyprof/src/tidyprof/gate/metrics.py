"""The metrics that the gate can judge.

This module doesn't import other parts of tidyprof, because the command line lists the metrics
before it reads any files.
"""

from __future__ import annotations

from typing import NamedTuple

JOB = "job_s"
"""The key in run.json that contains the time of each part of a job in seconds."""

SCALES = {"ms": 1e6, "s": 1e9, "MiB": 2.0**20}
"""The size of each unit in a report, in ns or bytes."""


class Metric(NamedTuple):
    """One metric.

    - column: the column in the times files. The field is "" for steps and JOB for a part of the
      job.
    - words: the name of the metric in a report.
    - quantile: the quantile (0 to 1) to judge, or None to judge the mean.
    - unit: the unit in a report.
    """

    column: str
    words: str
    quantile: float | None = None
    unit: str = "ms"


METRICS = {
    "step": Metric("", "Mean step"),
    "latency": Metric("latency_ms", "Mean latency of a request"),
    "latency-p99": Metric("latency_ms", "99th percentile of the latency", 0.99),
    "ttft": Metric("ttft_ms", "Mean time to the first token"),
    "ttft-p99": Metric("ttft_ms", "99th percentile of the time to the first token", 0.99),
    "memory": Metric("gpu_peak_bytes", "Peak of PyTorch's memory on a GPU", 1, "MiB"),
    "host-memory": Metric("resident_bytes", "Largest resident memory of a process", 1, "MiB"),
    **{
        part: Metric(JOB, f"Time in {part}", unit="s")
        for part in ("startup", "training", "validation", "checkpoints", "shutdown")
    },
}
"""A mapping from each value of `--metric` to its metric. Without a GPU, `memory` means
`host-memory`.
"""
