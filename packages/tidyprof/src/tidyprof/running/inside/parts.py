"""The parts of a step, and the time that the host spends in each. It is in one part at a time."""

from __future__ import annotations

import os
import threading
import time
from types import ModuleType
from typing import Any

SCHEDULER = "/proc/thread-self/schedstat"
"""Linux's file whose second number is the time in ns that a thread waited for a CPU core."""

DECODE = "decode"
"""The call of a language model with one token of each text."""

BETWEEN = "between steps"
"""From the optimizer's step to the first call of a module: a loop without a DataLoader makes its
batch there.
"""

REST = "other"
"""The part for all time that belongs to no other part."""


class Parts:
    """The time in ns that the thread that makes the steps spends in each part."""

    def __init__(self, torch: ModuleType) -> None:
        self.record_function = torch.autograd.profiler.record_function
        self.watchers = torch._C._len_torch_dispatch_stack
        """Function that returns how many modes of the program see every operator, and so the
        ranges that this class makes in a trace.
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
        """Note that the host enters this part. Returns the part before, for `leave`; None on a
        thread that makes no steps.

        The first thread that does more than fetch data is the one that makes the steps: other
        threads may fetch ahead for it.
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
        """Note that the host is back in the part that `enter` returned, or in one that follows."""
        if before is not None:
            self.switch(before)

    def switch(self, part: str) -> None:
        """Note that the host is in this part now."""
        now = time.perf_counter_ns()
        self.sums[self.part] = self.sums.get(self.part, 0) + now - self.since
        if self.in_trace:
            self._end_piece()
            self._begin_piece(part)
        self.part = part
        self.since = now

    def take(self) -> dict[str, int]:
        """The sums so far, in ns; they begin anew."""
        self.switch(self.part)
        sums, self.sums = self.sums, {}
        return sums

    def trace(self, on: bool) -> None:
        """Begin or end to keep each piece of a part for itself, with a range in the trace and the
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
        """Return the time, this thread's CPU time, and how long it waited for a CPU core if Linux
        states it.
        """
        clocks = [time.perf_counter_ns(), time.thread_time_ns()]
        if self.has_scheduler:
            with open(SCHEDULER) as file:
                clocks.append(int(file.read().split()[1]))
        return clocks
