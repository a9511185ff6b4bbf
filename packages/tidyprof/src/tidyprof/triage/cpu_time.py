"""The time in which the host's threads had no CPU core, and the time lost to other programs."""

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
"""If threads wait for a CPU core for this share of the steps, the host's own work is unknown. With
one other program, the share is one half, and two clocks measure it within a few hundredths.
"""

COLUMNS = (("processor_time", "lost_ns"), ("processor_queue", "waited_ns"))
"""Names in `Profile.counters`, with the columns that hold their values."""


def thread_times(
    profile: Profile,
    rank: Any,
    begin: np.ndarray,
    finish: np.ndarray,
    parts: Mapping[str, Intervals],
) -> dict[str, Any]:
    """Return how long each step's thread had no CPU core, in ns (Float64).

    lost_ns is the time without a core, and waited_ns is the time that the thread waited for one.
    For each part, the result also contains the part's share of waited_ns in ns, under its name.

    begin, finish -- the start and end of each step in ns.
    parts         -- part -> the times when the host was in it.

    The script took the samples (readers/torch/meta.py). The waiting time of a sample is spread
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
        # The value of a sample is the time with a CPU core, or the time spent waiting for one.
        value = np.maximum(length - value, 0) if column == "lost_ns" else value
        # A sample belongs to the step that contains its middle.
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
    """Move the time that other programs took from the parts (`_ns`) to the part CPU_STEAL.

    Also return lost_ns and waited_ns. times -- the result of `thread_times`.
    """
    stolen = {part: np.minimum(times[part], columns[f"{part}_ns"]) for part in parts}
    rest = {f"{part}_ns": columns[f"{part}_ns"] - taken for part, taken in stolen.items()}
    known = {name: times[name] for name in ("lost_ns", "waited_ns")}
    return {**columns, **rest, f"{CPU_STEAL}_ns": sum(stolen.values()), **known}
