"""A run without a GPU: what its time goes to, as far as torch's operators and ranges tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import DEVICE_PARTS, steady_steps, step_budget
from tidyprof.analyses.common import four_digits, host_events, names_matching, occupied, start_and_end
from tidyprof.analyses.processes import OWNER, of_owner
from tidyprof.analyses.steps import PHASE_PATTERNS, phase_time
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

COMPILATION = r".*\(dynamo_timed\)"
"""Ranges that torch._dynamo.utils.dynamo_timed writes around parts of a compilation."""


LOADERS = {
    "_SingleProcessDataLoaderIter": "the loader runs in the training process (num_workers=0)",
    "_MultiProcessingDataLoaderIter": "worker processes load",
}
"""What stands in the range that torch.profiler writes for each batch, and what it says."""

MOST_STARTED = 2
"""Operators of the loader that are named."""


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


@dataclass(frozen=True)
class HostTimeline:
    """What one profile adds to the signs of such a run: its `step_budget`, times in ns, see `loader`."""

    budget: pd.DataFrame
    steady_ns: float
    parts: dict[str, float]
    compiling_ns: int
    loader: str
    ranks: int


def host_timeline(profile: Profile, mark: str | None) -> HostTimeline:
    """The steady steps of a profile, and its parts. Raises ValueError as `step_budget` does.

    data_wait -- in the phase `data`, operators of the loader included. compute -- else in an operator that is
    not being compiled.
    """
    budget = step_budget(profile, mark=mark)
    steady = [(dict(zip(OWNER, owner, strict=True)), own)
              for owner, own in steady_steps(budget).groupby(list(OWNER), dropna=False)]  # fmt: skip
    found = [_parts(profile, owner, own) for owner, own in steady]
    return HostTimeline(
        budget=budget,
        steady_ns=float(sum(own["duration_ns"].sum() for _, own in steady)),
        parts={part: sum(times[part] for times in found) for part in ("data_wait", "compute")},
        compiling_ns=compiling(profile).length,
        loader=loader(profile, len(budget)),
        ranks=profile.events["rank"].dropna().nunique(),
    )


def host_shares(hosts: Sequence[HostTimeline]) -> dict[str, float]:
    """The parts of the steady steps of all profiles as fractions (0 to 1), see `host_timeline`.

    silent -- what is no part: the program did something without torch. All other parts are 0.
    """
    sums = dict.fromkeys((*DEVICE_PARTS, "silent", "stalled", "allocation"), 0.0)
    sums |= {part: sum(host.parts[part] for host in hosts) for part in ("data_wait", "compute")}
    total = sum(host.steady_ns for host in hosts)
    sums["silent"] = total - sums["compute"] - sums["data_wait"]
    return {part: value / max(total, 1.0) for part, value in sums.items()}


def loader(profile: Profile, steps: int) -> str:
    """Who loads data, as far as it is known, and which operators that starts most often in one of the `steps`."""
    ranges = host_events(profile, ["annotation"])
    data = ranges[names_matching(ranges, PHASE_PATTERNS["data"])]
    words = [text for part, text in LOADERS.items() if names_matching(data, f".*{part}.*").any()]
    operators = host_events(profile, "operator")
    inside = operators[occupied(data).contains(operators["start_ns"])].sort_values("start_ns", kind="stable")
    begin, end = start_and_end(inside)
    outermost = begin >= np.maximum.accumulate(np.append(0, end[:-1])) if len(end) else []
    if len(counts := inside.loc[outermost, "name"].astype(str).value_counts().head(MOST_STARTED) / max(steps, 1)):
        started = (f"{four_digits(count)} {name}" for name, count in counts.items())
        words.append(f"it starts {', '.join(started)} a step")
    return ", ".join(words)


def _parts(profile: Profile, owner: dict[str, Any], own: pd.DataFrame) -> dict[str, float]:
    """Time in ns that one owner's host spent loading and in operators, in the steps `own`."""
    begin, finish = start_and_end(own)
    data = phase_time(profile, owner, "data")
    operators = occupied(of_owner(host_events(profile, "operator"), owner)) - data - compiling(profile)
    times = {"data_wait": data, "compute": operators}
    return {part: float(time.covered_within(begin, finish).sum()) for part, time in times.items()}
