"""The aten operators of one training step, recorded on shapes alone.

The trainer's own model, loss and backward pass run on meta tensors, which have shapes and no memory, so
that a step takes seconds and no GPU. Names are those of a ROCm build (aten::miopen_convolution), and the
optimizer, gradient scaling and gradient exchange are the ones that a GPU gets. The trainer is taken to be
started by a launcher (srun, torchrun), which wraps the model in DistributedDataParallel for one rank as well.

Conventions beyond aten's own schemas:
  aten::copy_                inputs are (destination, source); scalars["direction"] is HostToDevice, DeviceToHost
                             or DeviceToDevice where it is a plain memory copy (equal type and order), and absent
                             where a kernel converts or reorders; scalars["non_blocking"] where the host goes on.
  aten::_local_scalar_dense  reads one number back: the host waits for the device, then 4 bytes DeviceToHost.
  nccl:all_reduce, nccl:broadcast  scalars["collective"] is allreduce or broadcast; nothing runs with one rank.
  aten::_foreach_*, aten::_amp_foreach_*, aten::cat   lists are unrolled; scalars["lists"] gives their lengths.
  triton_poi_..., triton_red_...   several operators that a compiler fused into one kernel; inputs are read once
                             and outputs written once.
  scalars["host_only"]       views, allocations and arithmetic on the host: never a kernel (`Operator.on_device`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cifar_train import pathologies
from cifar_train.config import TrainConfig
from gpumodel.recording import cache

RECORDED_FIELDS = (
    *("model", "precision", "batch_size", "batched_transforms", "compile", "channels_last", "fused_optimizer"),
    "pathology",
)
"""Fields of the configuration that change the operators of a step."""

FAULTS_WITHOUT_OPERATORS = ("slow-loader", "tiny-batch", "rank-skew", "no-warmup")
"""Pathologies that act on the host or through another field of the configuration."""


Scalar = str | bool | int | float | tuple[Any, ...] | None
"""An argument that is no tensor."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's shape, its type without the word torch ("float16"), and whether it lies in NHWC order."""

    shape: tuple[int, ...]
    dtype: str
    channels_last: bool = False


@dataclass(frozen=True)
class Operator:
    """One call of an operator, parents before children, in the order of calls.

    index, parent   -- place in the step, and that of the operator that called it.
    name            -- as Kineto writes it: aten::addmm, autograd::engine::evaluate_function: ...
    inputs          -- tensors in the order of the arguments, lists of tensors unrolled; None where one is absent.
    outputs         -- tensors that came back.
    scalars         -- other arguments by name: stride, padding, groups, transposed, output_mask, ...
    phase           -- data, forward, loss, backward or optimizer.
    module          -- path of the layer, "" outside of the model.
    sequence_number -- links a forward operator with its backward one.
    flops           -- of matrix products and convolutions; a multiplication and an addition are two.
    """

    index: int
    parent: int | None
    name: str
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    scalars: dict[str, Scalar] = field(default_factory=dict)
    phase: str = ""
    module: str = ""
    sequence_number: int | None = None
    flops: float = 0.0

    @property
    def on_device(self) -> bool:
        """Whether it may launch device work if it has no children."""
        return "host_only" not in self.scalars


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
    config = pathologies.apply_to_config(config)
    return config.replace(pathology=None) if config.pathology in FAULTS_WITHOUT_OPERATORS else config


def record(config: TrainConfig) -> tuple[Operator, ...]:
    """The operators as torch gives them now; imports torch, which nothing else here does."""
    from gpumodel.recording.step import record_step

    return record_step(_acting(config))
