"""Hook points of the training loop, hooks other than profilers, and SIGTERM handling."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch

PHASES = ("data", "forward", "loss", "backward", "optimizer")
"""Names of the ranges that mark the phases of a step, in order."""


@dataclass(frozen=True)
class StepOutcome:
    """Result of one step: its 0-based number, epoch, number of images, and loss.

    `loss` is a detached scalar on the device, so passing it to hooks doesn't make the host wait.
    """

    step: int
    epoch: int
    images: int
    loss: torch.Tensor


class Hook:
    """A hook that does nothing at any point: the null hook, and the base class of all hooks.

    A hook is entered before the first step and exited after the last one, no matter how the run
    ended.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        return None

    def step_begin(self, step: int) -> None:
        """Run before the loop asks for a batch."""

    def after_data(self, step: int) -> None:
        """Run after the batch was passed to the device."""

    def after_forward(self, step: int) -> None:
        """Run after the model's output was computed or at least launched."""

    def after_loss(self, step: int) -> None:
        """Run after the loss was launched."""

    def after_backward(self, step: int) -> None:
        """Run after the gradients were launched."""

    def step_end(self, outcome: StepOutcome) -> None:
        """Run after the optimizer's update was launched."""


class Hooks(Hook):
    """Several hooks combined into one, from the outermost to the innermost.

    Each hook point calls the hooks in order, except that `step_end` calls them in reverse. The
    first hook therefore encloses the others.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._stack = ExitStack()
        for point in ("step_begin", "after_data", "after_forward", "after_loss", "after_backward"):
            setattr(self, point, partial(_call, [getattr(hook, point) for hook in self._hooks]))
        self.step_end = partial(_call, [hook.step_end for hook in reversed(self._hooks)])

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for hook in self._hooks:
                stack.enter_context(hook)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: Any) -> None:
        self._stack.__exit__(*details)


def _call(calls: list[Callable[[Any], None]], argument: Any) -> None:
    for call in calls:
        call(argument)


class PhaseRanges(Hook):
    """Hook that marks the five phases of a step with begin(name) and end(), one range at a time."""

    def __init__(self, begin: Callable[[str], None], end: Callable[[], None]) -> None:
        def switch(name: str) -> Callable[[int], None]:
            def at(step: int) -> None:
                end()
                begin(name)

            return at

        self.step_begin = lambda step: begin(PHASES[0])
        self.after_data, self.after_forward, self.after_loss, self.after_backward = map(
            switch, PHASES[1:]
        )
        self.step_end = lambda outcome: end()


@contextmanager
def on_sigterm(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Call `handler` if a SIGTERM arrives within the block.

    Python allows signal handlers only in the main thread, so in other threads nothing changes.
    """
    try:
        previous = signal.signal(signal.SIGTERM, handler)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def sigterm_waits() -> Iterator[None]:
    """Delay a SIGTERM until the end of the block, so that the block can finish writing its
    files.
    """
    arrived: list[int] = []
    try:
        with on_sigterm(lambda number, frame: arrived.append(number)):
            yield
    finally:
        if arrived:
            signal.raise_signal(signal.SIGTERM)
