"""When the DataLoader has a batch ready."""

from __future__ import annotations

from dataclasses import dataclass, field

from cifar_train.config import TrainConfig
from cifar_train.pathology_settings import SECONDS_PER_SLOW_IMAGE

IMAGE_NS = 140_000
"""Loading and transforming one image in one worker. Derived, as an upper bound: one MI300X takes 12,787 images/s
from two workers without waiting (AMD's listing, see costs.UNWATCHED), so an image costs less than 156 us."""

BATCHED_IMAGE_NS = 7_000
"""Without per-image transforms: a twentieth, the ratio measured on a CPU with this trainer's two ways."""

NEXT_NS = 90_000
"""Taking a ready batch from the queue: `enumerate(DataLoader)` in the 4-rank trace of AMD's TraceLens example."""

PREFETCH = 2
"""Batches asked for ahead by each worker (https://docs.pytorch.org/docs/stable/data.html, prefetch_factor)."""

START_NS = 50_000_000
"""Fork of the workers until they work: an assumption; it is over before the first step's set-up."""


@dataclass
class Loader:
    """The loader of one rank. Batches are made in turn by `num_workers` workers, or by the trainer itself.

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
        """How long the trainer, asking at `now`, waits for the next batch of that many images."""
        slow = round(images * SECONDS_PER_SLOW_IMAGE * 1e9) if self.config.pathology == "slow-loader" else 0
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
