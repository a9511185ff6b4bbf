"""When a device is idle, and whether there was nothing for it to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidyprof.analyses.common import launch_times, occupied, start_and_end
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.plain import PlainEvents

WAITING_NS = 1_000_000
"""So long behind its launch, work waits for something: it reaches an idle device within microseconds (in the public
recordings 7 to 45 in the median), and within 0.6 ms where a copy of megabytes is prepared."""


LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Idleness:
    """The time in which nothing of the file ran on a device, in three.

    dry     -- nothing was launched, or nothing follows.
    queued  -- the next work had been launched, or its launch is not recorded.
    earlier -- the first work of a stream had been launched WAITING_NS before and did not start: the device did
               something that is not in the file, such as the batch before.
    """

    dry: Intervals
    queued: Intervals
    earlier: Intervals


def idleness(begin: int, finish: int, events: PlainEvents) -> Idleness:
    """The idleness of one device between two times in ns; events are those of `by_device`.

    An interval belongs to the event that ends it. Launched after the device had fallen idle, that event leaves the
    interval dry; if it then waits for WAITING_NS or longer behind its launch, up to the end of the launch only.
    A kernel whose launch took WAITING_NS counts as launched at its end.
    In front of the first event of the file nothing is dry then.
    """
    idle = Intervals.window(begin, finish) - occupied(events)
    ending = ending_events(idle, events)
    # The last place, the latest time, answers the -1 of idleness that no event ends.
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
    dry = np.where(launched >= idle.starts, np.where(waited, cut, idle.ends), np.where(slow, cut, idle.starts))
    # In front of all that the file has, the unseen work may have run as long.
    leading = earlier & (idle.starts < events["start_ns"].min())
    dry = np.where(leading, idle.starts, dry)
    return Idleness(
        dry=Intervals.union(idle.starts, dry),
        queued=Intervals.union(dry[~earlier], idle.ends[~earlier]),
        earlier=Intervals.union(dry[earlier], idle.ends[earlier]),
    )


def ending_events(idle: Intervals, events: PlainEvents) -> np.ndarray:
    """Position of the event that ends each idle interval, -1 where none follows.

    Of several that start together it is the one launched first, before these one whose launch is not recorded.
    An event without a duration ends no idleness.
    """
    start, end = start_and_end(events)
    lasting = np.flatnonzero(end > start)
    # ABSENT is the least number, so that what has no launch record comes first.
    order = lasting[np.lexsort((launch_times(events)[lasting], start[lasting]))]
    return np.append(order, -1)[np.searchsorted(start[order], idle.ends, side="left")]
