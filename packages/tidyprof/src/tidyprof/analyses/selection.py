"""Parts of a recording, by time or by steps. Every analysis takes them as it takes the whole."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    by_device,
    events_of_process,
    has_launches,
    launch_times,
    owner_of,
    owners_of,
    start_and_end,
)
from tidyprof.analyses.steps import step_of_time, steps
from tidyprof.tables.contract import DEVICE_KINDS, Profile


def select_time_range(
    profile: Profile, start_ns: int | None = None, end_ns: int | None = None
) -> Profile:
    """A profile of the events that begin in [start_ns, end_ns), and of the samples taken in that
    time; None is no limit.

    Times are in ns, as in `events["start_ns"]`. An event belongs to it as a whole or not at all:
    what began before is left out even if it goes on, and what begins inside may end after end_ns.
    So work on a GPU can be without its launch, and operators without those around them. `meta`
    stays that of the whole recording. Raises ValueError if the time ends before it begins.
    """
    if start_ns is not None and end_ns is not None and end_ns < start_ns:
        raise ValueError(f"the time ends {start_ns - end_ns} ns before it begins")
    return _part(profile, *(_inside(times, start_ns, end_ns) for times in _times(profile)))


def select_steps(
    profile: Profile, first: int, last: int | None = None, mark: str | None = None
) -> Profile:
    """A profile of the steps from `first` to `last`, both included, as `steps` numbers them; of the
    first alone without `last`.

    Events on the host belong to the step in which they begin. Work on a GPU belongs to the step
    that launched it, whenever it ran, and to no step if its launch was not recorded; where no
    launch was recorded for the whole GPU, its start counts. Samples belong to the time from the
    beginning of the first step to the end of the last. mark is as in `steps`, which numbers steps
    between marks anew, from 0. `meta` stays that of the whole recording. Raises ValueError where no
    steps are marked, for steps that are not there, and as `steps` does.
    """
    last = first if last is None else last
    marked = steps(profile, mark=mark)
    if not len(marked):
        raise ValueError(f"there is no step {first}: {marked.attrs['steps']}")
    for number in (first, last):
        if number not in marked["step"].tolist():
            raise ValueError(
                f"there is no step {number}, only {marked['step'].min()} to {marked['step'].max()}"
            )
    if last < first:
        raise ValueError(f"step {last} comes before step {first}")
    number = _step_of_each(profile, marked)
    # By number, and not by time: work on a GPU runs behind its step.
    wanted = number.between(first, last).fillna(False)
    start, end = start_and_end(marked[marked["step"].between(first, last)])
    _, sampled = _times(profile)
    return _part(profile, wanted, _inside(sampled, start.min(), end.max()))


def _step_of_each(profile: Profile, marked: pd.DataFrame) -> pd.Series:
    """The step that each event belongs to, as explained at `select_steps`, Int64; <NA> for none."""
    events = profile.events
    step = pd.Series(pd.NA, events.index, "Int64")
    on_host = events[~events["kind"].isin(DEVICE_KINDS)]
    for owner in owners_of(marked):
        of_host = events_of_process(on_host, owner)
        step[of_host.index] = _numbers(events_of_process(marked, owner), start_and_end(of_host)[0])
    for place, work in by_device(profile):
        times = launch_times(work) if has_launches(work) else work["start_ns"]
        step.iloc[work.rows] = _numbers(
            events_of_process(marked, owner_of(place, work, marked)), times
        )
    return step


def _numbers(own: pd.DataFrame, times: np.ndarray) -> pd.arrays.IntegerArray:
    """The number of the step that each time falls in."""
    # The last number answers the -1 of times in no step.
    return pd.array([*own["step"], pd.NA], dtype="Int64")[step_of_time(own, times)]


def _times(profile: Profile) -> tuple[pd.Series, pd.Series]:
    return profile.events["start_ns"], profile.counters["time_ns"]


def _inside(times: pd.Series, start: int | None, end: int | None) -> pd.Series:
    inside = pd.Series(True, times.index)
    if start is not None:
        inside &= times >= start
    if end is not None:
        inside &= times < end
    return inside


def _part(profile: Profile, kept: pd.Series, sampled: pd.Series) -> Profile:
    """These events and samples, with their rows numbered anew and only the categories that are
    left.
    """
    kept = kept.to_numpy(bool)
    events = profile.events[kept].reset_index(drop=True)
    for column in events.columns[events.dtypes == "category"].drop("kind"):
        events[column] = events[column].cat.remove_unused_categories()
    # A parent is the number of a row, which has moved, or is gone.
    if "parent" in events:
        new_row = pd.array(np.where(kept, np.cumsum(kept) - 1, -1), "Int64")
        moved = new_row[events["parent"].fillna(0).to_numpy(np.int64)]
        events["parent"] = pd.Series(moved).where(events["parent"].notna() & (moved >= 0))
    return Profile(events, profile.counters[sampled].reset_index(drop=True), dict(profile.meta))
