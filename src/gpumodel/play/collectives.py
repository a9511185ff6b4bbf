"""What ranks do together: nobody leaves an all-reduce before the last one has entered."""

from __future__ import annotations

import numpy as np

from gpumodel.play.device_queue import Times

MEASURED_RANKS = 4
"""Ranks of the trace on which the duration of transfers was fitted (data/efficiencies.toml, collective)."""

EXIT_SKEW_NS = 10_000
"""Ranks leave within 2 to 24 us of each other in that trace; here each draws from 0 to this."""


def ring_factor(kind: str, ranks: int) -> float:
    """How much longer a transfer takes with `ranks` than with the measured number.

    An all-reduce by ring sends 2 (n - 1) / n times the data over each link, a broadcast all of it
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
    """
    if kind != "allreduce":
        return 1.0

    def share(number: int) -> float:
        return 2 * (number - 1) / number

    return share(ranks) / share(MEASURED_RANKS)


def meet(kind: str, entry: Times, transfer: Times, skew: Times) -> tuple[Times, Times]:
    """Ends and times of waiting [ranks] in ns of one collective.

    entry -- when each rank's kernel starts; transfer -- its bare transfer time; skew -- how late each one leaves.
    In a broadcast nobody waits for anyone but the root, rank 0.
    """
    awaited = entry[0] if kind == "broadcast" else entry.max()
    last = np.maximum(entry, awaited)
    return last + transfer.max() + skew, last - entry
