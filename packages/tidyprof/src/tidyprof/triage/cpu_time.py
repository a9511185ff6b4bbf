"""Measure how long the host's threads waited for a CPU core that other programs used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidyprof.analyses.common import of_rank
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

CPU_STEAL = "other_programs"
"""The part of a step in which the host was ready to run, but other programs had the CPU."""

BUSY_MACHINE = 0.55
"""The share of time waiting for a CPU core that hides the host's own work. If one other program
competes for the core, the share is one half, and two clocks measure it within a few hundredths.
"""

COUNTER = "processor_queue"
"""The counter in `Profile.counters` with the time that a thread waited for a CPU core. The samples
come from the script (readers/torch/meta.py).
"""


def waiting_times(
    profile: Profile,
    rank: Any,
    begin: np.ndarray,
    finish: np.ndarray,
    parts: Mapping[str, Intervals],
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return how long the thread of each step waited for a CPU core, in ns, in total and in each
    part. Without samples, the totals are NaN and the parts are 0.

    - begin, finish: the start and end times of each step in ns.
    - parts: a mapping from each part to the intervals in which the host was in that part.

    The waiting time of a sample is spread evenly over the sample.
    """
    samples = profile.counters
    samples = samples[samples["name"] == COUNTER]
    if not len(samples) or not len(begin):
        return np.full(len(begin), np.nan), {name: np.zeros(len(begin)) for name in parts}
    samples = samples.dropna(subset=["duration_ns"])
    if "rank" in samples.columns:
        samples = of_rank(samples, rank)
    start, length = (samples[key].to_numpy(np.int64) for key in ("time_ns", "duration_ns"))
    waited = samples["value"].to_numpy(float)
    share = np.minimum(waited / np.maximum(length, 1), 1.0)
    # A sample belongs to the step that contains the sample's midpoint.
    middle = start + length // 2
    step = np.searchsorted(begin, middle, side="right") - 1
    inside = (step >= 0) & (middle < finish[np.maximum(step, 0)])

    def of_steps(times: np.ndarray) -> np.ndarray:
        return np.bincount(step[inside], times[inside], len(begin))

    within = {name: time.covered_within(start, start + length) for name, time in parts.items()}
    return of_steps(waited), {name: of_steps(time * share) for name, time in within.items()}


def without_steal(
    profile: Profile,
    rank: Any,
    begin: np.ndarray,
    finish: np.ndarray,
    sets: Mapping[str, Intervals],
    parts: Sequence[str],
) -> dict[str, Any]:
    """Return the time of each step in each interval set, in columns ending in `_ns`.

    The time that other programs took from these parts moves to the part CPU_STEAL. The column
    waited_ns contains the total time that the thread waited for a CPU core.
    """
    columns = {f"{name}_ns": time.covered_within(begin, finish) for name, time in sets.items()}
    waited, waiting = waiting_times(
        profile, rank, begin, finish, {part: sets[part] for part in parts}
    )
    stolen = {f"{part}_ns": np.minimum(waiting[part], columns[f"{part}_ns"]) for part in parts}
    rest = {name: columns[name] - taken for name, taken in stolen.items()}
    return {**columns, **rest, f"{CPU_STEAL}_ns": sum(stolen.values()), "waited_ns": waited}
