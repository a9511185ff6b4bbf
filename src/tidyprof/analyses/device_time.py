"""What a device spends its time on: computation, communication, copies, idleness."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tidyprof.analyses.common import PLACE, Events, by_device, occupied, percent, result
from tidyprof.tables.contract import Profile, is_one_of
from tidyprof.tables.intervals import Intervals

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

    Definition of TraceLens' gpu_timeline: computation is every kernel and fill that is no
    collective; communication counts as exposed where no computation runs beside it; a copy
    where neither does. computation, exposed_communication and exposed_copy do not overlap
    and together are busy.
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
                "hidden_communication_ns": time.communication.length - parts["exposed_communication"],
                "copy_ns": time.copy.length,
                **{f"{name}_percent": float(percent(length, total)) for name, length in parts.items()},
            }
        )
    return result(rows, OVERLAP_COLUMNS, profile)
