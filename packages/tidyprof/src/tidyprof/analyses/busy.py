"""Device busy time, compared with the misleading sum of event durations."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    Kinds,
    by_device,
    kind_names,
    occupied,
    percent,
    result,
    start_and_end,
)
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, Profile, is_one_of


def busy(profile: Profile, kinds: Kinds = DEVICE_KINDS) -> pd.DataFrame:
    """Return one row per rank and device that ran anything.

    - `span_ns`: the time from the first start to the last end of any device event, whatever its
      kind.
    - `busy_ns`: the time when at least one event of the chosen kinds ran.
    - `sum_ns`: the sum of the durations of these events.
    - `busy_percent`, `sum_percent`: the same times as shares of the span.

    If no event of the chosen kinds ran, all values except the span are 0. Neither value measures
    utilization. The sum counts overlapping events on several streams more than once, so it can
    exceed 100%. The busy time includes the time when the device only waits inside a collective
    kernel. Raises ValueError for an unknown kind.

    >>> (device,) = tidyprof.busy(tidyprof.read("trace.json.gz")).itertuples()
    >>> device.busy_ns, device.sum_ns, device.streams
    (39500, 54001, 2)
    """
    kinds = kind_names(kinds)
    rows = []
    for place, events in by_device(profile):
        start, end = start_and_end(events)
        chosen = events[is_one_of(events["kind"], kinds)]
        times = {
            "span_ns": int(end.max() - start.min()),
            "busy_ns": occupied(chosen).length,
            "sum_ns": int(chosen["duration_ns"].sum()),
        }
        rows.append(
            {
                **place,
                **times,
                "busy_percent": float(percent(times["busy_ns"], times["span_ns"])),
                "sum_percent": float(percent(times["sum_ns"], times["span_ns"])),
                "streams": int((np.unique(chosen["stream"]) != ABSENT).sum()),
                "events": len(chosen),
            }
        )
    return result(rows, "busy", profile)
