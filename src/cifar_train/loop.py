"""The training loop: what a step is, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cifar_train.hooks import Hook, StepOutcome

if TYPE_CHECKING:
    import torch

    from cifar_train.job import Job


def train(job: Job, hook: Hook | None = None) -> int:
    """Run `job.planned_steps` optimizer steps and return how many were run.

    With a hook, its six points are called in every step; without one the loop does
    the same arithmetic. Nothing here waits for the device.
    """
    hook = hook or Hook()
    step = 0
    for epoch in range(job.config.max_epochs):
        job.loaders.sampler.set_epoch(epoch)
        batches = iter(job.loaders.train)
        for _ in range(min(job.loaders.steps_per_epoch, job.planned_steps - step)):
            hook.step_begin(step)
            images, labels = next_batch(job, batches)
            hook.after_data(step)
            with job.autocast():
                logits = job.model(images).logits
            hook.after_forward(step)
            loss = job.criterion(logits.float(), labels)
            hook.after_loss(step)
            job.scaler.scale(loss).backward()
            hook.after_backward(step)
            job.scaler.step(job.optimizer)
            job.scaler.update()
            job.optimizer.zero_grad(set_to_none=True)
            hook.step_end(StepOutcome(step, epoch, len(labels), loss.detach()))
            step += 1
    return step


def next_batch(job: Job, batches: Iterator) -> tuple[torch.Tensor, torch.Tensor]:
    """The next (images [N, 3, 32, 32], labels [N]) on the job's device, in its layout and type."""
    images, labels = job.to_device(*next(batches))
    if job.loaders.transform_batch is not None:
        images = job.loaders.transform_batch(images)
    return images.to(dtype=job.input_dtype, memory_format=job.memory_format), labels
