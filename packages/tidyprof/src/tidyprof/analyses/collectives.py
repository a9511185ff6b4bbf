"""Compare each collective across ranks: arrival delay, waiting time and transfer time.

A collective kernel starts when its own rank arrives, and then it waits on the device for the other
ranks. The kernel's duration therefore includes both the wait and the transfer. The start times on
all ranks are needed to separate the wait from the transfer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    COLUMNS,
    PLACE,
    by_device,
    each,
    join,
    launch_times,
    names_matching,
    of_rank,
    plain_events,
    plain_host_events,
    repeated,
    result,
    start_and_end,
)
from tidyprof.analyses.steps import plain_steps, step_of_time, steps
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, Profile, whole_numbers
from tidyprof.tables.records import PlainEvents

SYNCHRONIZING = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE
)
"""Collectives in which every rank needs data from every other rank. No rank can leave such a
collective before all ranks have entered it.

A broadcast isn't listed because its root can leave earlier
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html).
"""


_PARTICIPANT = list(PLACE)


def collective_entries(profile: Profile) -> pd.DataFrame:
    """Return one row per collective that ran on a device of this profile, in launch order.

    `name` is the collective operation, such as `allreduce`, if the file states the operation.
    Otherwise, `name` is the kernel's short name. `step` is the training step that launched the
    collective. `launch_ns`, `start_ns` and `duration_ns` are the same as in `Profile.events`.
    `world_size` is the number of ranks in the job. Values that are missing from the file are
    `<NA>`.

    The table is small, and `collectives` accepts it instead of a profile. Use such tables to reduce
    many files (see `tidyprof.parallel`). Raises ValueError under the same conditions as
    `steps`.
    """
    marked, whole = plain_steps(profile), {"world_size": profile.meta.get("world_size")}
    tables = []
    for place, events in by_device(profile, "collective"):
        launch = launch_times(events)
        own = of_rank(marked, place["rank"])
        # step_of_time returns -1 for a launch outside of all steps, which selects the last number.
        numbers = np.append(own["step"], ABSENT)
        # Streams may overtake each other on the device, but the host's launch order is the same on
        # all ranks.
        order = np.argsort(
            events["start_ns"] if (launch == ABSENT).any() else launch, kind="stable"
        )
        columns = {
            **repeated(place | whole, len(events)),
            "step": numbers[step_of_time(own, launch)][order],
            "name": _names(events[order]),
            "launch_ns": launch[order],
            "start_ns": events["start_ns"][order],
            "duration_ns": events["duration_ns"][order],
        }
        tables.append(result(columns, "collective_entries", profile))
    return join(tables or [result([], "collective_entries", profile)])


def _names(events: PlainEvents) -> list[str]:
    names = pd.Series(events["short_name"], dtype="string")
    if "collective" in events:
        names = pd.Series(events["collective"], dtype="string").fillna(names)
    return names.tolist()


def collectives(profiles: Profile | Iterable[Profile] | pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank for each collective that all ranks ran, sorted by time and rank.

    `profiles` is one profile with several ranks, several profiles with one or more ranks each, or a
    table from `collective_entries`.

    Collectives on two ranks match if they have the same name, step and position in launch order. If
    the ranks ran a collective different numbers of times in a step, collectives with this name
    aren't compared for that step. Such a difference can occur at the start or end of a trace. The
    comparison assumes that all ranks are in one process group and that their clocks are
    synchronized.

    - `number`: the number of the collective.
    - `lateness_ns`: the time from the first rank's entry to this rank's entry.
    - `wait_ns`: the time from this rank's entry to the last entry. If a rank left before the last
      rank entered, which the root of a broadcast can do, its `wait_ns` is 0.
    - `transfer_ns`: the rest of `duration_ns`.
    - `arrived_last`: True for the rank that arrived last. If several ranks arrived last at the same
      time, the value is False for all ranks.
    - `synchronizing`: True for collectives that no rank can leave before all have entered (see
      `SYNCHRONIZING`).

    `attrs` contains these entries:

    - `ranks`, `world_size`: the number of ranks in the table and in the job (None if unknown). If
      ranks are missing from the table, the waiting times are lower bounds.
    - `unmatched`: the number of entries without a counterpart.
    - `impossible_orders`: the number of synchronizing collectives that a rank left before another
      rank entered. Then the clocks disagree or the rows belong to different collectives.
    - `clock_error_ns`: a lower bound for the difference between the clocks, derived from these
      collectives.
    - `exit_skew_ns`: the median time from the first exit to the last exit of a synchronizing
      collective.
    - `clocks`: a sentence that summarizes these findings.

    Raises ValueError if there is only one rank. If there are several profiles, also raises
    ValueError if one of them doesn't state its rank or if two have the same rank.
    """
    if isinstance(profiles, pd.DataFrame):
        entries = profiles
    else:
        entries = joined_entries(map(collective_entries, each(profiles)))
    ranks = len(entries[_PARTICIPANT].drop_duplicates())
    if ranks == 1:
        raise ValueError(
            "there is only one rank; read the profiles of several ranks to compare collectives"
        )
    matched = match(entries)
    columns = COLUMNS["collectives"]
    table = matched[list(columns)].astype(columns).reset_index(drop=True)
    sizes = entries["world_size"].dropna()
    table.attrs = {
        "origin": entries.attrs.get("origin"),
        "ranks": ranks,
        "world_size": int(sizes.max()) if len(sizes) else None,
        "unmatched": len(entries) - len(matched),
        **_clocks(matched),
    }
    return table


def joined_entries(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the entries of all profiles as one table.

    Raises ValueError if two profiles share a rank, or if one of several profiles doesn't state its
    rank.
    """
    tables = list(tables)
    ranks = pd.concat([table["rank"].drop_duplicates() for table in tables])
    if len(tables) > 1 and ranks.isna().any():
        raise ValueError(
            "one of several profiles doesn't state its rank; read this profile with rank=..."
        )
    if ranks.duplicated().any():
        twice = ranks[ranks.duplicated()].min()
        raise ValueError(f"two profiles contain rank {twice}; pass each rank only once")
    return join(tables)


def match(entries: pd.DataFrame) -> pd.DataFrame:
    """Return the entries that have a counterpart on every rank, sorted by collective and rank.

    The function adds `end_ns`, the number of the collective, and the columns that the docstring of
    `collectives` describes.
    """
    # Calls are paired by counting, so one missing call would shift all later pairs. Keep only names
    # that occur equally often on all ranks in a step.
    same = ["step", "name"]
    counts = entries.groupby([*same, *_PARTICIPANT], dropna=False, sort=False).size()
    per_name = counts.groupby(same, dropna=False).agg(["min", "max", "size"])
    complete = per_name["size"] == len(entries[_PARTICIPANT].drop_duplicates())
    agreed = per_name[complete & (per_name["min"] == per_name["max"])].reset_index()[same]
    table = entries.merge(agreed, on=same)
    table["occurrence"] = table.groupby([*same, *_PARTICIPANT], dropna=False, sort=False).cumcount()
    key = [*same, "occurrence"]
    first = table.groupby(key, dropna=False, sort=False)["start_ns"].transform("min")
    number = table.assign(first=first).groupby(["first", *key], dropna=False).ngroup()
    table = table.assign(number=number).sort_values(
        ["number", *_PARTICIPANT], kind="stable", ignore_index=True
    )
    return _with_waits(table)


def _with_waits(table: pd.DataFrame) -> pd.DataFrame:
    start, end = start_and_end(table)
    grouped = table.groupby("number")["start_ns"]
    first, last = grouped.transform("min").to_numpy(), grouped.transform("max").to_numpy()
    wait = np.where(end >= last, last - start, 0)
    number = table["number"]
    alone = (start == last) & (number.map(number[start == last].value_counts()) == 1).to_numpy(bool)
    return table.assign(
        lateness_ns=start - first,
        wait_ns=wait,
        transfer_ns=end - start - wait,
        arrived_last=alone,
        synchronizing=table["name"].str.contains(SYNCHRONIZING).to_numpy(bool),
        end_ns=end,
    )


def _clocks(matched: pd.DataFrame) -> dict[str, object]:
    """Return what the order of entries and exits reveals about the ranks' clocks."""
    grouped = matched[matched["synchronizing"]].groupby("number")
    checked = grouped.agg(
        last_start=("start_ns", "max"), first_end=("end_ns", "min"), last_end=("end_ns", "max")
    )
    early = checked["last_start"] - checked["first_end"]
    impossible = early[early > 0]
    error = int(impossible.max()) if len(impossible) else 0
    skews = checked["last_end"] - checked["first_end"]
    skew = float(skews.median()) if len(checked) else None
    text = "The times of all ranks are compared as if they came from one clock."
    if len(impossible):
        text += (
            f" But in {len(impossible)} of {len(checked)} synchronizing collectives, a rank left"
            " before another rank entered. Either the collectives belong to different process"
            f" groups, or the clocks disagree by {error / 1000:.1f} µs or more. Don't trust the"
            " waiting times."
        )
    return {
        "impossible_orders": len(impossible),
        "clock_error_ns": error,
        "exit_skew_ns": skew,
        "clocks": text,
    }


COMMUNICATION = r"(gloo|mpi|ucc|nccl|xccl):(?P<name>.*)"
"""Ranges of torch.distributed's communication backends, which run on separate threads."""


def communication(profile: Profile, rank: int | None) -> PlainEvents:
    """Return the `COMMUNICATION` ranges of one rank."""
    ranges = of_rank(plain_host_events(profile, ("annotation", "operator")), rank)
    return ranges[names_matching(ranges, COMMUNICATION)]


def host_entries(profile: Profile, mark: str | None) -> pd.DataFrame:
    """Build a table like the one from `collective_entries`, but from the `COMMUNICATION` ranges.

    If the tensors are on a GPU, the copy to the host waits for all earlier work on the device. A
    rank therefore enters the collective when its devices have finished this work. The table lists
    the rank's first device for these entries.
    """
    marked = steps(profile, mark=mark)
    tables = [result([], "collective_entries", profile)]
    for rank in profile.events["rank"].drop_duplicates():
        ranges, own = communication(profile, rank), of_rank(marked, rank)
        # step_of_time returns -1 for a collective outside of all steps, which selects the last
        # number.
        numbers = np.append(whole_numbers(own["step"]), ABSENT)
        called, end = start_and_end(ranges)
        work = of_rank(plain_events(profile, DEVICE_KINDS), rank)
        # The entry stays within the range, even if earlier work ends after the range.
        begin = np.minimum(np.maximum(called, _free_from(work, called)), end)
        device = work["device"].min() if len(work) else ABSENT
        place = {"rank": rank, "device": device, "world_size": profile.meta.get("world_size")}
        columns = {
            **repeated(place, len(ranges)),
            "step": numbers[step_of_time(own, called)],
            "name": [name.partition(":")[2] for name in ranges["name"]],
            "launch_ns": called,
            "start_ns": begin,
            "duration_ns": end - begin,
        }
        tables.append(result(columns, "collective_entries", profile))
    return join(tables)


def _free_from(work: PlainEvents, times: np.ndarray) -> np.ndarray:
    """For each of these times, return the end of the last device event that was launched earlier.
    If no event was launched earlier, the result is 0.
    """
    launched = launch_times(work)
    known = launched != ABSENT
    order = np.argsort(launched[known], kind="stable")
    ends = np.append(0, np.maximum.accumulate(start_and_end(work)[1][known][order]))
    return ends[np.searchsorted(launched[known][order], times)]
