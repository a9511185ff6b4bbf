"""Step times that include the device's work.

On a GPU, the host only launches work, so reading the host's clock between launches measures the
launches. This clock records events in the device's own stream instead. The events don't make the
host wait during the run. The clock reads them after one synchronization at the end.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from cifar_train.hooks import Hook, StepOutcome


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all launched work. On a CPU, return at once."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)


class StepClock(Hook):
    """Hook that records when each step starts and ends, and the step's outcome.

    Step times exclude what other hooks do between two steps, such as writing a trace.
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
        """Return the duration of every finished step in nanoseconds. Call it after the run."""
        synchronize(self._device)
        return [
            self._between(begin, end) for begin, end in zip(self._begins, self._ends, strict=False)
        ]

    def _between(self, begin: Any, end: Any) -> int:
        if self._device.type == "cpu":
            return end - begin
        # elapsed_time returns milliseconds.
        return round(begin.elapsed_time(end) * 1e6)
