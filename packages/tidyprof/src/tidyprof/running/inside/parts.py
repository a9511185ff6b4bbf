"""Measure the host time in each part of a step. Parts don't overlap."""

from __future__ import annotations

import os
import threading
import time
from types import ModuleType
from typing import Any

SCHEDULER = "/proc/thread-self/schedstat"
"""A Linux file whose second number is the time in ns that a thread has waited for a CPU core."""

BETWEEN = "between steps"
"""The part from an optimizer step to the next module call. A loop without a DataLoader builds its
batch in this part.
"""

REST = "other"
"""The part for time that doesn't belong to any other part."""


class Parts:
    """The time in ns that the training thread spends in each part."""

    def __init__(self, torch: ModuleType) -> None:
        self.record_function = torch.autograd.profiler.record_function
        self.watchers = torch._C._len_torch_dispatch_stack
        """A function that returns the number of dispatch modes in the program. Such modes see every
        operator, so they would also see the ranges that this class adds to a trace.
        """
        self.has_scheduler = os.path.exists(SCHEDULER)
        self.thread: int | None = None
        self.part = REST
        self.since = time.perf_counter_ns()
        self.sums: dict[str, int] = {}
        self.in_trace = False
        self.pieces: list[list[Any]] = []
        self._range: Any = None
        self._began, self._clocks = 0, [0]

    def enter(self, part: str) -> str | None:
        """Record that the host enters this part.

        Return the previous part for `leave`, or None on other threads. The training thread is the
        first thread that does more than fetch data, because other threads may only prefetch.
        """
        this = threading.get_ident()
        if self.thread is None and part != "data":
            self.thread = this
        if self.thread != this:
            return None
        before = self.part
        self.switch(part)
        return before

    def leave(self, before: str | None) -> None:
        """Record that the host leaves a part, usually for the part that `enter` returned."""
        if before is not None:
            self.switch(before)

    def switch(self, part: str) -> None:
        """Record that the host switches to this part."""
        now = time.perf_counter_ns()
        self.sums[self.part] = self.sums.get(self.part, 0) + now - self.since
        if self.in_trace:
            self._end_piece()
            self._begin_piece(part)
        self.part = part
        self.since = now

    def take(self) -> dict[str, int]:
        """Return the current sums in ns, and reset the sums."""
        self.switch(self.part)
        sums, self.sums = self.sums, {}
        return sums

    def trace(self, on: bool) -> None:
        """Start or stop recording the intervals of all parts. Each interval has a range in the
        trace and readings of the thread's clocks.
        """
        if on:
            self._begin_piece(self.part)
        elif self.in_trace:
            self._end_piece()
        self.in_trace = on

    def _begin_piece(self, part: str) -> None:
        if part != REST and not self.watchers():
            self._range = self.record_function(part)
            self._range.__enter__()
        self._began, self._clocks = time.time_ns(), self._read_clocks()

    def _end_piece(self) -> None:
        spent = [now - then for now, then in zip(self._read_clocks(), self._clocks, strict=False)]
        self.pieces.append([self.part, self._began, *spent])
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None

    def _read_clocks(self) -> list[int]:
        """Return the current time and this thread's CPU time. If Linux reports the time that the
        thread waited for a CPU core, return that time, too.
        """
        clocks = [time.perf_counter_ns(), time.thread_time_ns()]
        if self.has_scheduler:
            with open(SCHEDULER) as file:
                clocks.append(int(file.read().split()[1]))
        return clocks
