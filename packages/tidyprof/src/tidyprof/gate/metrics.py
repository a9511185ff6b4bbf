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
    - unit: the unit in a report.
    """

    column: str
    words: str
    unit: str = "ms"


METRICS = {
    "step": Metric("", "Mean step"),
    "memory": Metric("gpu_peak_bytes", "Peak of PyTorch's memory on a GPU", "MiB"),
    "host-memory": Metric("resident_bytes", "Largest resident memory of a process", "MiB"),
    **{
        part: Metric(JOB, f"Time in {part}", "s")
        for part in ("startup", "training", "validation", "checkpoints", "shutdown")
    },
}
"""A mapping from each value of `--metric` to its metric. Without a GPU, `memory` means
`host-memory`.
"""
