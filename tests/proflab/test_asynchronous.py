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
    begin, _ = clock(), device.launch(work)
    device.synchronize()
    return clock() - begin


def twice(device: CountedDevice, work: Callable, clock: Callable) -> float:
    device.launch(work)
    return honest_timer(device, work, clock)


def other_clock(device: CountedDevice, work: Callable, clock: Callable) -> float:
    device.launch(work)
    device.synchronize()
    return 0.02


calls = itertools.count()


def lies_later(*given: object) -> float:
    return (lying_timer if next(calls) else honest_timer)(*given)


@pytest.mark.parametrize(
    ("timer", "message"),
    [
        (honest_timer, None),
        (by_events, None),
        (lying_timer, timer_check.NO_WAIT),
        (late_wait_timer, timer_check.WAIT_OUTSIDE),
        (one_sided_timer, timer_check.OLD_WORK),
        (lies_later, timer_check.NO_WAIT),
        (twice, timer_check.NOT_LAUNCHED),
        (other_clock, timer_check.NO_CLOCK),
        (lambda *given: 1e3 * honest_timer(*given), timer_check.WRONG_UNIT),
        (lambda *given: 1e3 * lying_timer(*given), timer_check.NO_WAIT),
        (lambda *given: 1e3 * late_wait_timer(*given), timer_check.WAIT_OUTSIDE),
        (lambda *given: [honest_timer(*given)], "returned"),
        (lambda *given: honest_timer(*given) * float("nan"), "returned"),
        (0.02, "float"),
    ],
)
def test_each_timer_is_judged(timer: Callable, message: str | None) -> None:
    said = check_timer(timer)
    assert said is None if message is None else message in said
