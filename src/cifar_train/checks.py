"""Checks of a model after training: its accuracy, and whether every parameter can learn."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from cifar_train.loop import Trainer, next_batch
from tidyprof.errors import UserError


def accuracy(trainer: Trainer) -> str:
    """Share of held-out images that all ranks together classify correctly, as a sentence.

    Collective: every rank must call it.
    """
    # The model without DistributedDataParallel, which would wait for the other ranks in each batch:
    # one of them may have a batch more.
    trainer.raw_model.eval()
    correct = torch.zeros(2, dtype=torch.int64, device=trainer.device)
    with torch.inference_mode():
        for images, labels in trainer.loaders.validation:
            images, labels = trainer.to_device(images, labels)
            images = images.to(dtype=trainer.input_dtype, memory_format=trainer.memory_format)
            with trainer.autocast():
                guesses = trainer.raw_model(images).logits.argmax(dim=-1)
            correct += torch.stack(
                [(guesses == labels).sum(), torch.tensor(len(labels), device=trainer.device)]
            )
    trainer.raw_model.train()
    if dist.is_initialized():
        dist.all_reduce(correct)
    right, total = correct.tolist()
    return (
        f"accuracy on {total} held-out images: {right / total:.1%} after {trainer.planned_steps}"
        " steps"
    )


def check_gradients(trainer: Trainer) -> str:
    """The correctness gate: a speed-up is worth nothing if the model no longer trains.

    Runs one forward and backward pass without gradient scaling. Returns a line that says that all
    is well. Raises UserError unless every parameter that asks for a gradient gets a finite one.
    """
    images, labels = next_batch(trainer, iter(trainer.loaders.train))
    trainer.optimizer.zero_grad(set_to_none=True)
    with trainer.autocast():
        logits = trainer.model(images).logits
    cross_entropy(logits.float(), labels).backward()
    wanted = {
        name: weights.grad
        for name, weights in trainer.raw_model.named_parameters()
        if weights.requires_grad
    }
    missing = [name for name, gradient in wanted.items() if gradient is None]
    infinite = [
        name
        for name, gradient in wanted.items()
        if gradient is not None and not gradient.isfinite().all()
    ]
    trainer.optimizer.zero_grad(set_to_none=True)
    if missing or infinite:
        raise UserError(
            f"gradient check failed: {len(missing)} of {len(wanted)} parameters got no gradient"
            f"{_example(missing)} and {len(infinite)} a non-finite one{_example(infinite)}; "
            "the model does not train as written, so its speed means nothing"
        )
    return f"gradient check passed: all {len(wanted)} parameters have finite gradients"


def _example(names: list[str]) -> str:
    return f" (first: {names[0]})" if names else ""
