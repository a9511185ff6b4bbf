"""The zoo: known faults, each with its symptom, where it shows and what is true.

A learner who diagnoses one can be checked, since the cause is known by construction.
Every fault is one function; `apply_to_config`, `apply_to_model` and `apply_to_job`
are the three moments at which a fault can get in.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cifar_train.config import PATHOLOGIES, TrainConfig
from cifar_train.hooks import Hook

if TYPE_CHECKING:
    import torch
    from torch import nn

    from cifar_train.job import Job

SECONDS_PER_SLOW_IMAGE = 0.005
"""slow-loader: read latency of one image, as from a busy shared file system."""

SKEW_SECONDS = 0.05
"""rank-skew: how much longer the last rank prepares each step."""

TINY_BATCH = 4
"""tiny-batch: images per rank and step."""

_CONFIG_FAULTS: dict[str, Callable[[TrainConfig], TrainConfig]] = {}
_MODEL_FAULTS: dict[str, Callable[[nn.Module], nn.Module]] = {}
_JOB_FAULTS: dict[str, Callable[[Job], None]] = {}


def _register(table: dict[str, Callable], name: str) -> Callable:
    if name not in PATHOLOGIES:
        raise ValueError(f"{name} is not listed in cifar_train.config.PATHOLOGIES")

    def keep(function: Callable) -> Callable:
        table[name] = function
        return function

    return keep


def apply_to_config(config: TrainConfig) -> TrainConfig:
    """The configuration with its own pathology's settings in place."""
    change = _CONFIG_FAULTS.get(config.pathology)
    return change(config) if change else config


def apply_to_model(name: str | None, model: nn.Module) -> nn.Module:
    """The model with the fault inside, before it moves to its device."""
    change = _MODEL_FAULTS.get(name)
    return change(model) if change else model


def apply_to_job(name: str | None, job: Job) -> None:
    """Let the fault exchange parts of a finished job."""
    change = _JOB_FAULTS.get(name)
    if change:
        change(job)


def describe(name: str) -> str:
    """Symptom, place and truth of a pathology: its docstring."""
    tables = (_CONFIG_FAULTS, _MODEL_FAULTS, _JOB_FAULTS)
    texts = [inspect.getdoc(table[name]) or "" for table in tables if name in table]
    # A fault that acts at two moments is described at the one that matters.
    return max(texts, key=len)


@_register(_CONFIG_FAULTS, "tiny-batch")
def tiny_batch(config: TrainConfig) -> TrainConfig:
    """Far too few images in a step.

    Symptom: low images/s although the device seems busy. Seen in: kernel statistics
    (as many launches per step as ever, each a few microseconds long) and launch-bound
    idle time. Truth: the batch holds 4 images, so every kernel is too small to fill
    the device and the fixed cost of a launch dominates.
    """
    return config.replace(batch_size=TINY_BATCH)


@_register(_CONFIG_FAULTS, "no-warmup")
def no_warmup(config: TrainConfig) -> TrainConfig:
    """Measures and records from the very first step.

    Symptom: a slow mean, a huge spread, set-up calls in the trace. Seen in: step times
    in order (the first stands out) and the first profiled step. Truth: warm-up steps
    are 0 and the profiler neither waits nor warms up.
    """
    changes: dict[str, Any] = {"warmup_steps": 0}
    if config.torch_profile:
        active = min(config.profile_active or 3, config.max_steps)
        changes |= {"profile_wait": 0, "profile_warmup": 0, "profile_active": active, "profile_repeat": 1}
    return config.replace(**changes)


@_register(_JOB_FAULTS, "slow-loader")
def slow_loader(job: Job) -> None:
    """Images arrive slowly, in the training process itself.

    Symptom: the device idles at the start of each step. Seen in: a long `data` range,
    call stacks that sleep in `read_slowly`, low power. Truth: no loader workers run and
    every image costs 5 ms of read latency.
    """
    loader = job.loaders.train

    class SlowLoader:
        def __len__(self) -> int:
            return len(loader)

        def __iter__(self) -> Iterator:
            for images, labels in loader:
                read_slowly(len(labels))
                yield images, labels

    job.loaders = replace(job.loaders, train=SlowLoader())


@_register(_CONFIG_FAULTS, "slow-loader")
def _no_workers(config: TrainConfig) -> TrainConfig:
    """slow-loader: load in the training process."""
    return config.replace(num_workers=0)


def read_slowly(images: int) -> None:
    """Wait as long as reading that many images from a busy file system would take."""
    time.sleep(images * SECONDS_PER_SLOW_IMAGE)


@_register(_JOB_FAULTS, "sync-every-step")
def sync_every_step(job: Job) -> None:
    """Reads a number back from the device for every parameter in every step.

    Symptom: gaps between kernels; the host never runs ahead. Seen in: one
    `aten::_local_scalar_dense` (a 4-byte copy to the host) per parameter and step.
    Truth: the gradient norm of each parameter is logged with `.item()`.
    """

    class GradientNormLog(Hook):
        norms: list[float]

        def after_backward(self, step: int) -> None:
            gradients = (p.grad for p in job.raw_model.parameters() if p.grad is not None)
            self.norms = [gradient.norm().item() for gradient in gradients]

    job.fault_hooks.append(GradientNormLog())


@_register(_MODEL_FAULTS, "many-small-kernels")
def many_small_kernels(model: nn.Module) -> nn.Module:
    """Activations written out as chains of element-wise operations.

    Symptom: many launches, short kernels, memory-bound time. Seen in: kernel counts per
    step and the share of element-wise kernels. Truth: each ReLU or GELU is a chain of
    small operations with the same result; one fused call would do.
    """
    import torch

    class ChainedReLU(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            # relu(x) = (x + |x|) / 2, with |x| = sign(x) * x
            return (values + torch.sign(values) * values) * 0.5

    class ChainedGELU(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            # gelu(x) = x * (1 + erf(x / sqrt 2)) / 2
            return values * ((torch.erf(values * 0.5**0.5) + 1.0) * 0.5)

    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(parent, name, ChainedReLU())
            elif "gelu" in type(child).__name__.lower():
                setattr(parent, name, ChainedGELU())
    return model


@_register(_JOB_FAULTS, "unpinned-copies")
def unpinned_copies(job: Job) -> None:
    """Images cross to the device one by one, from pageable memory, waiting each time.

    Symptom: a long `data` range full of short host-to-device copies. Seen in: as many
    copies per step as the batch has images. Truth: pinned memory and batching of the
    copy are both missing.
    """
    import torch

    device = job.device

    def one_by_one(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # clone() leaves pinned memory; copy=True makes a real copy on a CPU as well.
        moved = [image.clone().to(device, copy=True) for image in images]
        return torch.stack(moved), labels.to(device)

    job.to_device = one_by_one


@_register(_MODEL_FAULTS, "wrong-layout")
def wrong_layout(model: nn.Module) -> nn.Module:
    """Every convolution and linear layer gets its input in the other memory order.

    Symptom: copies and transposes between the large kernels. Seen in: one extra
    `aten::clone` or `batched_transpose` per layer and step. Truth: the tensors are
    rearranged before each layer, and the layer's library call rearranges them back.
    """
    import torch

    def swap_order(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        values = inputs[0]
        if values.dim() == 4:
            swapped = values.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)
        else:
            swapped = values.transpose(-1, -2).clone(memory_format=torch.contiguous_format).transpose(-1, -2)
        return (swapped, *inputs[1:])

    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
            layer.register_forward_pre_hook(swap_order)
    return model


@_register(_MODEL_FAULTS, "recompile")
def recompile(model: nn.Module) -> nn.Module:
    """Something the compiler takes for constant changes in every step.

    Symptom: steps take seconds although the model is compiled; after eight compilations
    torch gives up and runs eagerly. Seen in: step times, TORCH_LOGS=recompiles. Truth:
    the model reads a Python string with the step's number, which is a new constant each time.
    """
    import torch

    class LabelledModel(torch.nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.label = "step 0"

        def forward(self, images: torch.Tensor) -> Any:
            bias = 0.0 if self.label else 1.0
            return self.inner(images + bias)

    return LabelledModel(model)


@_register(_JOB_FAULTS, "recompile")
def _relabel_every_step(job: Job) -> None:
    """recompile: the hook that changes the constant."""

    class Relabel(Hook):
        def step_begin(self, step: int) -> None:
            job.raw_model.label = f"step {step}"

    job.fault_hooks.append(Relabel())


@_register(_JOB_FAULTS, "rank-skew")
def rank_skew(job: Job) -> None:
    """The last rank reaches every collective late.

    Symptom: long all-reduce kernels on all ranks but one. Seen in: collective time by
    rank: the rank with the shortest collectives is the cause. Truth: the last rank
    spends 50 ms more before each forward pass; the network is not slow.
    """
    if job.launch.world_size == 1:
        job.notes.append("rank-skew with one rank: it is late as well, but nobody waits for it")
    if job.launch.rank == job.launch.world_size - 1:

        class ComeLate(Hook):
            def after_data(self, step: int) -> None:
                time.sleep(SKEW_SECONDS)

        job.fault_hooks.append(ComeLate())


@_register(_JOB_FAULTS, "memory-growth")
def memory_growth(job: Job) -> None:
    """Keeps a tensor of every step for ever.

    Symptom: memory climbs by the same amount each step until the job is killed. Seen in:
    the memory timeline and peak memory against the number of steps. Truth: a copy of the
    largest parameter's gradient is appended to a list "for a histogram".
    """

    class GradientHistory(Hook):
        def __init__(self) -> None:
            self.kept: list[torch.Tensor] = []

        def after_backward(self, step: int) -> None:
            largest = max(job.raw_model.parameters(), key=lambda parameter: parameter.numel())
            self.kept.append(largest.grad.detach().clone())

    job.fault_hooks.append(GradientHistory())


@_register(_MODEL_FAULTS, "broken-grad")
def broken_grad(model: nn.Module) -> nn.Module:
    """A fast normalisation whose backward pass does not exist.

    Symptom: the backward pass gets faster, and the loss falls less. Seen in: backward
    time, and parameters without a gradient (--check-gradients). Truth: the last
    normalisation layer writes its result without autograd, which cuts the graph there.
    """
    import torch

    class ForwardOnlyNorm(torch.nn.Module):
        def __init__(self, norm: nn.Module) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return self.norm(values)

    kinds = (torch.nn.BatchNorm2d, torch.nn.LayerNorm)
    name = [path for path, layer in model.named_modules() if isinstance(layer, kinds)][-1]
    parent, _, leaf = name.rpartition(".")
    owner = model.get_submodule(parent)
    setattr(owner, leaf, ForwardOnlyNorm(getattr(owner, leaf)))
    return model
