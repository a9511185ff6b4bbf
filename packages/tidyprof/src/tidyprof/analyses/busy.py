"""Device busy time, and the misleading sum of durations for comparison."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
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

BUSY_COLUMNS = {
    **PLACE,
    "span_ns": "int64",
    "busy_ns": "int64",
    "sum_ns": "int64",
    "busy_percent": "float64",
    "sum_percent": "float64",
    "streams": "int64",
    "events": "int64",
}
"""Columns of `busy`."""


def busy(profile: Profile, kinds: Kinds = DEVICE_KINDS) -> pd.DataFrame:
    """Return one row per rank and device that ran anything.

    - `span_ns`: from the first start to the last end of any device event, whatever its kind.
    - `busy_ns`: the time during which an event of the chosen kinds ran.
    - `sum_ns`: the sum of their durations.
    - `busy_percent`, `sum_percent`: shares of the span.

    All values except the span are 0 if no event of these kinds ran. On several streams, the sum
    exceeds the busy time and can exceed 100%, so it doesn't measure utilization. The busy time
    doesn't measure it either, because a device that waits inside a collective kernel counts as
    busy. Raises ValueError for an unknown kind.


    >>> (device,) = tidyprof.busy(tidyprof.read("trace.json.gz")).itertuples()
    >>> device.busy_ns, device.sum_ns, device.streams
    (39500, 54001, 2)
    """
    kinds = kind_names(kinds)
    rows = []
    for place, events in by_device(profile):
        start, end = start_and_end(events)
        chosen = events[is_one_of(events["kind"], kinds)]
        span, union, total = (
            int(end.max() - start.min()),
            occupied(chosen).length,
            int(chosen["duration_ns"].sum()),
        )
        rows.append(
            {
                **place,
                "span_ns": span,
                "busy_ns": union,
                "sum_ns": total,
                "busy_percent": float(percent(union, span)),
                "sum_percent": float(percent(total, span)),
                "streams": int((np.unique(chosen["stream"]) != ABSENT).sum()),
                "events": len(chosen),
            }
        )
    return result(rows, BUSY_COLUMNS, profile)
