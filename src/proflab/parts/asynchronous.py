"""An asynchronous device without a GPU: a thread that stands in for a GPU's stream, with real work.

A program hands work to a GPU and goes on at once; the GPU does it later, in order. A worker
thread behaves in the same way, so a clock that misleads on a GPU misleads here too. It is no
model of a GPU: it says nothing about how fast one is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

Work = Callable[[], object]
Clock = Callable[[], float]

MATRIX_SIZE = 600
"""Rows of the square matrices in one piece of work: some milliseconds on one core."""


class Device(Protocol):
    """What a timer sees of a device."""

    def launch(self, work: Work) -> None:
        """Hand over work and return at once."""

    def synchronize(self) -> None:
        """Wait until all launched work is done."""


Timer = Callable[[Device, Work, Clock], float]
"""A timer of one step: (device, work, clock) -> seconds. `clock()` gives seconds."""


class StandInDevice:
    """One worker thread that does launched work in order while the caller goes on."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stand-in-device")
        self._waiting: list[Future[None]] = []
        self._worked_ns: list[int] = []

    def launch(self, work: Work) -> None:
        """Hand over work and return at once."""
        self._waiting.append(self._worker.submit(self._do, work))

    def synchronize(self) -> None:
        """Wait until all launched work is done; an error of the work is raised here, as on a GPU."""
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            piece.result()

    @property
    def worked_ns(self) -> list[int]:
        """How long each finished piece of work took on the device itself, in nanoseconds, in order."""
        return list(self._worked_ns)

    def close(self) -> None:
        """Finish what was launched and end the thread."""
        self._worker.shutdown(wait=True)

    def _do(self, work: Work) -> None:
        begin = time.perf_counter_ns()
        work()
        self._worked_ns.append(time.perf_counter_ns() - begin)


def matrix_work(size: int = MATRIX_SIZE) -> Work:
    """Real work: the product of two `size` by `size` matrices, done without holding Python's lock."""
    matrix = np.random.default_rng(0).random((size, size), dtype=np.float32)
    target = np.empty_like(matrix)
    return lambda: np.matmul(matrix, matrix, out=target)
