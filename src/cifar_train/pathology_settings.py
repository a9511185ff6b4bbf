"""The zoo: every pathology, its settings and its size. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cifar_train.config import TrainConfig

SECONDS_PER_SLOW_IMAGE = 0.005
"""slow-loader: read latency of one image, as from a busy shared file system."""

SKEW_SECONDS = 0.05
"""rank-skew: how much longer the last rank prepares each step."""

TINY_BATCH = 4
"""tiny-batch: images per rank and step."""


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


@dataclass(frozen=True)
class Pathology:
    """A known fault: all that anybody needs to know about it, but the code that changes a model or a trainer.

    settings  -- what it changes in the configuration
    model     -- name of the function in `cifar_train.pathologies` that changes the model
    trainer   -- name of the function there that changes the finished trainer
    operators -- whether its step has other operators than a healthy one with its settings
    recording -- how scripts/dev/make_recordings.py plays it (model, ranks); None where no recording is shipped
    """

    name: str
    settings: Callable[[TrainConfig], TrainConfig] | None = None
    model: str = ""
    trainer: str = ""
    operators: bool = True
    recording: tuple[str, int] | None = None


RESNET = ("resnet", 1)

ZOO = {
    one.name: one
    for one in (
        Pathology("slow-loader", _no_workers, trainer="slow_loader", operators=False, recording=RESNET),
        Pathology("sync-every-step", trainer="sync_every_step", recording=RESNET),
        Pathology("tiny-batch", tiny_batch, operators=False, recording=RESNET),
        Pathology("many-small-kernels", model="many_small_kernels", recording=RESNET),
        Pathology("unpinned-copies", trainer="unpinned_copies", recording=RESNET),
        Pathology("wrong-layout", model="wrong_layout", recording=RESNET),
        Pathology("recompile", model="recompile", trainer="relabel_every_step", recording=("vit", 1)),
        Pathology("rank-skew", trainer="rank_skew", operators=False, recording=("resnet", 4)),
        Pathology("no-warmup", no_warmup, operators=False, recording=RESNET),
        Pathology("memory-growth", trainer="memory_growth", recording=RESNET),
        Pathology("broken-grad", model="broken_grad", recording=RESNET),
    )
}
"""Every pathology by its name: to add one, add its line here and its function."""


def apply_to_config(config: TrainConfig) -> TrainConfig:
    """The configuration with its own pathology's settings in place."""
    settings = ZOO[config.pathology].settings if config.pathology else None
    return settings(config) if settings else config
