"""The stand-in device, in order and asynchronous, and timers that are told apart without looking at
a real clock.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from proflab.parts.timer_check import (
    CountedDevice,
    StandInDevice,
    check_timer,
)

from proflab.exercises import exercises_of
from proflab.parts import timer_check

waiting_timer = exercises_of("00").waiting_timer
honest_timer, lying_timer = waiting_timer("before", "inside"), waiting_timer()
late_wait_timer, one_sided_timer = waiting_timer("after"), waiting_timer("inside")


def test_launch_returns_before_the_work_is_done_and_synchronize_after() -> None:
    device, gate, done = StandInDevice(), threading.Event(), []
    device.launch(lambda: (gate.wait(60), done.append("first")))
    device.launch(lambda: done.append("second"))
    assert done == []  # the launches returned although the first piece can't end yet
    gate.set()
    device.synchronize()
    assert done == ["first", "second"]
    assert len(device.worked_ns) == 2
    device.close()


def test_an_error_of_the_work_appears_at_the_next_wait() -> None:
    device = StandInDevice()
    device.launch(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        device.synchronize()
    device.synchronize()
    device.close()


def by_events(device: CountedDevice, work: Callable, clock: Callable) -> float:
    device.synchronize()
    device.synchronize()
    begin, _ = clock(), device.launch(work)
    device.synchronize()
    return clock() - begin


def twice(device: CountedDevice, work: Callable, clock: Callable) -> float:
    device.launch(work)
    return honest_timer(device, work, clock)


def without_device(device: CountedDevice, work: Callable, clock: Callable) -> float:
    begin = clock()
    work()
    return clock() - begin


def other_clock(device: CountedDevice, work: Callable, clock: Callable) -> float:
    device.launch(work)
    device.synchronize()
    return 0.02


def late_launch(device: CountedDevice, work: Callable, clock: Callable) -> float:
    device.synchronize()
    begin = clock()
    device.synchronize()
    end = clock()
    device.launch(work)
    return end - begin


@pytest.mark.parametrize("timer", [honest_timer, by_events])
def test_timers_that_cover_the_work_pass(timer: Callable) -> None:
    assert check_timer(timer) is None


@pytest.mark.parametrize(
    ("timer", "message"),
    [
        (lying_timer, timer_check.NO_WAIT),
        (late_wait_timer, timer_check.WAIT_OUTSIDE),
        (one_sided_timer, timer_check.OLD_WORK),
        (late_launch, timer_check.NO_WAIT),
        (twice, timer_check.NOT_LAUNCHED),
        (without_device, timer_check.NOT_LAUNCHED),
        (other_clock, timer_check.NO_CLOCK),
        (
            lambda device, work, clock: [honest_timer(device, work, clock)],
            "`",
        ),
        (
            lambda device, work, clock: honest_timer(device, work, clock) * float("nan"),
            "`",
        ),
        (
            lambda device, work, clock: honest_timer(device, work, clock) and None,
            "`",
        ),
        (0.02, "A function is asked"),
    ],
)
def test_timers_that_do_not_are_told_why(timer: Callable, message: str) -> None:
    assert message in check_timer(timer)


def test_a_timer_that_fails_later_is_found() -> None:
    calls = itertools.count()
    assert check_timer(lambda *given: (honest_timer if next(calls) == 0 else lying_timer)(*given))
