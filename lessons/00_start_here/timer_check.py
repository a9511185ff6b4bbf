"""Check whether a timer measures all of the work and nothing else.

The check uses a device with a simulated clock, so its result is exact and the same on every
machine.

A second device works asynchronously without a GPU: a thread simulates a GPU stream. A timer that
misleads on a GPU also misleads on this device, but the device doesn't show how fast a GPU is.
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
"""Seconds that a launch takes."""

WORK_S = 2e-2
"""Seconds that the device takes for each piece of work."""

BACKLOG = 3
"""Number of pieces of work in the queue when the timer is first called."""

STEPS = 3
"""Number of calls to the timer."""

NO_CLOCK = (
    "Your timer never reads the clock. Call `clock()`, which your timer receives as an argument."
)
NOT_LAUNCHED = "Launch the work exactly once with `device.launch(work)`."
NO_WAIT = (
    "You read the clock before the device finished, so you measured only the launch. Call"
    " `device.synchronize()` before the second reading."
)
WAIT_OUTSIDE = (
    "You wait for the device only after the second reading, so the interval doesn't include the"
    " wait. Call `device.synchronize()` before you read the clock."
)
OLD_WORK = (
    "The time of your first step includes work that was launched before this step. Also call"
    " `device.synchronize()` before the first reading."
)
WRONG_UNIT = (
    "Your timer measures the right interval but doesn't return seconds. Remove the factor that"
    " converts the unit."
)


class CountedDevice:
    """A device with a simulated clock: a launch takes LAUNCH_S, each piece of work WORK_S, and
    everything else takes no time.
    """

    def __init__(self) -> None:
        self.launched = 0
        self.readings = 0
        self._now = 0.0
        self._free_at = 0.0

    @property
    def idle(self) -> bool:
        """True if all launched work is done."""
        return self._now >= self._free_at

    def launch(self, work: Work) -> None:
        """Queue work, which starts when all earlier work is done."""
        self._now += LAUNCH_S
        self.launched += 1
        self._free_at = max(self._free_at, self._now) + WORK_S

    def synchronize(self) -> None:
        """Move the clock to the end of all launched work."""
        self._now = max(self._now, self._free_at)

    def clock(self) -> float:
        """Return the time in seconds."""
        self.readings += 1
        return self._now


def check_timer(timer: Timer) -> str | None:
    """Return None if each time that `timer` returns covers the work of its step and no other work,
    otherwise what is wrong.
    """
    if not callable(timer):
        return (
            f"Your answer is of type `{type(timer).__name__}`. Assign the name of a function"
            " without parentheses."
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
        return f"{NOT_LAUNCHED} You launched it {device.launched - launched} times."
    if device.readings == readings:
        return NO_CLOCK
    if not isinstance(seconds, numbers.Real) or not math.isfinite(seconds):
        return f"Your timer returned `{seconds!r:.60}`. Return the time of one step in seconds."
    scales = (1, 1e3, 1e6, 1e9)  # seconds, or a smaller unit by mistake
    if any(math.isclose(seconds, LAUNCH_S * scale, rel_tol=0.1) for scale in scales):
        return WAIT_OUTSIDE if device.idle else NO_WAIT
    right = LAUNCH_S + WORK_S
    if any(math.isclose(seconds, right * scale, rel_tol=0.1) for scale in scales[1:]):
        return WRONG_UNIT
    if math.isclose(seconds, right, rel_tol=0.1):
        return None
    return OLD_WORK if seconds > right else NO_WAIT


def _nothing() -> None:
    """Do nothing: the simulated clock adds the duration."""


Work = Callable[[], object]
Clock = Callable[[], float]

MATRIX_SIZE = 600
"""Rows of the square matrices. A product takes some milliseconds on one core."""


class Device(Protocol):
    """The methods of a device that a timer can call."""

    def launch(self, work: Work) -> None:
        """Queue work and return immediately."""

    def synchronize(self) -> None:
        """Wait until all launched work is done."""


Timer = Callable[[Device, Work, Clock], float]
"""A timer of one step: (device, work, clock) -> seconds. `clock()` also returns seconds."""


class StandInDevice:
    """A worker thread that does launched work in order while the caller continues."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stand-in-device")
        self._waiting: list[Future[None]] = []
        self._worked_ns: list[int] = []

    def launch(self, work: Work) -> None:
        """Queue work and return immediately."""
        self._waiting.append(self._worker.submit(self._do, work))

    def synchronize(self) -> None:
        """Wait until all launched work is done. As on a GPU, this raises the errors of the work."""
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            piece.result()

    @property
    def worked_ns(self) -> list[int]:
        """Nanoseconds that the device took for each finished piece of work, in order."""
        return list(self._worked_ns)

    def close(self) -> None:
        """Finish the launched work and end the thread."""
        self._worker.shutdown(wait=True)

    def _do(self, work: Work) -> None:
        begin = time.perf_counter_ns()
        work()
        self._worked_ns.append(time.perf_counter_ns() - begin)


def matrix_work(size: int = MATRIX_SIZE) -> Work:
    """Return real work: the product of two `size` by `size` matrices, which releases the GIL."""
    matrix = np.random.default_rng(0).random((size, size), dtype=np.float32)
    target = np.empty_like(matrix)
    return lambda: np.matmul(matrix, matrix, out=target)
