"""Measure how long the host's threads had no CPU core, and how much time other programs took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import of_rank
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

CPU_STEAL = "other_programs"
"""The part of a step in which the host was ready to run, but other programs had the CPU."""

BUSY_MACHINE = 0.55
"""The share of time waiting for a CPU core that hides the host's own work. If one other program
competes for the core, the share is one half, and two clocks measure it within a few hundredths.
"""

COLUMNS = (("processor_time", "lost_ns"), ("processor_queue", "waited_ns"))
"""The counter names in `Profile.counters`, each with the column for its values."""


def thread_times(
    profile: Profile,
    rank: Any,
    begin: np.ndarray,
    finish: np.ndarray,
    parts: Mapping[str, Intervals],
) -> dict[str, Any]:
    """Return how long the thread of each step had no CPU core, in ns (Float64).

    The key lost_ns contains the time without a core. The key waited_ns contains the time that the
    thread waited for a core. For each part, the key with the part's name contains the waiting time
    in ns.

    - begin, finish: the start and end times of each step in ns.
    - parts: a mapping from each part to the intervals in which the host was in that part.

    The samples come from the script (readers/torch/meta.py). The waiting time of a sample is spread
    evenly over the sample. Without samples, the times are <NA> and the parts are 0.
    """
    times = dict.fromkeys(("lost_ns", "waited_ns"), pd.array([pd.NA] * len(begin), "Float64"))
    stolen = {name: np.zeros(len(begin)) for name in parts}
    samples = profile.counters
    if "duration_ns" not in samples.columns or not len(begin):
        return times | stolen
    if "rank" in samples.columns:
        samples = of_rank(samples, rank)
    for name, column in COLUMNS:
        of_name = samples[samples["name"] == name].dropna(subset=["duration_ns"])
        if not len(of_name):
            continue
        start, length = (of_name[key].to_numpy(np.int64) for key in ("time_ns", "duration_ns"))
        value = of_name["value"].to_numpy(float)
        # Each value is either the time on a CPU core or the time spent waiting for a core.
        value = np.maximum(length - value, 0) if column == "lost_ns" else value
        # A sample belongs to the step that contains the sample's midpoint.
        middle = start + length // 2
        step = np.searchsorted(begin, middle, side="right") - 1
        inside = (step >= 0) & (middle < finish[np.maximum(step, 0)])
        times[column] = pd.array(np.bincount(step[inside], value[inside], len(begin)), "Float64")
        if column == "waited_ns":
            waiting = np.minimum(value / np.maximum(length, 1), 1.0)
            for part in stolen:
                within = parts[part].covered_within(start, start + length) * waiting
                stolen[part] = np.bincount(step[inside], within[inside], len(begin))
    return times | stolen


def without_steal(
    columns: Mapping[str, np.ndarray], times: Mapping[str, Any], parts: Mapping[str, Intervals]
) -> dict[str, Any]:
    """Move the time lost to other programs from the parts (`_ns`) to the part CPU_STEAL.

    Also return lost_ns and waited_ns from `times`, which is the result of `thread_times`.
    """
    stolen = {part: np.minimum(times[part], columns[f"{part}_ns"]) for part in parts}
    rest = {f"{part}_ns": columns[f"{part}_ns"] - taken for part, taken in stolen.items()}
    known = {name: times[name] for name in ("lost_ns", "waited_ns")}
    return {**columns, **rest, f"{CPU_STEAL}_ns": sum(stolen.values()), **known}
