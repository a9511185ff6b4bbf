"""Call-stack samples as what they are: moments. When was each taken, and what do they say beside traced calls?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile

CALL_COLUMNS = {"name": "string", "calls": "int64", "mean_ns": "float64", "total_ns": "int64", "samples": "int64"}
"""Columns of `traced_and_sampled`."""


def main_thread(profile: Profile) -> int:
    """The thread that marked the program's ranges, in the trainer the one that runs the steps.

    Raises ValueError where no range with a thread is recorded.
    """
    threads = profile.events.loc[profile.events["kind"] == "annotation", "thread"].dropna()
    if not len(threads):
        raise ValueError("no ranges are recorded: run the trainer with --roctx")
    return int(threads.mode().iloc[0])


def samples_taken(profile: Profile, during: pd.DataFrame | None = None, thread: int | None = None) -> Profile:
    """Only the call-stack samples, each at the moment when it was taken, with duration 0.

    rocprof-sys stores a sample as lasting from the thread's sample before to its own moment. That is no time of its
    function: a thread that was not sampled for a while gets all of it at once. Without durations,
    `tidyprof.call_stacks` counts samples instead.

    during -- a table with start_ns and duration_ns, such as rows of `tidyprof.gaps`: only samples taken in one of
    these intervals. thread -- only samples of this thread: by the clock, threads that sleep are sampled as often as
    the one that works. Raises ValueError where no sample is left.
    """
    from tidyprof.tables.contract import Profile
    from tidyprof.tables.intervals import Intervals

    frames = profile.events[profile.events["kind"] == "sample"]
    taken = frames["start_ns"] + frames["duration_ns"]
    frames = frames.assign(start_ns=taken, duration_ns=0)
    if during is not None:
        begin = during["start_ns"]
        frames = frames[Intervals.union(begin, begin + during["duration_ns"]).contains(taken)]
    if thread is not None:
        frames = frames[frames["thread"] == thread]
    if not len(frames):
        raise ValueError("no call stack was sampled in this time; sample more often, or look at a longer time")
    # Readers number the frames of a sample from the outermost one: their order must survive the new times.
    frames = frames.sort_values(["start_ns", "sample", "depth"], kind="stable").reset_index(drop=True)
    return Profile(frames, meta=dict(profile.meta))


def samples_in(profile: Profile) -> int:
    """How many call stacks were sampled; each is one row per frame in `events`."""
    events = profile.events
    return int(events.loc[events["kind"] == "sample", "sample"].nunique()) if "sample" in events else 0


def traced_and_sampled(profile: Profile) -> pd.DataFrame:
    """One row per runtime call (HIP) by name, the longest total first: how often traced, and in how many samples.

    Columns CALL_COLUMNS: mean_ns and total_ns are of the traced calls; samples counts the stacks with that name in it.
    """
    import pandas as pd

    events = profile.events.assign(name=profile.events["name"].astype("string"))
    calls = events[events["kind"] == "runtime"].groupby("name")["duration_ns"].agg(["size", "mean", "sum"])
    frames = events[events["kind"] == "sample"]
    counts = frames.groupby("name")["sample"].nunique() if len(frames) else pd.Series(dtype="int64")
    table = calls.set_axis(["calls", "mean_ns", "total_ns"], axis=1)
    table["samples"] = counts.reindex(table.index).fillna(0)
    table = table.sort_values(["total_ns", "calls"], ascending=False).reset_index()[list(CALL_COLUMNS)]
    table = table.astype(CALL_COLUMNS)
    table.attrs["origin"] = profile.origin
    return table
