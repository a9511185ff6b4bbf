"""The pathologies' settings: those that change no more than the configuration, and the sizes of the others.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cifar_train.config import TrainConfig

SECONDS_PER_SLOW_IMAGE = 0.005
"""slow-loader: read latency of one image, as from a busy shared file system."""

SKEW_SECONDS = 0.05
"""rank-skew: how much longer the last rank prepares each step."""

TINY_BATCH = 4
"""tiny-batch: images per rank and step."""


def apply_to_config(config: TrainConfig) -> TrainConfig:
    """The configuration with its own pathology's settings in place."""
    return IN_CONFIG[config.pathology](config) if config.pathology in IN_CONFIG else config


def tiny_batch(config: TrainConfig) -> TrainConfig:
    """Far too few images in a step.

    Symptom: low images/s although the device seems busy. Seen in: kernel statistics
    (as many launches per step as ever, each a few microseconds long) and launch-bound
    idle time. Truth: the batch holds 4 images, so every kernel is too small to fill
    the device and the fixed cost of a launch dominates.
    """
    return config.replace(batch_size=TINY_BATCH)


def no_warmup(config: TrainConfig) -> TrainConfig:
    """Measures and records from the very first step.

    Symptom: a slow mean, a huge spread, set-up calls in the trace. Seen in: step times
    in order (the first stands out) and the first profiled step. Truth: warm-up steps
    are 0 and the profiler neither waits nor warms up.
    """
    changes: dict[str, Any] = {"warmup_steps": 0}
    if config.torch_profile:
        active = min(config.profile_active or 3, config.max_steps)
        changes |= {"profile_wait": 0, "profile_warmup": 0, "profile_active": active, "profile_repeat": 1}
    return config.replace(**changes)


def _no_workers(config: TrainConfig) -> TrainConfig:
    """slow-loader: load in the training process."""
    return config.replace(num_workers=0)


IN_CONFIG: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "tiny-batch": tiny_batch,
    "no-warmup": no_warmup,
    "slow-loader": _no_workers,
}
