"""Accuracy on the held-out images, after training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cifar_train.job import Job


def accuracy(job: Job) -> str:
    """Share of held-out images that this job's ranks classify correctly, as a sentence.

    Collective: every rank must call it.
    """
    import torch
    import torch.distributed as dist

    job.raw_model.eval()
    correct = torch.zeros(2, dtype=torch.int64, device=job.device)
    with torch.inference_mode():
        for images, labels in job.loaders.validation:
            images, labels = job.to_device(images, labels)
            images = images.to(dtype=job.input_dtype, memory_format=job.memory_format)
            with job.autocast():
                guesses = job.raw_model(images).logits.argmax(dim=-1)
            correct += torch.stack([(guesses == labels).sum(), torch.tensor(len(labels), device=job.device)])
    job.raw_model.train()
    if dist.is_initialized():
        dist.all_reduce(correct)
    right, total = correct.tolist()
    return f"accuracy on {total} held-out images: {right / total:.1%} after {job.planned_steps} steps"
