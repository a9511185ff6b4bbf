"""Does a timer measure all of the work and nothing else? Decided on a device whose time is counted,
not measured.

The answer is therefore exact and the same on every machine, however busy it is.

Also an asynchronous device without a GPU: a thread with real work that stands in for a GPU's
stream. A program hands work to a GPU and goes on at once; the GPU does it later, in order. A worker
thread behaves in the same way, so a clock that misleads on a GPU misleads here, too. It is no model
of a GPU: it does not tell how fast a GPU is.
"""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

LAUNCH_S = 1e-5
"""Time that a launch takes from the caller here, in seconds."""

WORK_S = 2e-2
"""Time that each piece of work takes on the device here, in seconds."""

BACKLOG = 3
"""Number of pieces of work that are still running when the timer is first called."""

STEPS = 3
"""Number of calls of the timer."""

NO_CLOCK = "Your timer never read the time: call the `clock` that it is given, not another one."
NOT_LAUNCHED = "Launch the work exactly once, with `device.launch(work)`."
NO_WAIT = (
    "Your clock stopped before the device had finished: it measured launching. Call"
    " `device.synchronize()` before the second reading."
)
WAIT_OUTSIDE = (
    "You do wait for the device, but after the second reading: the wait is in no interval. "
    "Read the clock after `device.synchronize()`."
)
OLD_WORK = (
    "Your first step contains work that was launched before it. Synchronize at both ends: also"
    " before the first reading."
)


class CountedDevice:
    """A device with a clock of its own: a launch takes LAUNCH_S, each piece of work WORK_S, and
    nothing else takes any time.
    """

    def __init__(self) -> None:
        self.launched = 0
        self.readings = 0
        self._now = 0.0
        self._free_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether all launched work is done."""
        return self._now >= self._free_at

    def launch(self, work: Work) -> None:
        """Hand over work; it begins when all work launched before is done."""
        self._now += LAUNCH_S
        self.launched += 1
        self._free_at = max(self._free_at, self._now) + WORK_S

    def synchronize(self) -> None:
        """Move the clock to the end of all launched work."""
        self._now = max(self._now, self._free_at)

    def clock(self) -> float:
        """The time in seconds."""
        self.readings += 1
        return self._now


def check_timer(timer: Timer) -> str | None:
    """None if each time that `timer` returns covers the work of its step and no other; else what is
    wrong.
    """
    if not callable(timer):
        return (
            f"A function is asked, this is a {type(timer).__name__}: hand over its name, without"
            " brackets."
        )
    device = CountedDevice()
    for _ in range(BACKLOG):
        device.launch(_nothing)
    problems = (_problem_of_step(timer, device) for _ in range(STEPS))
    return next(filter(None, problems), None)


def _problem_of_step(timer: Timer, device: CountedDevice) -> str | None:
    launched, readings = device.launched, device.readings
    seconds = timer(device, _nothing, device.clock)
    if device.launched != launched + 1:
        return f"{NOT_LAUNCHED} It was launched {device.launched - launched} times."
    if device.readings == readings:
        return NO_CLOCK
    if not isinstance(seconds, numbers.Real) or not math.isfinite(seconds):
        return f"Your timer must return the seconds of one step; it returned `{seconds!r:.60}`."
    # A launch is far shorter than the work, so half of the work tells every mistake from rounding.
    if seconds < 0.5 * WORK_S:
        return WAIT_OUTSIDE if device.idle else NO_WAIT
    return OLD_WORK if seconds > 1.5 * WORK_S else None


def _nothing() -> None:
    """Work without effect: the counted device gives it its duration."""


Work = Callable[[], object]
Clock = Callable[[], float]

MATRIX_SIZE = 600
"""Rows of the square matrices in one piece of work, which takes some milliseconds on one core."""


class Device(Protocol):
    """What a timer sees of a device."""

    def launch(self, work: Work) -> None:
        """Hand over work and return at once."""

    def synchronize(self) -> None:
        """Wait until all launched work is done."""


Timer = Callable[[Device, Work, Clock], float]
"""A timer of one step: (device, work, clock) -> seconds. `clock()` returns seconds."""


class StandInDevice:
    """A worker thread that does launched work in order while the caller goes on."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stand-in-device")
        self._waiting: list[Future[None]] = []
        self._worked_ns: list[int] = []

    def launch(self, work: Work) -> None:
        """Hand over work and return at once."""
        self._waiting.append(self._worker.submit(self._do, work))

    def synchronize(self) -> None:
        """Wait until all launched work is done; an error of the work is raised here, as on a
        GPU.
        """
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            piece.result()

    @property
    def worked_ns(self) -> list[int]:
        """Time that each finished piece of work took on the device itself, in ns, in order."""
        return list(self._worked_ns)

    def close(self) -> None:
        """Finish the launched work and end the thread."""
        self._worker.shutdown(wait=True)

    def _do(self, work: Work) -> None:
        begin = time.perf_counter_ns()
        work()
        self._worked_ns.append(time.perf_counter_ns() - begin)


def matrix_work(size: int = MATRIX_SIZE) -> Work:
    """Real work: the product of two `size` by `size` matrices, computed without Python's global
    lock.
    """
    matrix = np.random.default_rng(0).random((size, size), dtype=np.float32)
    target = np.empty_like(matrix)
    return lambda: np.matmul(matrix, matrix, out=target)
