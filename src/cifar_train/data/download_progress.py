"""How far a transfer has come: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self

from cifar_train.console import say

LINES = 10
"""Plain lines per transfer of known size, one for each tenth."""

BYTES_PER_LINE = 16_000_000
"""Where the size is unknown."""

SECONDS_PER_LINE = 60.0
"""A slow transfer says at least this often that it is alive."""


class Progress(Protocol):
    """What a transfer needs of either form."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *details: Any) -> None: ...

    def update(self, received: int) -> Any:
        """Count `received` more bytes."""


def show_progress(total: int | None, done: int, bar: bool | None) -> Progress:
    """Progress of a transfer of `total` bytes (None: unknown) of which `done` are already there.

    `bar` chooses between bar and plain lines; None takes the bar on a terminal.
    """
    if bar if bar is not None else sys.stderr.isatty():
        from tqdm import tqdm

        return tqdm(total=total, initial=done, unit="B", unit_scale=True, desc="CIFAR-100")
    return PlainLines(total, done)


class PlainLines:
    """A line on standard error for each tenth of the transfer, and for each minute."""

    def __init__(self, total: int | None, done: int) -> None:
        self._total = total
        self._done = done
        self._step = max(1, total // LINES) if total else BYTES_PER_LINE
        self._next = (done // self._step + 1) * self._step
        self._last_time = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, received: int) -> None:
        """Count `received` more bytes and print a line if one is due."""
        self._done += received
        now = time.monotonic()
        if self._done < self._next and now - self._last_time < SECONDS_PER_LINE:
            return
        self._next = (self._done // self._step + 1) * self._step
        self._last_time = now
        say(self._line())

    def _line(self) -> str:
        if not self._total:
            return f"{self._done / 1e6:.1f} MB"
        return f"{self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB ({100 * self._done / self._total:.0f} %)"
