"""When a device is idle, and what it spends the rest of its time on: computation, communication,
copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
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
"""Work that starts so long after its launch waits for something: it reaches an idle device within
microseconds (in the public recordings 7 to 45 in the median), and within 0.6 ms where a copy of
megabytes is prepared.
"""


LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Idleness:
    """The time in which nothing of the file ran on a device, in three parts.

    dry     -- nothing was launched, or nothing follows.
    queued  -- the next work had been launched, or its launch is not recorded.
    earlier -- the first work of a stream had been launched WAITING_NS before and did not start: the
               device did something that is not in the file, such as the batch before.
    """

    dry: Intervals
    queued: Intervals
    earlier: Intervals


def idleness(begin: int, finish: int, events: PlainEvents) -> Idleness:
    """The idleness of one device between two times in ns; events are those of `by_device`.

    An interval belongs to the event that ends it. If that event was launched after the device had
    fallen idle, the interval is dry; if the event started WAITING_NS or longer after its launch, it
    is dry only up to the end of the launch, and before the first event of the file not at all. A
    kernel whose launch took WAITING_NS counts as launched at the end of its launch.
    """
    idle = Intervals.window(begin, finish) - occupied(events)
    ending = ending_events(idle, events)
    # The last time, the latest of all, answers the -1 of idleness that no event ends.
    launched = np.append(launch_times(events), LATEST)[ending]
    returned = np.append(events["launched_ns"], LATEST)[ending]
    returned = np.where(returned == ABSENT, LATEST, returned)
    # A launch that loads code for milliseconds has launched nothing before it returns.
    slow = np.append(events["kind"] == "kernel", False)[ending] & (returned < LATEST)
    slow &= (returned - np.minimum(launched, returned) >= WAITING_NS) & (returned > idle.starts)
    is_first = np.isin(ending, np.unique(events["stream"], return_index=True)[1])
    cut = np.clip(returned, idle.starts, idle.ends)
    waited = idle.ends - cut >= WAITING_NS
    earlier = waited & is_first
    dry = np.where(
        launched >= idle.starts, np.where(waited, cut, idle.ends), np.where(slow, cut, idle.starts)
    )
    # Before the first event of the file, unseen work may have run all the time.
    leading = earlier & (idle.starts < events["start_ns"].min())
    dry = np.where(leading, idle.starts, dry)
    return Idleness(
        dry=Intervals.union(idle.starts, dry),
        queued=Intervals.union(dry[~earlier], idle.ends[~earlier]),
        earlier=Intervals.union(dry[earlier], idle.ends[earlier]),
    )


def ending_events(idle: Intervals, events: PlainEvents) -> np.ndarray:
    """Position of the event that ends each idle interval, -1 where none follows.

    Of several that start together it is one whose launch is not recorded, or else the one launched
    first. An event without a duration ends no idleness.
    """
    start, end = start_and_end(events)
    lasting = np.flatnonzero(end > start)
    # ABSENT is the least number, so events without a launch record come first.
    order = lasting[np.lexsort((launch_times(events)[lasting], start[lasting]))]
    return np.append(order, -1)[np.searchsorted(start[order], idle.ends, side="left")]


OVERLAP_COLUMNS = {
    **PLACE,
    "total_ns": "int64",
    "computation_ns": "int64",
    "exposed_communication_ns": "int64",
    "exposed_copy_ns": "int64",
    "busy_ns": "int64",
    "idle_ns": "int64",
    "communication_ns": "int64",
    "hidden_communication_ns": "int64",
    "copy_ns": "int64",
    "computation_percent": "float64",
    "exposed_communication_percent": "float64",
    "exposed_copy_percent": "float64",
    "idle_percent": "float64",
}
"""Columns of `overlap`."""


@dataclass(frozen=True)
class DeviceTime:
    """One device's time by use, as sets of intervals.

    The definitions are those of TraceLens' gpu_timeline: computation is every kernel and fill that
    is no collective; communication counts as exposed where no computation runs beside it, a copy
    where neither of these does. computation, exposed_communication and exposed_copy do not overlap,
    and together they are busy.
    """

    computation: Intervals
    communication: Intervals
    copy: Intervals

    @classmethod
    def of(cls, events: Events) -> DeviceTime:
        """The time of one device's events."""
        kinds = (["kernel", "fill"], ["collective"], ["copy"])
        return cls(*(occupied(events, is_one_of(events["kind"], chosen)) for chosen in kinds))

    @property
    def exposed_communication(self) -> Intervals:
        """Communication with no computation beside it."""
        return self.communication - self.computation

    @property
    def exposed_copy(self) -> Intervals:
        """Copies with neither computation nor communication beside them."""
        return self.copy - (self.computation | self.communication)

    @property
    def busy(self) -> Intervals:
        """Anything at all."""
        return self.computation | self.communication | self.copy


def overlap(profile: Profile) -> pd.DataFrame:
    """How much communication and copying hides behind computation; one row per rank and device.

    total_ns is from the first start to the last end. computation, exposed communication,
    exposed copy (for the definitions see DeviceTime) and idle add up to it exactly.
    communication_ns = exposed + hidden. The percentages relate to total_ns.
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
        rows.append(
            {
                **place,
                "total_ns": total,
                **{f"{name}_ns": length for name, length in parts.items()},
                "busy_ns": busy.length,
                "communication_ns": time.communication.length,
                "hidden_communication_ns": (
                    time.communication.length - parts["exposed_communication"]
                ),
                "copy_ns": time.copy.length,
                **{
                    f"{name}_percent": float(percent(length, total))
                    for name, length in parts.items()
                },
            }
        )
    return result(rows, OVERLAP_COLUMNS, profile)
