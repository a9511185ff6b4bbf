"""Training-loop hooks that don't profile, and SIGTERM handling."""

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
"""Names of a step's phase ranges, in order."""


@dataclass(frozen=True)
class StepOutcome:
    """Result of one step: its zero-based number, its epoch, its number of images and its loss.

    `loss` is a detached scalar on the device. Passing the loss to hooks therefore doesn't block
    the host.
    """

    step: int
    epoch: int
    images: int
    loss: torch.Tensor


class Hook:
    """Base class of all hooks. The methods do nothing, so the class also serves as a null hook.

    The loop enters a hook before the first step. The loop exits the hook after the last step,
    even if the run fails.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        return None

    def step_begin(self, step: int) -> None:
        """Run before the loop requests a batch."""

    def after_data(self, step: int) -> None:
        """Run after the loop passes the batch to the device."""

    def after_forward(self, step: int) -> None:
        """Run after the host computes or launches the forward pass."""

    def after_loss(self, step: int) -> None:
        """Run after the host launches the loss computation."""

    def after_backward(self, step: int) -> None:
        """Run after the host launches the backward pass."""

    def step_end(self, outcome: StepOutcome) -> None:
        """Run after the host launches the optimizer update."""


class Hooks(Hook):
    """Several hooks combined into one, ordered from outermost to innermost.

    Most hook points call the hooks in this order, but `step_end` calls them in reverse. The
    first hook therefore encloses the other hooks.
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
    """Hook that marks the five phases of a step by calling begin(name) and end(), one range at a
    time.
    """

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
    """Call `handler` if SIGTERM arrives during the block.

    Python allows signal handlers only in the main thread, so the block has no effect in other
    threads.
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
    """Delay SIGTERM until the block ends, so that the block can finish writing its files."""
    arrived: list[int] = []
    try:
        with on_sigterm(lambda number, frame: arrived.append(number)):
            yield
    finally:
        if arrived:
            signal.raise_signal(signal.SIGTERM)
