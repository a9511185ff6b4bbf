"""The aten operators of one training step, recorded on shapes alone.

The trainer's own model, loss and backward pass run on meta tensors, which have shapes and no memory, so
that a step takes seconds and no GPU. Names are those of a ROCm build (aten::miopen_convolution), and the
optimizer, gradient scaling and gradient exchange are the ones that a GPU gets. The trainer is taken to be
started by a launcher (srun, torchrun), which wraps the model in DistributedDataParallel for one rank as well.
"""

from __future__ import annotations

from cifar_train.config import TrainConfig
from cifar_train.pathology_settings import ZOO, apply_to_config
from gpumodel.recording import cache
from gpumodel.recording.operators import Operator

RECORDED_FIELDS = (
    *("model", "precision", "batch_size", "batched_transforms", "compile", "channels_last", "fused_optimizer"),
    "pathology",
)
"""Fields of the configuration that change the operators of a step."""


def operators_of_step(config: TrainConfig) -> tuple[Operator, ...]:
    """All operators of one steady step of the trainer with this configuration, its pathology included.

    Host effects of a pathology (a slow loader, a late rank) have no operators; gpumodel.play adds them.
    """
    return cache.load_or_make(step_name(config), tuple[Operator, ...], lambda: record(config))


def step_name(config: TrainConfig) -> str:
    """`resnet-automixed-256-channels_last`: the fields that count in order, a switch that is on by its name."""
    acting = _acting(config)
    fields = {name: getattr(acting, name) for name in RECORDED_FIELDS}
    words = (name if value is True else value for name, value in fields.items() if value not in (None, False))
    return "-".join(map(str, words))


def _acting(config: TrainConfig) -> TrainConfig:
    """The configuration with its pathology's settings in place, and without one that leaves no operators."""
    config = apply_to_config(config)
    has_operators = config.pathology is None or ZOO[config.pathology].operators
    return config if has_operators else config.replace(pathology=None)


def record(config: TrainConfig) -> tuple[Operator, ...]:
    """The operators as torch gives them now; imports torch, which nothing else here does."""
    from gpumodel.recording.record import record_step

    return record_step(_acting(config))
