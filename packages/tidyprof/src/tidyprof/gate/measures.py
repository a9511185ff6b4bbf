"""The measures that the gate can judge. The command line needs them before anything is read, so
nothing is imported here.
"""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """A quantile (0 to 1) of a column of the times files, or of their steps (""); words -- what
    that is.
    """

    column: str
    quantile: float
    words: str


MEASURES = {
    "step": Measure("", 0.5, "a step"),
    "latency": Measure("latency_ms", 0.5, "a request"),
    "latency-p99": Measure("latency_ms", 0.99, "a request at the 99th percentile"),
    "ttft": Measure("ttft_ms", 0.5, "a first token"),
    "ttft-p99": Measure("ttft_ms", 0.99, "a first token at the 99th percentile"),
}
"""Name in `--measure` -> the measure. TTFT is the time to the first token."""
