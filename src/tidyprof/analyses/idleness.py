"""When a device is idle, and whether there was nothing for it to do."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import launch_times, occupied, start_and_end
from tidyprof.tables.intervals import Intervals


def idle_within(begin: int, finish: int, events: pd.DataFrame) -> Intervals:
    """The time between two times in ns in which none of a device's events ran."""
    return Intervals.window(begin, finish) - occupied(events)


def run_dry(idle: Intervals, events: pd.DataFrame) -> Intervals:
    """The idle intervals that began with an empty queue.

    The event that ends such an interval was launched after the device had fallen idle, or
    none follows. Where its launch is not recorded, nothing is claimed.
    """
    # The latest time stands for "no event follows".
    launched = np.append(_launched_or_first(events), np.iinfo(np.int64).max)
    late = launched[ending_events(idle, events)] >= idle.starts
    return Intervals(idle.starts[late], idle.ends[late])


def ending_events(idle: Intervals, events: pd.DataFrame) -> np.ndarray:
    """Position of the event that ends each idle interval, -1 where none follows.

    Of several that start together it is the one launched first, before these one whose launch is not recorded.
    An event without a duration ends no idleness.
    """
    start, end = start_and_end(events)
    lasting = np.flatnonzero(end > start)
    order = lasting[np.lexsort((_launched_or_first(events)[lasting], start[lasting]))]
    return np.append(order, -1)[np.searchsorted(start[order], idle.ends, side="left")]


def _launched_or_first(events: pd.DataFrame) -> np.ndarray:
    """Launch times in ns, the earliest time of all where the launch is not recorded."""
    return launch_times(events).fillna(np.iinfo(np.int64).min).to_numpy(np.int64)
