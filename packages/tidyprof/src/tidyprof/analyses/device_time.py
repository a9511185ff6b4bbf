"""The device's time, divided into idle time, computation, communication and copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    Events,
    by_device,
    launch_times,
    occupied,
    percent,
    result,
    start_and_end,
)
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import Profile, is_one_of
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

WAITING_NS = 1_000_000
"""Minimum delay between launch and start, in nanoseconds, that shows that the work had to wait. On
an idle device, work starts within microseconds of its launch (the medians in the public traces
range from 7 to 45). If a copy of several megabytes is being prepared, work starts within 0.6 ms.
"""


LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Idleness:
    """The times when a device ran none of the file's events, in three parts.

    - dry: the times when no work had been launched or no more work follows.
    - queued: the times when the next work had already been launched, or its launch wasn't recorded.
    - earlier: the times when the first work of a stream was delayed by earlier work that isn't in
      the file, such as the previous batch. The work had been launched at least `WAITING_NS` before
      its start.
    """

    dry: Intervals
    queued: Intervals
    earlier: Intervals


def idleness(begin: int, finish: int, events: PlainEvents) -> Idleness:
    """Return the idle time of one device between two times in nanoseconds.

    - events: the device's events from `by_device`.

    The event that ends an idle interval determines the type of the interval:

    - If the event was launched after the device became idle, the interval is dry.
    - If the event started at least `WAITING_NS` after its launch, the interval is dry only up to
      the end of the launch. Before the file's first event, such an interval isn't dry at all.

    If a launch call took at least `WAITING_NS`, the kernel counts as launched when the call
    returned.
    """
    idle = Intervals.window(begin, finish) - occupied(events)
    ending = ending_events(idle, events)
    # The appended time is the latest possible one. It is for idle intervals that no event ends
    # (-1).
    launched = np.append(launch_times(events), LATEST)[ending]
    returned = np.append(events["launched_ns"], LATEST)[ending]
    returned = np.where(returned == ABSENT, LATEST, returned)
    # A launch that loads code for milliseconds hasn't launched anything before it returns.
    slow = np.append(events["kind"] == "kernel", False)[ending] & (returned < LATEST)
    slow &= (returned - np.minimum(launched, returned) >= WAITING_NS) & (returned > idle.starts)
    is_first = np.isin(ending, np.unique(events["stream"], return_index=True)[1])
    cut = np.clip(returned, idle.starts, idle.ends)
    waited = idle.ends - cut >= WAITING_NS
    earlier = waited & is_first
    dry = np.where(
        launched >= idle.starts, np.where(waited, cut, idle.ends), np.where(slow, cut, idle.starts)
    )
    # Before the file's first event, work that isn't in the file may have run all the time.
    leading = earlier & (idle.starts < events["start_ns"].min())
    dry = np.where(leading, idle.starts, dry)
    return Idleness(
        dry=Intervals.union(idle.starts, dry),
        queued=Intervals.union(dry[~earlier], idle.ends[~earlier]),
        earlier=Intervals.union(dry[earlier], idle.ends[earlier]),
    )


def ending_events(idle: Intervals, events: PlainEvents) -> np.ndarray:
    """For each idle interval, return the position of the event that ends it. The position is -1 if
    no event follows.

    If several events start at the same time, an event without a recorded launch has priority,
    followed by the event that was launched first. An event without a duration doesn't end an idle
    interval.
    """
    start, end = start_and_end(events)
    lasting = np.flatnonzero(end > start)
    # ABSENT is the smallest number, so events without a launch record come first.
    order = lasting[np.lexsort((launch_times(events)[lasting], start[lasting]))]
    return np.append(order, -1)[np.searchsorted(start[order], idle.ends, side="left")]


@dataclass(frozen=True)
class DeviceTime:
    """One device's time by type of use, as sets of intervals.

    The definitions are the same as in TraceLens' `gpu_timeline`. All kernels and fills except
    collectives count as computation. Communication is exposed if no computation runs at the same
    time. A copy is exposed if neither computation nor communication runs at the same time.
    `computation`, `exposed_communication` and `exposed_copy` don't overlap, and together they make
    up `busy`.
    """

    computation: Intervals
    communication: Intervals
    copy: Intervals

    @classmethod
    def of(cls, events: Events) -> DeviceTime:
        """Return the time of one device by type of use."""
        kinds = (["kernel", "fill"], ["collective"], ["copy"])
        return cls(*(occupied(events, is_one_of(events["kind"], chosen)) for chosen in kinds))

    @property
    def exposed_communication(self) -> Intervals:
        """Times of communication without simultaneous computation."""
        return self.communication - self.computation

    @property
    def exposed_copy(self) -> Intervals:
        """Times of copies without simultaneous computation or communication."""
        return self.copy - (self.computation | self.communication)

    @property
    def busy(self) -> Intervals:
        """Times when the device ran anything."""
        return self.computation | self.communication | self.copy


def overlap(profile: Profile) -> pd.DataFrame:
    """Return how much communication and copying is hidden behind computation. The table has one row
    per rank and device.

    `total_ns` is the time from the first start to the last end. This time is the sum of
    computation, exposed communication, exposed copies and idle time (see DeviceTime).
    `communication_ns` is the sum of exposed and hidden communication. The percentages are shares of
    `total_ns`.
    """
    rows = []
    for place, events in by_device(profile):
        time = DeviceTime.of(events)
        busy = time.busy
        total = int(busy.ends[-1] - busy.starts[0]) if len(busy) else 0
        parts = {
            "computation": time.computation.length,
            "exposed_communication": time.exposed_communication.length,
            "exposed_copy": time.exposed_copy.length,
            "idle": total - busy.length,
        }
        hidden = time.communication.length - parts["exposed_communication"]
        others = {
            "total": total,
            "busy": busy.length,
            "communication": time.communication.length,
            "hidden_communication": hidden,
            "copy": time.copy.length,
        }
        times = {f"{name}_ns": length for name, length in (parts | others).items()}
        shares = {f"{name}_percent": float(percent(parts[name], total)) for name in parts}
        rows.append({**place, **times, **shares})
    return result(rows, "overlap", profile)
