"""Functions that inject the known faults.

Each docstring lists the fault's symptom, the evidence for it, and its true cause, so learners can
check their diagnoses. `config.FAULTS` names one function per fault. Faults that only change
settings are defined in `config`.
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
    """Return the model with the named fault. Call this function before the model moves to its
    device.
    """
    function = FAULTS[name].model if name else ""
    return globals()[function](model) if function else model


def apply_to_trainer(name: str | None, trainer: Trainer) -> None:
    """Let the named fault replace parts of a finished trainer."""
    function = FAULTS[name].trainer if name else ""
    if function:
        globals()[function](trainer)


def slow_loader(trainer: Trainer) -> None:
    """Load images slowly in the training process.

    - Symptom: The device idles at the start of each step.
    - Seen in: The trace shows a long `data` range and call stacks that sleep in `read_slowly`. The
      power draw is low.
    - Truth: The run has no data loader workers, and every image adds 5 ms of read latency.
    """
    loader = trainer.loaders.train

    class SlowLoader:
        def __iter__(self) -> Iterator:
            for images, labels in loader:
                read_slowly(len(labels))
                yield images, labels

    trainer.loaders = replace(trainer.loaders, train=SlowLoader())


def read_slowly(images: int) -> None:
    """Wait for the time that a busy file system would need to read this many images."""
    time.sleep(images * SECONDS_PER_SLOW_IMAGE)


def sync_every_step(trainer: Trainer) -> None:
    """Read one number per parameter back from the device in every step.

    - Symptom: Gaps separate the kernels, and the host never runs ahead.
    - Seen in: The trace contains one `aten::_local_scalar_dense` per parameter and step. Each call
      copies 4 bytes to the host.
    - Truth: The trainer logs the gradient norm of each parameter with `.item()`.
    """

    class GradientNormLog(Hook):
        norms: list[float]

        def after_backward(self, step: int) -> None:
            gradients = (p.grad for p in trainer.raw_model.parameters() if p.grad is not None)
            self.norms = [gradient.norm().item() for gradient in gradients]

    trainer.fault_hooks.append(GradientNormLog())


def many_small_kernels(model: nn.Module) -> nn.Module:
    """Replace activations with chains of element-wise operations.

    - Symptom: The run has many launches, short kernels and memory-bound time.
    - Seen in: The kernel count per step and the share of element-wise kernels are high.
    - Truth: Each ReLU or GELU is a chain of small operations, although one fused call would give
      the same result.
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
    """Copy images one at a time from pageable memory to the device, and wait for each copy.

    - Symptom: A long `data` range contains many short host-to-device copies.
    - Seen in: Every step contains one copy per image in the batch.
    - Truth: The trainer neither pins memory nor copies whole batches.
    """
    device = trainer.device

    def one_by_one(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # clone() moves data out of pinned memory. copy=True forces a copy even on a CPU.
        moved = [image.clone().to(device, copy=True) for image in images]
        return torch.stack(moved), labels.to(device)

    trainer.to_device = one_by_one


def wrong_layout(model: nn.Module) -> nn.Module:
    """Pass each convolution and linear layer its input in the opposite memory order.

    - Symptom: Copies and transposes run between the large kernels.
    - Seen in: The trace contains one extra `aten::clone` or `batched_transpose` per layer and step.
    - Truth: The fault rearranges the tensors before each layer. The layer's library call then
      rearranges them back.
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
    """In every step, change a value that the compiler treats as a constant.

    - Symptom: Steps take seconds although the model is compiled. After eight compilations, torch
      gives up and runs eagerly.
    - Seen in: The step times and the output of TORCH_LOGS=recompiles show the recompilations.
    - Truth: The model reads a Python string that contains the step number, so each step has a new
      constant.
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
    """Add the hook that changes the string for the recompile fault."""

    class Relabel(Hook):
        def step_begin(self, step: int) -> None:
            trainer.raw_model.label = f"step {step}"

    trainer.fault_hooks.append(Relabel())


def rank_skew(trainer: Trainer) -> None:
    """Make the last rank arrive late at every collective.

    - Symptom: All ranks except one have long all-reduce kernels.
    - Seen in: The collective times per rank point to the cause: the rank with the shortest
      collectives is the late rank.
    - Truth: The last rank spends an extra 50 ms before each forward pass. The network isn't slow.
    """
    if trainer.launch.world_size == 1:
        trainer.notes.append(
            "rank-skew needs several ranks: the only rank is late, but no other rank waits for it"
        )
    if trainer.launch.rank == trainer.launch.world_size - 1:

        class ComeLate(Hook):
            def after_data(self, step: int) -> None:
                time.sleep(SKEW_SECONDS)

        trainer.fault_hooks.append(ComeLate())


def memory_growth(trainer: Trainer) -> None:
    """Keep one tensor per step until the run ends.

    - Symptom: Memory use grows by the same amount in each step until the job is killed.
    - Seen in: The memory timeline and a plot of peak memory against the number of steps show the
      growth.
    - Truth: The trainer appends a copy of the largest parameter's gradient to a list "for a
      histogram".
    """

    class GradientHistory(Hook):
        def __init__(self) -> None:
            self.kept: list[torch.Tensor] = []

        def after_backward(self, step: int) -> None:
            largest = max(trainer.raw_model.parameters(), key=lambda parameter: parameter.numel())
            self.kept.append(largest.grad.detach().clone())

    trainer.fault_hooks.append(GradientHistory())


def broken_grad(model: nn.Module) -> nn.Module:
    """Use a fast normalization layer that has no backward pass.

    - Symptom: The backward pass is faster, and the loss falls less.
    - Seen in: The backward time is shorter, and some parameters have no gradient.
    - Truth: The last normalization layer writes its result without autograd, which cuts the graph
      at that layer.
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
