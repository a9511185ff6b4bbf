"""Batched transforms are at least 5 times as fast as transforms of single images.

Run with: python -m pytest benchmarks/bench_data.py

Both versions run in the main process and alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from cifar_train.config import TrainConfig
from cifar_train.data.loaders import build_loaders

BATCH_SIZES = (32, 256)
MIN_RATIO = 5


def next_batch_function(batch_size: int, batched: bool) -> Callable[[], None]:
    """Return a function that repeatedly prepares one training batch."""
    config = TrainConfig(
        data="synthetic",
        batch_size=batch_size,
        num_workers=0,
        batched_transforms=batched,
        max_epochs=1000,
    )
    loaders = build_loaders(config, "synthetic", 0, 1, "cpu")
    batches = iter(loaders.train)

    def next_batch() -> None:
        nonlocal batches
        try:
            images, _ = next(batches)
        except StopIteration:
            batches = iter(loaders.train)
            images, _ = next(batches)
        if loaders.transform_batch is not None:
            loaders.transform_batch(images)

    return next_batch


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_batched_is_five_times_as_fast(batch_size, record_property):
    ways = {batched: next_batch_function(batch_size, batched) for batched in (False, True)}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(3 + 20):
        for batched, next_batch in ways.items():
            begin = time.perf_counter()
            for _ in range(10 if batched else 1):
                next_batch()
            if turn >= 3:
                seconds[batched].append((time.perf_counter() - begin) / (10 if batched else 1))
    ratio = statistics.median(seconds[False]) / statistics.median(seconds[True])
    record_property("ratio", ratio)
    print(f"batch {batch_size}: batched transforms are {ratio:.1f} times as fast")
    assert ratio >= MIN_RATIO
