"""Hook points of the training loop, hooks other than profilers, and what a SIGTERM does."""

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
"""Names of the ranges that mark a step, in order."""


@dataclass(frozen=True)
class StepOutcome:
    """What one step did: its 0-based number, epoch, number of images, and the loss.

    `loss` is a detached scalar on the device, so that handing it over waits for nothing.
    """

    step: int
    epoch: int
    images: int
    loss: torch.Tensor


class Hook:
    """A hook that does nothing at any point: the null hook, and the base of all others.

    A hook is entered before the first step and left after the last one, whatever ended the run.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        return None

    def step_begin(self, step: int) -> None:
        """Before the batch is asked for."""

    def after_data(self, step: int) -> None:
        """The batch has been handed to the device."""

    def after_forward(self, step: int) -> None:
        """The model's output has been computed, or at least launched."""

    def after_loss(self, step: int) -> None:
        """The loss has been launched."""

    def after_backward(self, step: int) -> None:
        """Gradients have been launched."""

    def step_end(self, outcome: StepOutcome) -> None:
        """The optimizer's update has been launched."""


class Hooks(Hook):
    """Several hooks as one, from the outermost to the innermost.

    Every point calls them in order, `step_end` in reverse, so that the first hook encloses the
    others.
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
    """Marks the five phases of a step with begin(name) and end(), one range at a time."""

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
    """Call `handler` for a SIGTERM that comes within the block. Outside of the main thread
    Python allows no handlers, so there nothing changes.
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
    """Let a SIGTERM act only at the end of the block, so that files which are written in it are
    whole.
    """
    arrived: list[int] = []
    try:
        with on_sigterm(lambda number, frame: arrived.append(number)):
            yield
    finally:
        if arrived:
            signal.raise_signal(signal.SIGTERM)
