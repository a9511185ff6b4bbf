"""A run without a GPU: what its time goes to, as far as torch's operators and ranges tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tidyprof.analyses.budget import DEVICE_PARTS, steady_steps, step_budget
from tidyprof.analyses.common import host_events, join, names_matching, occupied, start_and_end
from tidyprof.analyses.processes import OWNER, of_owner
from tidyprof.analyses.steps import phase_time
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

COMPILATION = r".*\(dynamo_timed\)"
"""Ranges that torch._dynamo.utils.dynamo_timed writes around parts of a compilation."""


def compiling(profile: Profile) -> Intervals:
    """When torch's compiler was at work on the host."""
    ranges = host_events(profile, ["annotation", "operator"])
    return occupied(ranges[names_matching(ranges, COMPILATION)])


def ran_on_host(profile: Profile) -> bool:
    """Whether torch.profiler found no GPU: operators without events of a device are then all the work there was.

    Where a GPU is built in and only the host was recorded, operators merely hand work over.
    """
    is_processor = profile.meta.get("backend") == "cpu" and not len(profile.device_events)
    return is_processor and len(host_events(profile, "operator")) > 0


def host_shares(profiles: Sequence[Profile], mark: str | None) -> tuple[pd.DataFrame, dict[str, float]]:
    """The table of `step_budget` of all profiles, and the parts of its steady steps as fractions (0 to 1).

    data_wait -- in the phase `data`, operators of the loader included. compute -- else in an operator that is
    not being compiled. silent -- the rest: the program did something without torch. All other parts are 0.
    Raises ValueError as `step_budget` does.
    """
    budgets = [step_budget(profile, mark=mark) for profile in profiles]
    sums = dict.fromkeys((*DEVICE_PARTS, "silent", "stalled", "allocation"), 0.0)
    total = 0.0
    for profile, budget in zip(profiles, budgets, strict=True):
        for owner, own in steady_steps(budget).groupby(list(OWNER), dropna=False):
            found = _parts(profile, dict(zip(OWNER, owner, strict=True)), own)
            total += float(own["duration_ns"].sum())
            sums |= {part: sums[part] + value for part, value in found.items()}
    sums["silent"] = total - sums["compute"] - sums["data_wait"]
    return join(budgets), {part: value / max(total, 1.0) for part, value in sums.items()}


def _parts(profile: Profile, owner: dict[str, Any], own: pd.DataFrame) -> dict[str, float]:
    """Time in ns that one owner's host spent loading and in operators, in the steps `own`."""
    begin, finish = start_and_end(own)
    data = phase_time(profile, owner, "data")
    operators = occupied(of_owner(host_events(profile, "operator"), owner)) - data - compiling(profile)
    times = {"data_wait": data, "compute": operators}
    return {part: float(time.covered_within(begin, finish).sum()) for part, time in times.items()}
