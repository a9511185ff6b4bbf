"""The metrics that the gate can judge.

This module doesn't import other parts of tidyprof, because the command line lists the metrics
before it reads any files.
"""

from __future__ import annotations

STEP = "step"

METRICS = {
    STEP: "Mean step",
    **{
        part: f"Time in {part}"
        for part in ("startup", "training", "validation", "checkpoints", "shutdown")
    },
}
"""A mapping from each value of `--metric` to its name in a report. All metrics except `step` are
parts of the job.
"""
