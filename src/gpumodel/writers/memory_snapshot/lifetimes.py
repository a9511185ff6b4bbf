"""When the tensors of the trainer are allocated and freed, from the operators of its steps and their shapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from cifar_train.config import TrainConfig
from gpumodel.kernels.tensors import nbytes
from gpumodel.play.counters import parameter_bytes
from gpumodel.recording.operators import Operator
from gpumodel.writers.memory_snapshot.allocator import CachingAllocator, Frames

STATES = 2
"""Tensors that Adam keeps for each parameter, of its size (torch.optim.Adam: exp_avg, exp_avg_sq)."""

LINES = {
    "model": ("train.py", "set_up", "trainer = Trainer("),
    "data": ("loop.py", "next_batch", "images, labels = trainer.to_device("),
    "forward": ("loop.py", "train", "logits = trainer.model(images)"),
    "loss": ("loop.py", "train", "loss = cross_entropy("),
    "optimizer": ("loop.py", "train", "trainer.scaler.step("),
    "growth": ("pathologies.py", "after_backward", "self.kept.append("),
}
"""What a tensor is for -> file of cifar_train, function and statement that allocate it."""

AUTOGRAD: Frames = (("??", 0, "torch::autograd::Engine::evaluate_function"),)
"""Backward runs in a thread of autograd's, which has no Python function."""


class TensorLifetimes:
    """Plays one step after the other on an allocator.

    Every result of the forward pass and of the loss stays until the backward pass, which frees them in reverse order,
    evenly over its operators: an upper bound, since autograd does not need each of them. Results of backward live until
    two more came; gradients come evenly, the last parameter's first, and stay until zero_grad. Operators whose names
    end in `_` work in place; views and other work of the host allocate nothing. The library's workspaces, buffers of
    RCCL and the model's own buffers are left out.
    """

    def __init__(self, allocator: CachingAllocator, config: TrainConfig) -> None:
        self._allocator = allocator
        self._config = config
        self._parameters: list[int] = []
        self._batch: list[int] = []
        self._kept: list[int] = []
        self._short: deque[int] = deque()
        self._gradients: list[int] = []
        self._states_are_there = False

    def play(self, operators: Sequence[Operator], times_us: Sequence[int]) -> None:
        """One step; times_us says when each operator begins."""
        casts = {operator.index for operator in operators if operator.name == "aten::_to_copy"}
        phases: dict[str, list[tuple[int, list[int]]]] = {}
        for operator, time_us in zip(operators, times_us, strict=True):
            if operator.on_device and (sizes := _results(operator, casts)):
                phases.setdefault(operator.phase, []).append((time_us, sizes))
        if not self._parameters:
            self._parameters = parameter_bytes(operators)
            self._take(self._parameters, times_us[0], frames_of("model"))
        self._data(phases.get("data", []))
        for phase in ("forward", "loss"):
            for time_us, sizes in phases.get(phase, []):
                self._kept += self._take(sizes, time_us, frames_of(phase))
        self._backward(phases.get("backward", []))
        last = times_us[-1]
        if self._config.pathology == "memory-growth":
            self._take([max(self._parameters)], phases["optimizer"][0][0], frames_of("growth"))
        self._optimizer(phases.get("optimizer", []))
        self._release(self._gradients, last)

    def _data(self, results: list[tuple[int, list[int]]]) -> None:
        """The batch before is freed when this one is there."""
        before, self._batch = self._batch, []
        for time_us, sizes in results:
            self._batch += self._take(sizes, time_us, frames_of("data"))
        if results:
            self._release(before, results[-1][0])

    def _backward(self, results: list[tuple[int, list[int]]]) -> None:
        activations, parameters = len(self._kept), self._parameters[::-1]
        for done, (time_us, sizes) in enumerate(results, start=1):
            share = done / len(results)
            self._short += self._take(sizes, time_us, AUTOGRAD)
            new = parameters[len(self._gradients) : round(share * len(parameters))]
            self._gradients += self._take(new, time_us, AUTOGRAD)
            while len(self._short) > 2:
                self._allocator.free(self._short.popleft(), time_us)
            while len(self._kept) > round((1 - share) * activations):
                self._allocator.free(self._kept.pop(), time_us)
        self._release(self._short, results[-1][0] if results else 0)

    def _optimizer(self, results: list[tuple[int, list[int]]]) -> None:
        for place, (time_us, sizes) in enumerate(results):
            if place == 0 and not self._states_are_there:
                self._take(self._parameters * STATES, time_us, frames_of("optimizer"))
                self._states_are_there = True
            self._release(self._take(sizes, time_us, frames_of("optimizer")), time_us)

    def _take(self, sizes: Iterable[int], time_us: int, frames: Frames) -> list[int]:
        return [self._allocator.allocate(size, time_us, frames) for size in sizes]

    def _release(self, addresses: deque[int] | list[int], time_us: int) -> None:
        while addresses:
            self._allocator.free(addresses.pop(), time_us)


def _results(operator: Operator, casts: set[int]) -> list[int]:
    """Bytes of each tensor that an operator makes anew."""
    is_copy = operator.name == "aten::copy_"
    if operator.name.endswith("_") and not (is_copy and operator.parent in casts):
        return []
    if operator.name.startswith(("nccl:", "c10d::")):
        return []
    return [round(nbytes(tensor)) for tensor in operator.outputs if nbytes(tensor)]


@cache
def frames_of(what: str) -> Frames:
    """The line of the trainer in LINES, as a call stack of one function."""
    file, function, statement = LINES[what]
    lines = files("cifar_train").joinpath(file).read_text(encoding="utf-8").splitlines()
    (number,) = [place for place, line in enumerate(lines, start=1) if line.strip().startswith(statement)]
    return ((f"cifar_train/{file}", number, function),)
