"""How busy a device was: the union of its intervals, and the misleading plain sum beside it."""

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
    """One row per rank and device that ran anything; its figures are 0 where nothing of these kinds
    did.

    span_ns is from the first start to the last end of any device event, whatever the kinds;
    busy_ns is the time in which at least one of the chosen kinds ran; sum_ns adds their durations.
    The percentages relate to the span. With several streams the sum exceeds the union,
    and can exceed 100 %: it is no utilization. Nor is the union: a device that waits
    inside a collective kernel counts as busy. Raises ValueError for a kind that no event has.

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
