"""What a running job shows: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from typing import Self

from tqdm import tqdm

from cifar_train.hooks import Hook, StepOutcome
from tidyprof.standard_streams import PAGE_COLUMNS, as_shown

SECONDS_BETWEEN_LINES = 5.0
"""Shortest time between two lines on progress in a log; a choice."""


def say(message: str) -> None:
    """Print one piece of news. A notebook shows standard error in red, so this takes the other."""
    print(as_shown(f"cifar_train: {message}", sys.stdout, PAGE_COLUMNS), flush=True)


class Progress(Hook):
    """Counts launched steps, and estimates how long the others take at the same rate.

    It shows neither images/s nor loss, since for both it would have to wait for the device.
    """

    def __init__(self, planned_steps: int) -> None:
        self._planned = planned_steps
        self._bar: tqdm | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            shape = "{desc}{bar}| {n_fmt}/{total_fmt} steps, {remaining} left"
            self._bar = tqdm(total=self._planned, unit="step", bar_format=shape)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step_end(self, outcome: StepOutcome) -> None:
        """Move the bar, or write a line now and then."""
        done = outcome.step + 1
        if self._bar is not None:
            self._bar.update()
        elif done == self._planned or time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            say(f"step {done} of {self._planned}")
            self._last_line = time.monotonic()
