"""An in-order stream of a device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


def in_order(ready: Times, duration: Times, free: Times) -> Times:
    """Start times [ranks, items] in ns of work that runs one after the other.

    ready, duration -- [ranks, items]: earliest start and duration of each item, in the order of launch.
    free            -- [ranks]: when each rank's stream has finished what came before.
    An item starts when it is ready and the one before has ended; no time passes between two that wait
    (in public ROCm traces the gap between queued kernels is 0 at the median).
    """
    before = np.cumsum(duration, axis=1) - duration
    latest = np.maximum.accumulate(np.maximum(ready - before, free[:, None]), axis=1)
    return latest + before
