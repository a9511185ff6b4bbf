"""Selection of steps from a profile. Every analysis accepts such parts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    by_device,
    has_launches,
    launch_times,
    of_rank,
    ranks_of,
    start_and_end,
)
from tidyprof.analyses.steps import step_of_time, steps
from tidyprof.tables.contract import DEVICE_KINDS, Profile


def select_steps(
    profile: Profile, first: int, last: int | None = None, mark: str | None = None
) -> Profile:
    """Return a profile of the steps from `first` to `last`, including both. The step numbers come
    from `steps`.

    Without `last`, return only the step `first`. Host events belong to the step in which they
    start. GPU work belongs to the step that launched it, even if it ran later. Work without a
    recorded launch doesn't belong to any step. One exception is a GPU without any launch records,
    whose work is assigned by start time. The samples range from the start of the first step to the
    end of the last step.

    `mark` has the same meaning as in `steps`. If marks separate the steps, the step numbers start
    at 0. `meta` stays the same as for the whole profile. Raises ValueError if no steps are marked,
    if a step is missing, and under the same conditions as `steps`.
    """
    last = first if last is None else last
    marked = steps(profile, mark=mark)
    if not len(marked):
        raise ValueError(f"there is no step {first}: {marked.attrs['steps']}")
    known = marked["step"].tolist()
    if first not in known or last not in known or last < first:
        raise ValueError(f"there are no steps {first} to {last}, only {min(known)} to {max(known)}")
    number = _step_of_each(profile, marked)
    # Select by number, not by time, because GPU work runs later than its step on the host.
    wanted = number.between(first, last).fillna(False)
    start, end = start_and_end(marked[marked["step"].between(first, last)])
    sampled = profile.counters["time_ns"].between(start.min(), end.max(), inclusive="left")
    return _part(profile, wanted, sampled)


def _step_of_each(profile: Profile, marked: pd.DataFrame) -> pd.Series:
    """Return each event's step as in `select_steps`. The dtype is Int64, and an event outside of
    all steps has the value `<NA>`.
    """
    events = profile.events
    step = pd.Series(pd.NA, events.index, "Int64")
    on_host = events[~events["kind"].isin(DEVICE_KINDS)]
    for rank in ranks_of(marked):
        of_host = of_rank(on_host, rank)
        step[of_host.index] = _numbers(of_rank(marked, rank), start_and_end(of_host)[0])
    for place, work in by_device(profile):
        times = launch_times(work) if has_launches(work) else work["start_ns"]
        step.iloc[work.rows] = _numbers(of_rank(marked, place["rank"]), times)
    return step


def _numbers(own: pd.DataFrame, times: np.ndarray) -> pd.arrays.IntegerArray:
    """For each time, return the number of the step that contains it."""
    # step_of_time returns -1 for a time outside of all steps, which selects the last number.
    return pd.array([*own["step"], pd.NA], dtype="Int64")[step_of_time(own, times)]


def _part(profile: Profile, kept: pd.Series, sampled: pd.Series) -> Profile:
    """Return a profile of these events and samples, with new row numbers and without unused
    categories.
    """
    # A parent is a row number, which has changed.
    events = (
        profile.events[kept.to_numpy(bool)]
        .reset_index(drop=True)
        .drop(columns="parent", errors="ignore")
    )
    for column in events.columns[events.dtypes == "category"].drop("kind"):
        events[column] = events[column].cat.remove_unused_categories()
    return Profile(events, profile.counters[sampled].reset_index(drop=True), dict(profile.meta))
