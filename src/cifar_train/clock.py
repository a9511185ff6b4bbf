"""Honest step times: every interval spans finished device work.

On a GPU the host only launches work, so a host clock read between launches measures
launching. Here events are recorded in the device's own stream, which waits for nothing
during the run; they are read after one synchronization at the end.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from cifar_train.hooks import Hook, StepOutcome


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all launched work; nothing to do on a CPU."""
    if device.type != "cpu":
        torch.cuda.synchronize(device)


class StepClock(Hook):
    """Records when each step begins and ends, and what it did.

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
        """Mark the beginning."""
        self._begins.append(self._mark())

    def step_end(self, outcome: StepOutcome) -> None:
        """Mark the end and keep the outcome."""
        self._ends.append(self._mark())
        self.outcomes.append(outcome)

    @property
    def durations_ns(self) -> list[int]:
        """Duration of every finished step in nanoseconds; call after the run."""
        synchronize(self._device)
        return [
            self._between(begin, end) for begin, end in zip(self._begins, self._ends, strict=False)
        ]

    def _between(self, begin: Any, end: Any) -> int:
        if self._device.type == "cpu":
            return end - begin
        # elapsed_time gives milliseconds.
        return round(begin.elapsed_time(end) * 1e6)
