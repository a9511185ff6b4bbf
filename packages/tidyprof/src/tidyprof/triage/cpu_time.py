"""The time in which the host's threads had no CPU core, and what they lost to other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import of_rank
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

CPU_STEAL = "other_programs"
"""The part of a step in which other programs had the CPU although the host was ready to run."""

BUSY_MACHINE = 0.55
"""If threads wait for a CPU core for this share of the steps, what the host itself does is open.
With one other program the share is one half, which two clocks measure to a few hundredths.
"""

COLUMNS = (("processor_time", "lost_ns"), ("processor_queue", "waited_ns"))
"""Names in `Profile.counters`, and the columns that they become."""


def thread_times(
    profile: Profile,
    rank: Any,
    begin: np.ndarray,
    finish: np.ndarray,
    parts: Mapping[str, Intervals],
) -> dict[str, Any]:
    """Return for each step, in ns (Float64): lost_ns, in which its thread had no CPU core, and
    waited_ns, in which it waited for one. Also the ns of waited_ns in each part, by its name.

    begin, finish -- of the steps in ns; parts -- name -> when the host was in it. The script took
    the samples (readers/torch/meta.py). The waiting of a sample is spread evenly over its time.
    Without samples, the times are <NA> and the parts 0.
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
        # A sample is the time that the thread had a core, or the time that it waited for one.
        value = np.maximum(length - value, 0) if column == "lost_ns" else value
        # A sample belongs to the step that its middle is in.
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
    """Return the columns of parts (`_ns`) without the time that other programs took from these
    parts; that time as the part CPU_STEAL; and lost_ns and waited_ns. times -- of `thread_times`.
    """
    stolen = {part: np.minimum(times[part], columns[f"{part}_ns"]) for part in parts}
    rest = {f"{part}_ns": columns[f"{part}_ns"] - taken for part, taken in stolen.items()}
    known = {name: times[name] for name in ("lost_ns", "waited_ns")}
    return {**columns, **rest, f"{CPU_STEAL}_ns": sum(stolen.values()), **known}
