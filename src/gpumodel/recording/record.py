"""Runs one step of the trainer's own loop on meta tensors and records its operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import torch

from cifar_train import pathologies
from cifar_train.config import TrainConfig
from cifar_train.data.cifar100 import IMAGE_SIZE
from cifar_train.data.loaders import Loaders
from cifar_train.hooks import PHASES, Hook, Hooks
from cifar_train.loop import Trainer, train
from cifar_train.models import build_model
from cifar_train.ranks import Launch
from gpumodel.recording.device_functions import DeviceAdam, DeviceFunctions, MetaGradScaler
from gpumodel.recording.fusion import fuse
from gpumodel.recording.gradient_exchange import GradientExchange
from gpumodel.recording.operators import Operator
from gpumodel.recording.recorder import OperatorRecorder, ValuelessReads


def record_step(config: TrainConfig) -> tuple[Operator, ...]:
    """The operators of one steady step. config -- with its pathology's settings in place."""
    with warnings.catch_warnings():
        # The warnings are about values, which meta tensors do not have.
        warnings.simplefilter("ignore")
        order, unused = _gradient_order(config)
        recorder = OperatorRecorder(config.channels_last)
        job = _job(config, recorder)
        exchange = _exchange(job, recorder, order, unused)
        job.model = _distributed(job, recorder, exchange)
        _follow_modules(job.raw_model, recorder)
        with recorder:
            train(job, Hooks([_Phases(recorder, exchange.finish), *job.pathology_hooks]))
    # The compiler gives up after too many recompilations, so here the steady step runs eagerly.
    fused = config.compile and config.pathology != "recompile"
    return _numbered_from_zero(fuse(recorder.recorded) if fused else recorder.recorded.operators)


def _numbered_from_zero(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """The operators with sequence numbers from 0, whatever this process has recorded before:
    autograd never starts its count again.
    """
    operators = tuple(operators)
    first = min(one.sequence_number for one in operators if one.sequence_number is not None)
    return tuple(
        one
        if one.sequence_number is None
        else replace(one, sequence_number=one.sequence_number - first)
        for one in operators
    )


def _gradient_order(config: TrainConfig) -> tuple[list[int], list[int]]:
    """Places of the parameters in the order in which their gradients come, and of those without a
    gradient.
    """
    # This takes a step of its own: the exchange needs the order before the recorded step begins.
    job = _job(config, OperatorRecorder())
    parameters = list(job.raw_model.parameters())
    place = {id(parameter): number for number, parameter in enumerate(parameters)}
    order: list[int] = []
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(lambda ready: order.append(place[id(ready)]))
    with ValuelessReads():
        train(job, Hook())
    unused = [number for number in range(len(parameters)) if number not in set(order)]
    return order, unused


def _exchange(
    job: Trainer, recorder: OperatorRecorder, order: list[int], unused: list[int]
) -> GradientExchange:
    parameters = list(job.raw_model.parameters())
    # Only with this fault does the trainer let DDP search for unused parameters, and then buckets
    # keep their first order.
    if job.config.pathology == "broken-grad":
        order = list(range(len(parameters)))[::-1]
    return GradientExchange(
        recorder,
        job.raw_model,
        [parameters[place] for place in order],
        [parameters[place] for place in unused],
    )


def _job(config: TrainConfig, recorder: OperatorRecorder) -> Trainer:
    """The trainer with one step to do on meta tensors, its pathology included."""
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
    dtype = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
    with torch.device("meta"):
        model = pathologies.apply_to_model(config.pathology, build_model(config.model).train())
    model = model.to(dtype=dtype, memory_format=memory_format)
    automixed = config.precision == "automixed"
    half = torch.float16 if automixed else None
    job = Trainer(
        config=config.replace(max_steps=1, max_epochs=1, **_without_profiler(config)),
        # Rank 0 of two: rank-skew would let the last rank sleep.
        launch=Launch(0, 2),
        device=torch.device("meta"),
        loaders=_loaders(config),
        raw_model=model,
        model=model,
        optimizer=DeviceAdam(model, config.fused_optimizer, recorder),
        scaler=MetaGradScaler(automixed, config.fused_optimizer),
        autocast=lambda: DeviceFunctions(recorder, half),
        input_dtype=dtype,
        memory_format=memory_format,
    )
    pathologies.apply_to_trainer(config.pathology, job)
    return job


def _without_profiler(config: TrainConfig) -> dict[str, Any]:
    """Changes that switch all profiling options off, since a schedule needs more than one step."""
    names = ("torch_profile", "profile_all_ranks", "record_shapes", "roctx")
    return {item.name: item.default for item in fields(config) if item.name in names}


class _OneBatch:
    """A loader and a sampler in one, with a single batch and without epochs."""

    def __init__(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._batch = batch

    def __iter__(self) -> Any:
        return iter([self._batch])

    def __len__(self) -> int:
        return 1

    def set_epoch(self, epoch: int) -> None:
        """Nothing is shuffled."""


def _loaders(config: TrainConfig) -> Loaders:
    count = config.batch_size
    dtype = torch.uint8 if config.batched_transforms else torch.float32
    # One pixel seen as a whole batch: the loader's memory is not needed either.
    images = torch.zeros(1, dtype=dtype).expand(count, 3, IMAGE_SIZE, IMAGE_SIZE)
    loader = _OneBatch((images, torch.zeros(count, dtype=torch.int64)))
    return Loaders(
        train=loader,
        sampler=loader,
        description="",
        steps_per_epoch=1,
        transform_batch=_transform if config.batched_transforms else None,
    )


def _transform(images: torch.Tensor) -> torch.Tensor:
    """The training transforms for a batch. The trainer draws random numbers for many batches at
    once, so a steady step draws none.
    """
    from cifar_train.data.transforms import DRAWS, apply_parameters

    return apply_parameters(images, torch.empty(len(images), DRAWS, device="meta"))


def _distributed(
    job: Trainer, recorder: OperatorRecorder, exchange: GradientExchange
) -> Callable[..., Any]:
    """The model's forward pass with what DistributedDataParallel does around it."""

    def forward(images: torch.Tensor) -> Any:
        with recorder.group("DistributedDataParallel.forward"):
            exchange.broadcast_buffers()
            return job.raw_model(images)

    return forward


def _follow_modules(model: torch.nn.Module, recorder: OperatorRecorder) -> None:
    """Let the recorder know which layer runs; the whole model is named after its class."""

    def leave(*_: Any) -> None:
        # A hook that returns something would replace the layer's output.
        recorder.modules.pop()

    for path, module in model.named_modules():
        name = path or type(module).__name__
        module.register_forward_pre_hook(lambda *_, name=name: recorder.modules.append(name))
        module.register_forward_hook(leave)


class _Phases(Hook):
    """Tells the recorder which phase runs, and ends the gradient exchange with the backward
    pass.
    """

    def __init__(self, recorder: OperatorRecorder, finish_backward: Callable[[], None]) -> None:
        self._recorder = recorder
        self._finish_backward = finish_backward

    def step_begin(self, step: int) -> None:
        """Let `data` begin."""
        self._recorder.phase = PHASES[0]

    def after_data(self, step: int) -> None:
        """Let `forward` begin."""
        self._recorder.phase = PHASES[1]

    def after_forward(self, step: int) -> None:
        """Let `loss` begin."""
        self._recorder.phase = PHASES[2]

    def after_loss(self, step: int) -> None:
        """Let `backward` begin."""
        self._recorder.phase = PHASES[3]

    def after_backward(self, step: int) -> None:
        """Let `optimizer` begin."""
        self._finish_backward()
        self._recorder.phase = PHASES[4]
