"""The correctness gate: a speed-up that stops the model from training is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cifar_train.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from cifar_train.job import Job


def check_gradients(job: Job) -> str:
    """One forward and backward pass after the run, without gradient scaling.

    Returns a line saying that all is well. Raises UserError unless every parameter
    that asks for a gradient gets a finite one.
    """
    from cifar_train.loop import next_batch

    images, labels = next_batch(job, iter(job.loaders.train))
    job.optimizer.zero_grad(set_to_none=True)
    with job.autocast():
        logits = job.model(images).logits
    job.criterion(logits.float(), labels).backward()
    missing, infinite, total = _faults(job.raw_model)
    job.optimizer.zero_grad(set_to_none=True)
    if missing or infinite:
        raise UserError(
            f"gradient check failed: {len(missing)} of {total} parameters got no gradient"
            f"{_example(missing)} and {len(infinite)} a non-finite one{_example(infinite)}; "
            "the model does not train as written, so its speed means nothing"
        )
    return f"gradient check passed: all {total} parameters have finite gradients"


def _faults(model: nn.Module) -> tuple[list[str], list[str], int]:
    import torch

    wanted = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    missing = [name for name, parameter in wanted if parameter.grad is None]
    infinite = [
        name for name, parameter in wanted if parameter.grad is not None and not torch.isfinite(parameter.grad).all()
    ]
    return missing, infinite, len(wanted)


def _example(names: list[str]) -> str:
    return f" (first: {names[0]})" if names else ""
