"""The parts of a step, and the time that the host spends in each part. Parts don't overlap."""

from __future__ import annotations

import os
import threading
import time
from types import ModuleType
from typing import Any

SCHEDULER = "/proc/thread-self/schedstat"
"""The Linux file whose second number is the time in ns that a thread waited for a CPU core."""

DECODE = "decode"
"""A language model call with one token per sequence."""

BETWEEN = "between steps"
"""The time from the optimizer's step to the first module call. A loop without a DataLoader builds
its batch in this part.
"""

REST = "other"
"""The part for time that doesn't belong to any other part."""


class Parts:
    """The time in ns that the training thread spends in each part."""

    def __init__(self, torch: ModuleType) -> None:
        self.record_function = torch.autograd.profiler.record_function
        self.watchers = torch._C._len_torch_dispatch_stack
        """A function that returns how many of the program's modes see every operator. These modes
        would also see the ranges that this class adds to a trace.
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
        """Record that the host is back in the part that `enter` returned, or in a later part."""
        if before is not None:
            self.switch(before)

    def switch(self, part: str) -> None:
        """Record that the host is in this part now."""
        now = time.perf_counter_ns()
        self.sums[self.part] = self.sums.get(self.part, 0) + now - self.since
        if self.in_trace:
            self._end_piece()
            self._begin_piece(part)
        self.part = part
        self.since = now

    def take(self) -> dict[str, int]:
        """Return the sums so far in ns, and reset them."""
        self.switch(self.part)
        sums, self.sums = self.sums, {}
        return sums

    def trace(self, on: bool) -> None:
        """Start or stop recording each interval of a part, with a range in the trace and the
        thread's clocks.
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
        """Return the time and this thread's CPU time. If Linux reports it, also return how long the
        thread waited for a CPU core.
        """
        clocks = [time.perf_counter_ns(), time.thread_time_ns()]
        if self.has_scheduler:
            with open(SCHEDULER) as file:
                clocks.append(int(file.read().split()[1]))
        return clocks
