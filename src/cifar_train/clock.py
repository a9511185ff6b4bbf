"""Step times that include the device's work.

The host only launches GPU work, so host clock readings measure only the launches. This clock
therefore records events in the device's stream. The events don't block the host during the run. The
clock synchronizes once at the end and then reads the events.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from cifar_train.hooks import Hook, StepOutcome


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all launched work. On a CPU, return immediately."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)


class StepClock(Hook):
    """Hook that records the start, the end and the outcome of each step.

    Step times exclude work that other hooks do between two steps, such as writing a trace.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begins: list[Any] = []
        self._ends: list[Any] = []
        self.outcomes: list[StepOutcome] = []

    def _mark(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def step_begin(self, step: int) -> None:
        """Record the start of the step."""
        self._begins.append(self._mark())

    def step_end(self, outcome: StepOutcome) -> None:
        """Record the end of the step and keep its outcome."""
        self._ends.append(self._mark())
        self.outcomes.append(outcome)

    @property
    def durations_ns(self) -> list[int]:
        """Return the duration of each finished step in nanoseconds. Call it after the run."""
        synchronize(self._device)
        return [
            self._between(begin, end) for begin, end in zip(self._begins, self._ends, strict=False)
        ]

    def _between(self, begin: Any, end: Any) -> int:
        if self._device.type == "cpu":
            return end - begin
        # elapsed_time returns milliseconds.
        return round(begin.elapsed_time(end) * 1e6)
