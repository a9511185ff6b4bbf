"""The code of the known faults. Each has a symptom, a place where it shows, and the truth about it.

The cause is known by construction, so a learner's diagnosis can be checked. Each fault is one
function that `config.FAULTS` names. Faults that only change settings are defined there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from cifar_train.config import FAULTS, SECONDS_PER_SLOW_IMAGE, SKEW_SECONDS
from cifar_train.hooks import Hook
from cifar_train.loop import Trainer


def apply_to_model(name: str | None, model: nn.Module) -> nn.Module:
    """Return the model with the fault injected, before it moves to its device."""
    function = FAULTS[name].model if name else ""
    return globals()[function](model) if function else model


def apply_to_trainer(name: str | None, trainer: Trainer) -> None:
    """Let the fault replace parts of a finished trainer."""
    function = FAULTS[name].trainer if name else ""
    if function:
        globals()[function](trainer)


def slow_loader(trainer: Trainer) -> None:
    """Load images slowly, in the training process itself.

    Symptom: the device idles at the start of each step. Seen in: a long `data` range, call stacks
    that sleep in `read_slowly`, and low power. Truth: there are no data loader workers, and every
    image adds 5 ms of read latency.
    """
    loader = trainer.loaders.train

    class SlowLoader:
        def __iter__(self) -> Iterator:
            for images, labels in loader:
                read_slowly(len(labels))
                yield images, labels

    trainer.loaders = replace(trainer.loaders, train=SlowLoader())


def read_slowly(images: int) -> None:
    """Wait as long as reading this many images from a busy file system would take."""
    time.sleep(images * SECONDS_PER_SLOW_IMAGE)


def sync_every_step(trainer: Trainer) -> None:
    """Read a number back from the device for every parameter in every step.

    Symptom: gaps between kernels, and the host never runs ahead. Seen in: one
    `aten::_local_scalar_dense` (a 4-byte copy to the host) per parameter and step. Truth: the
    gradient norm of each parameter is logged with `.item()`.
    """

    class GradientNormLog(Hook):
        norms: list[float]

        def after_backward(self, step: int) -> None:
            gradients = (p.grad for p in trainer.raw_model.parameters() if p.grad is not None)
            self.norms = [gradient.norm().item() for gradient in gradients]

    trainer.fault_hooks.append(GradientNormLog())


def many_small_kernels(model: nn.Module) -> nn.Module:
    """Replace activations with chains of element-wise operations.

    Symptom: many launches, short kernels and memory-bound time. Seen in: kernel counts per step and
    the share of element-wise kernels. Truth: each ReLU or GELU is a chain of small operations,
    although one fused call would give the same result.
    """

    class ChainedReLU(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            # relu(x) = (x + |x|) / 2, with |x| = sign(x) * x
            return (values + torch.sign(values) * values) * 0.5

    class ChainedGELU(nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            # gelu(x) = x * (1 + erf(x / sqrt 2)) / 2
            return values * ((torch.erf(values * 0.5**0.5) + 1.0) * 0.5)

    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.ReLU):
                setattr(parent, name, ChainedReLU())
            elif "gelu" in type(child).__name__.lower():
                setattr(parent, name, ChainedGELU())
    return model


def unpinned_copies(trainer: Trainer) -> None:
    """Copy images to the device one by one from pageable memory, and wait for each copy.

    Symptom: a long `data` range full of short host-to-device copies. Seen in: one copy per image of
    the batch in every step. Truth: the trainer neither pins memory nor copies whole batches.
    """
    device = trainer.device

    def one_by_one(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # clone() moves data out of pinned memory. copy=True makes a real copy on a CPU, too.
        moved = [image.clone().to(device, copy=True) for image in images]
        return torch.stack(moved), labels.to(device)

    trainer.to_device = one_by_one


def wrong_layout(model: nn.Module) -> nn.Module:
    """Give every convolution and linear layer its input in the other memory order.

    Symptom: copies and transposes between the large kernels. Seen in: one extra `aten::clone` or
    `batched_transpose` per layer and step. Truth: the tensors are rearranged before each layer, and
    the layer's library call rearranges them back.
    """

    def swap_order(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        values = inputs[0]
        channels = 1 if values.dim() == 4 else -2
        swapped = values.movedim(channels, -1).clone(memory_format=torch.contiguous_format)
        return (swapped.movedim(-1, channels), *inputs[1:])

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_pre_hook(swap_order)
    return model


def recompile(model: nn.Module) -> nn.Module:
    """Change something that the compiler treats as a constant in every step.

    Symptom: steps take seconds although the model is compiled. After eight compilations, torch
    gives up and runs eagerly. Seen in: step times and TORCH_LOGS=recompiles. Truth: the model reads
    a Python string that contains the step number, which is a new constant each time.
    """

    class LabeledModel(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.label = "step 0"

        def forward(self, images: torch.Tensor) -> Any:
            bias = 0.0 if self.label else 1.0
            return self.inner(images + bias)

    return LabeledModel(model)


def relabel_every_step(trainer: Trainer) -> None:
    """Add the hook that changes the constant, for recompile."""

    class Relabel(Hook):
        def step_begin(self, step: int) -> None:
            trainer.raw_model.label = f"step {step}"

    trainer.fault_hooks.append(Relabel())


def rank_skew(trainer: Trainer) -> None:
    """Make the last rank reach every collective late.

    Symptom: long all-reduce kernels on all ranks except one. Seen in: collective time by rank,
    because the rank with the shortest collectives is the cause. Truth: the last rank spends 50 ms
    more before each forward pass, and the network isn't slow.
    """
    if trainer.launch.world_size == 1:
        trainer.notes.append(
            "rank-skew with one rank: the rank is also late, but no other rank waits for it"
        )
    if trainer.launch.rank == trainer.launch.world_size - 1:

        class ComeLate(Hook):
            def after_data(self, step: int) -> None:
                time.sleep(SKEW_SECONDS)

        trainer.fault_hooks.append(ComeLate())


def memory_growth(trainer: Trainer) -> None:
    """Keep a tensor from every step forever.

    Symptom: memory grows by the same amount in each step until the job is killed. Seen in: the
    memory timeline, and peak memory plotted against the number of steps. Truth: a copy of the
    largest parameter's gradient is appended to a list "for a histogram".
    """

    class GradientHistory(Hook):
        def __init__(self) -> None:
            self.kept: list[torch.Tensor] = []

        def after_backward(self, step: int) -> None:
            largest = max(trainer.raw_model.parameters(), key=lambda parameter: parameter.numel())
            self.kept.append(largest.grad.detach().clone())

    trainer.fault_hooks.append(GradientHistory())


def broken_grad(model: nn.Module) -> nn.Module:
    """Use a fast normalization layer without a backward pass.

    Symptom: the backward pass gets faster, and the loss falls less. Seen in: backward time, and
    parameters without a gradient. Truth: the last normalization layer writes its result without
    autograd, which cuts the graph there.
    """

    class ForwardOnlyNorm(nn.Module):
        def __init__(self, norm: nn.Module) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return self.norm(values)

    kinds = (nn.BatchNorm2d, nn.LayerNorm)
    name = [path for path, layer in model.named_modules() if isinstance(layer, kinds)][-1]
    parent, _, leaf = name.rpartition(".")
    owner = model.get_submodule(parent)
    setattr(owner, leaf, ForwardOnlyNorm(getattr(owner, leaf)))
    return model
