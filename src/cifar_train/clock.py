"""Honest step times: every interval spans finished device work.

On a GPU the host only launches work, so a host clock read between launches measures
launching. Here events are recorded in the device's own stream, which waits for nothing
during the run; they are read after one synchronisation at the end.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from cifar_train.hooks import Hook, StepOutcome


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all launched work; nothing to do on a CPU."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


class StepClock(Hook):
    """Records when each step begins and ends.

    durations_ns -- of each step, between its own begin and end marks: what other hooks do between
    two steps, such as writing a trace, is not counted.
    window_ns() -- host time from the begin of the first step after warm-up to the end of the last
    step, with the device synchronised at both ends.
    """

    def __init__(self, device: torch.device, warmup_steps: int) -> None:
        self._device = device
        self._warmup_steps = warmup_steps
        self._begins: list[Any] = []
        self._ends: list[Any] = []
        self.outcomes: list[StepOutcome] = []
        self._window_begin_ns: int | None = None
        self._window_end_ns: int | None = None

    def _mark(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter_ns()
        event = getattr(torch, self._device.type).Event(enable_timing=True)
        event.record()
        return event

    def step_begin(self, step: int) -> None:
        """Mark the beginning; the first step after warm-up opens the synchronised window."""
        if step == self._warmup_steps:
            synchronize(self._device)
            self._window_begin_ns = time.perf_counter_ns()
        self._begins.append(self._mark())

    def step_end(self, outcome: StepOutcome) -> None:
        """Mark the end and keep the outcome."""
        self._ends.append(self._mark())
        self.outcomes.append(outcome)

    def __exit__(self, *_: object) -> None:
        """Wait for the device and close the window."""
        synchronize(self._device)
        self._window_end_ns = time.perf_counter_ns()

    @property
    def durations_ns(self) -> list[int]:
        """Duration of every finished step in nanoseconds; call after the run."""
        return [
            self._between(begin, end) for begin, end in zip(self._begins, self._ends, strict=False)
        ]

    def window_ns(self) -> int | None:
        """Host time of all steps after warm-up in nanoseconds, or None if there was none."""
        if self._window_begin_ns is None or self._window_end_ns is None:
            return None
        return self._window_end_ns - self._window_begin_ns

    def _between(self, begin: Any, end: Any) -> int:
        if self._device.type == "cpu":
            return end - begin
        # elapsed_time gives milliseconds.
        return round(begin.elapsed_time(end) * 1e6)
