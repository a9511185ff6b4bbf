"""What a step waits for: a stream that keeps its order, other ranks in a collective, the
DataLoader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cifar_train.config import SECONDS_PER_SLOW_IMAGE, TrainConfig

Times = NDArray[np.int64]


def in_order(ready: Times, duration: Times, free: Times) -> Times:
    """Start times [ranks, items] in ns of work that runs one after the other.

    ready, duration -- [ranks, items]: earliest start and duration of each item, in the order of
                       launch.
    free            -- [ranks]: when each rank's stream has finished what came before.

    An item starts when it is ready and the one before has ended. No time passes between two items
    that wait: in public ROCm traces the median gap between queued kernels is 0.
    """
    # start - before never falls: it is `free`, or the largest ready - before so far. So no loop is
    # needed.
    before = np.cumsum(duration, axis=1) - duration
    latest = np.maximum.accumulate(np.maximum(ready - before, free[:, None]), axis=1)
    return latest + before


MEASURED_RANKS = 4
"""Ranks of the trace on which the duration of transfers was fitted (data/efficiencies.toml,
collective).
"""

EXIT_SKEW_NS = 10_000
"""In that trace ranks leave a collective within 2 to 24 us of each other; here each draws a number
from 0 to this.
"""


GATHER, SCATTER = "_allgather_base", "_reduce_scatter_base"
"""What torch calls the two collectives of FSDP."""


def transfer_factor(kind: str, ranks: int) -> float:
    """Factor by which a transfer takes longer than the measured all-reduce of the same data between
    MEASURED_RANKS.

    Each of n ranks sends (n - 1) / n times the data to gather or to scatter them, and twice that in
    an all-reduce (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). It sends
    them over its links to the n - 1 others. On a board of MI300X each pair has a link of its own,
    so only all eight use all links
    (https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html). A
    broadcast is taken to be as long as the measured one.
    """
    if kind == "broadcast":
        return 1.0
    passes = 2 if kind == "allreduce" else 1
    return passes / ranks / (2 / MEASURED_RANKS)


def meet(kind: str, entry: Times, transfer: Times, skew: Times) -> tuple[Times, Times]:
    """When each rank leaves a collective, and how long it waited for others, [ranks] in ns each.

    entry -- when each rank's kernel starts. transfer -- its transfer time without waiting. skew --
    how much later each rank leaves. In a broadcast ranks wait only for the root, rank 0.
    """
    awaited = entry[0] if kind == "broadcast" else entry.max()
    last = np.maximum(entry, awaited)
    return last + transfer.max() + skew, last - entry


IMAGE_NS = 140_000
"""Loading and transforming one image in one worker. Derived, as an upper bound: one MI300X takes
12,787 images/s from two workers without waiting (AMD's listing, see costs.UNWATCHED), so an image
costs less than 156 us.
"""

BATCHED_IMAGE_NS = 7_000
"""The same without transforms of single images: a twentieth, the ratio of this trainer's two ways,
measured on a CPU.
"""

NEXT_NS = 90_000
"""Time to take a ready batch from the queue: that of `enumerate(DataLoader)` in the 4-rank
trace.
"""

PREFETCH = 2
"""Batches asked for ahead by each worker (https://docs.pytorch.org/docs/stable/data.html,
prefetch_factor).
"""

START_NS = 50_000_000
"""From the fork of the workers until they work: an assumption. It is over before the first step's
set-up.
"""


@dataclass
class Loader:
    """The loader of one rank. `num_workers` workers make batches in turn, or the trainer itself
    makes them.

    start_ns -- when iteration begins.
    """

    config: TrainConfig
    start_ns: int
    _asked: list[int] = field(default_factory=list)
    _free: list[int] = field(default_factory=list)
    _ready: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        workers = self.config.num_workers
        self._asked = [self.start_ns] * (PREFETCH * workers)
        self._free = [self.start_ns + START_NS] * workers

    def wait_ns(self, images: int, now: int) -> int:
        """How long the trainer waits for the next batch, of this many images, if it asks at `now`;
        all times in ns.
        """
        slow = (
            round(images * SECONDS_PER_SLOW_IMAGE * 1e9)
            if self.config.pathology == "slow-loader"
            else 0
        )
        cost = images * (BATCHED_IMAGE_NS if self.config.batched_transforms else IMAGE_NS)
        if not self.config.num_workers:
            return cost + slow
        number = len(self._ready)
        worker = number % self.config.num_workers
        ready = max(self._asked[number], self._free[worker]) + cost
        self._free[worker] = ready
        self._ready.append(ready)
        # A batch that is taken makes room for one more to be asked for.
        self._asked.append(max(now, ready))
        return max(ready - now, 0) + slow
