"""The training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cifar_train.config import TrainConfig
from cifar_train.data.loaders import Loaders
from cifar_train.hooks import Hook, StepOutcome
from cifar_train.ranks import Launch


@dataclass
class Trainer:
    """The objects that the loop uses. An injected fault may replace any of them.

    - raw_model: the model before the compiler or DistributedDataParallel wraps it
    - notes: messages to the user about this run, one line each
    """

    config: TrainConfig
    launch: Launch
    device: torch.device
    loaders: Loaders
    raw_model: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    autocast: Callable[[], AbstractContextManager]
    input_dtype: torch.dtype
    memory_format: torch.memory_format
    notes: list[str] = field(default_factory=list)
    fault_hooks: list[Hook] = field(default_factory=list)

    @property
    def planned_steps(self) -> int:
        """Number of optimizer steps that fits within max_steps, max_epochs and the data."""
        return min(self.config.max_steps, self.config.max_epochs * self.loaders.steps_per_epoch)

    def to_device(
        self, images: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Start copying a batch from the loader to the device without blocking the host."""
        return images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


def train(trainer: Trainer, hook: Hook | None = None) -> int:
    """Run `trainer.planned_steps` optimizer steps and return the number of steps that ran.

    The loop calls the hook's six methods in every step. A hook doesn't change the arithmetic.
    The loop itself never waits for the device.
    """
    hook = hook or Hook()
    step = 0
    for epoch in range(trainer.config.max_epochs):
        trainer.loaders.sampler.set_epoch(epoch)
        batches = iter(trainer.loaders.train)
        for _ in range(min(trainer.loaders.steps_per_epoch, trainer.planned_steps - step)):
            hook.step_begin(step)
            images, labels = next_batch(trainer, batches)
            hook.after_data(step)
            with trainer.autocast():
                logits = trainer.model(images).logits
            hook.after_forward(step)
            loss = cross_entropy(logits.float(), labels)
            hook.after_loss(step)
            trainer.scaler.scale(loss).backward()
            hook.after_backward(step)
            trainer.scaler.step(trainer.optimizer)
            trainer.scaler.update()
            trainer.optimizer.zero_grad(set_to_none=True)
            hook.step_end(StepOutcome(step, epoch, len(labels), loss.detach()))
            step += 1
    return step


def next_batch(trainer: Trainer, batches: Iterator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next batch on the trainer's device, in the trainer's memory layout and data type.

    The batch consists of images [N, 3, 32, 32] and labels [N].
    """
    images, labels = trainer.to_device(*next(batches))
    if trainer.loaders.transform_batch is not None:
        images = trainer.loaders.transform_batch(images)
    return images.to(dtype=trainer.input_dtype, memory_format=trainer.memory_format), labels
