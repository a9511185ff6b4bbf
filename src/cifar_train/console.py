"""Terminal output of a running job."""

from __future__ import annotations

import sys
import time

from cifar_train.hooks import Hook, StepOutcome
from tidyprof.standard_streams import PAGE_COLUMNS, as_shown

SECONDS_BETWEEN_LINES = 5.0
"""Minimum time in seconds between two progress lines. The value is arbitrary."""


def say(message: str) -> None:
    """Print one message to standard output. Notebooks show standard error in red."""
    print(as_shown(f"cifar_train: {message}", sys.stdout, PAGE_COLUMNS), flush=True)


class Progress(Hook):
    """Hook that counts launched steps.

    The hook doesn't show throughput or loss because computing them would make the host wait for
    the device.
    """

    def __init__(self, planned_steps: int) -> None:
        self._planned = planned_steps
        self._last_line = time.monotonic()

    def step_end(self, outcome: StepOutcome) -> None:
        """Print a progress line if enough time has passed since the last one."""
        done = outcome.step + 1
        if done == self._planned or time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            say(f"step {done} of {self._planned}")
            self._last_line = time.monotonic()
