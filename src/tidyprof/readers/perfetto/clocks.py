"""Times of several clocks, brought to the one clock of a Perfetto trace."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any

REALTIME, BOOTTIME = 1, 6
CLOCK_NAMES = {
    REALTIME: "REALTIME",
    2: "REALTIME_COARSE",
    3: "MONOTONIC",
    4: "MONOTONIC_COARSE",
    5: "MONOTONIC_RAW",
    BOOTTIME: "BOOTTIME",
}
"""Clocks of Linux by their number in a trace (protos/perfetto/common/builtin_clock.proto of Perfetto)."""

_SEQUENCE_CLOCKS = range(64, 128)
"""Numbers of clocks that each sequence defines for itself (protos/perfetto/trace/clock_snapshot.proto)."""

Clock = int | tuple[int, int]
"""A clock's number; for one that a sequence defines, the sequence's number and the clock's."""


@dataclass
class SequenceClock:
    """A clock that one sequence of packets defined for itself.

    last -- its latest time in ns, from which the next one counts if the clock is incremental.
    """

    last: int
    multiplier: int
    is_incremental: bool

    def time(self, stated: int) -> int:
        """The time in ns of what a packet states."""
        time = stated * self.multiplier + (self.last if self.is_incremental else 0)
        self.last = time
        return time


class Clocks:
    """The clock of a trace, and how others relate to it.

    trace_clock -- number of the clock in which the trace counts, boot time unless it says otherwise.
    """

    def __init__(self) -> None:
        self.trace_clock = BOOTTIME
        self._stated = False
        self._own: dict[Clock, SequenceClock] = {}
        self._snapshots: list[dict[Clock, int]] = []
        self._ways: dict[Clock, list[tuple[list[int], list[int]]]] = {}

    def add(self, snapshot: Any, sequence: int) -> None:
        """Take in a ClockSnapshot of this sequence: what several clocks showed at one moment."""
        if snapshot.primary_trace_clock and not self._stated:
            self.trace_clock = snapshot.primary_trace_clock
            self._stated = True
        times: dict[Clock, int] = {}
        for clock in snapshot.clocks:
            multiplier = clock.unit_multiplier_ns or 1
            own = clock.clock_id in _SEQUENCE_CLOCKS
            key = (sequence, clock.clock_id) if own else clock.clock_id
            times[key] = clock.timestamp * multiplier
            if own:
                self._own[key] = SequenceClock(times[key], multiplier, clock.is_incremental)
        self._snapshots.append(times)
        self._ways.clear()

    def time(self, stated: int, clock: int, sequence: int) -> int | None:
        """Time in ns on the trace's clock of what a packet states for a clock; None if nothing relates the two."""
        if clock == self.trace_clock:
            return stated
        if clock not in _SEQUENCE_CLOCKS:
            return self._converted(stated, clock)
        own = self._own.get((sequence, clock))
        return None if own is None else self._converted(own.time(stated), (sequence, clock))

    def _converted(self, time: int, clock: Clock) -> int | None:
        """A time of another clock on the trace's clock, by the latest snapshot of both before it, else by the first."""
        if clock not in self._ways:
            self._ways[clock] = [*starmap(self._times_of_both, pairwise(self._route(clock)))]
        for here, there in self._ways[clock]:
            place = max(0, bisect_right(here, time) - 1)
            time += there[place] - here[place]
        return time if self._ways[clock] else None

    def _route(self, clock: Clock) -> tuple[Clock, ...]:
        """The clocks by way of which to convert, from this one to the trace's; empty if there is no way."""
        beside, reaching = (
            {other for snapshot in self._snapshots if end in snapshot for other in snapshot}
            for end in (clock, self.trace_clock)
        )
        if self.trace_clock in beside:
            return (clock, self.trace_clock)
        between = sorted(beside & reaching, key=str)
        return (clock, between[0], self.trace_clock) if between else ()

    def _times_of_both(self, clock: Clock, other: Clock) -> tuple[list[int], list[int]]:
        both = sorted((s[clock], s[other]) for s in self._snapshots if clock in s and other in s)
        return [here for here, _ in both], [there for _, there in both]

    def realtime_offsets(self) -> list[int]:
        """What to add to the trace's times for ns since 1970, one number for each snapshot that tells it."""
        clock = self.trace_clock
        return [s[REALTIME] - s[clock] for s in self._snapshots if REALTIME in s and clock in s]
