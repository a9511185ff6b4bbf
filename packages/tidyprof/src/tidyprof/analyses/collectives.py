"""The same collective on every rank: who came late, how long the others waited, how long the
transfer took.

A collective kernel starts when its own rank gets there and then waits on the device for the others,
so its duration is waiting and transfer in one. Only the starts on all ranks tell the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
    by_device,
    each,
    events_of_process,
    join,
    launch_times,
    names_matching,
    of_rank,
    owner_of,
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
"""Collectives in which every rank needs something of every other rank, so that none can leave
before all have entered.

The root of a broadcast can
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html).
"""

ENTRY_COLUMNS = {
    **PLACE,
    "world_size": "Int32",
    "step": "Int64",
    "name": "string",
    "launch_ns": "Int64",
    "start_ns": "int64",
    "duration_ns": "int64",
}
"""Columns of `collective_entries`."""

COLLECTIVE_COLUMNS = {
    "number": "int64",
    "step": "Int64",
    "name": "string",
    "ranks": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "entry_skew_ns": "int64",
    "transfer_ns": "int64",
    "exit_skew_ns": "int64",
    "lead_ns": "int64",
    "wait_ns": "int64",
    "first_rank": "Int32",
    "last_rank": "Int32",
    "last_device": "Int32",
    "order_possible": "bool",
}
"""Columns of `collectives`."""

COLLECTIVE_RANK_COLUMNS = {
    "number": "int64",
    "step": "Int64",
    "name": "string",
    **PLACE,
    "start_ns": "int64",
    "duration_ns": "int64",
    "lateness_ns": "int64",
    "wait_ns": "int64",
    "transfer_ns": "int64",
    "arrived_last": "bool",
    "synchronizing": "bool",
}
"""Columns of `collectives` with per_rank=True."""

_PARTICIPANT = list(PLACE)


def collective_entries(profile: Profile) -> pd.DataFrame:
    """One row per collective that ran on a device of this profile, in the order of launches.

    name is the collective operation (`allreduce`) where the file states it, else the kernel's short
    name; step is the training step that launched it; launch_ns, start_ns, duration_ns are as in
    `Profile.events`; world_size is the number of ranks of the job. What the file does not say is
    <NA>. The table is small, and `collectives` takes it in place of the profile: reduce many files
    with it (see `tidyprof.parallel`). Raises ValueError as `common.owner_of` does.
    """
    marked, whole = plain_steps(profile), {"world_size": profile.meta.get("world_size")}
    tables = []
    for place, events in by_device(profile, "collective"):
        launch = launch_times(events)
        own = events_of_process(marked, owner_of(place, events, marked))
        # The last number answers the -1 of launches in no step.
        numbers = np.append(own["step"], ABSENT)
        # Streams may overtake each other on the device; the host's order is the program's, equal on
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
        tables.append(result(columns, ENTRY_COLUMNS, profile))
    return join(tables or [result([], ENTRY_COLUMNS, profile)])


def _names(events: PlainEvents) -> list[str]:
    """The collective where the file states it, else the short name."""
    names = events["short_name"].tolist()
    if "collective" not in events:
        return names
    return [
        name if pd.isna(stated) else stated
        for stated, name in zip(events["collective"], names, strict=True)
    ]


def collectives(
    profiles: Profile | Iterable[Profile] | pd.DataFrame, *, per_rank: bool = False
) -> pd.DataFrame:
    """One row per collective that all ranks ran, in order of time; per_rank gives one row per
    collective and rank.

    profiles is one profile with several ranks, several profiles with one or more ranks each, or a
    table of `collective_entries`. Collectives of two ranks belong together if they have the same
    name and step, and the same number among these in the order of launches. Where ranks have a name
    different numbers of times in a step, as at the edges of a recording, none of these are
    compared. All ranks are taken to be in one process group, and their clocks to agree.

    start_ns is the first entry, duration_ns from there to the last exit: entry_skew_ns (first to
    last entry) plus transfer_ns (last entry to last exit). exit_skew_ns is from the first to the
    last exit, lead_ns is how much later than all others the last rank came (0: several came last
    together, and last_rank is one of them), wait_ns is the sum of all ranks' waiting. last_device
    distinguishes devices of one rank. order_possible is False where a rank left before another
    entered although the collective cannot end so (SYNCHRONIZING): clocks disagree, or these are
    different collectives.

    per_rank: lateness_ns is from the first entry to that of this rank. wait_ns, from this rank's
    entry to the last, and transfer_ns, the rest, add up to duration_ns. A rank that left before the
    last rank entered, as the root of a broadcast can, has not waited for it. arrived_last is True
    for no rank where several came last together. synchronizing marks collectives that no rank can
    leave so early.

    attrs: `ranks` and `world_size` (None if unknown; if fewer ranks are here, waits are lower
    bounds), `unmatched` (entries without counterpart), `impossible_orders`, `clock_error_ns`
    (disagreement of clocks that these prove, at least), `exit_skew_ns` (median over synchronizing
    collectives), `clocks` (these in a sentence). Raises ValueError for one rank only, and for
    several profiles (or files of a table) that do not state theirs or state the same one.
    """
    if isinstance(profiles, pd.DataFrame):
        entries = profiles
        require_own_ranks(entries)
    else:
        entries = joined_entries(map(collective_entries, each(profiles)))
    ranks = len(entries[_PARTICIPANT].drop_duplicates())
    if ranks == 1:
        raise ValueError(
            "there is only one rank: read the recordings of several ranks to compare their"
            " collectives"
        )
    matched = match(entries)
    table = _summaries(matched)
    chosen, columns = (
        (matched, COLLECTIVE_RANK_COLUMNS) if per_rank else (table, COLLECTIVE_COLUMNS)
    )
    chosen = chosen[list(columns)].astype(columns).reset_index(drop=True)
    sizes = entries["world_size"].dropna()
    chosen.attrs = {
        "origin": entries.attrs.get("origin"),
        "ranks": ranks,
        "world_size": int(sizes.max()) if len(sizes) else None,
        "unmatched": len(entries) - len(matched),
        **_clocks(table, matched),
    }
    return chosen


def joined_entries(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Entries of several profiles as one table. Raises ValueError unless each profile has ranks of
    its own.
    """
    tables = list(tables)
    seen: set[int] = set()
    for table in tables:
        own = set(table["rank"])
        if len(tables) > 1 and table["rank"].isna().any():
            raise ValueError(
                "several profiles, one of which does not state its rank: read it with rank=..."
            )
        if own & seen:
            raise ValueError(
                f"rank {min(own & seen)} is in two of the profiles: pass each rank once"
            )
        seen |= own
    return join(tables)


def require_own_ranks(table: pd.DataFrame) -> None:
    """Raise ValueError where a table of several files (column `file`, see `tidyprof.parallel`) has
    a rank in two of them, or a file that does not state its rank.

    Devices of one rank may be in several files.
    """
    if "file" not in table.columns or table["file"].nunique() < 2:
        return
    nameless = table["rank"].isna()
    if nameless.any():
        raise ValueError(
            f"several files, and {table.loc[nameless, 'file'].iloc[0]} does not state its rank:"
            " read it with rank=..."
        )
    files = table.groupby(_PARTICIPANT, dropna=False)["file"].unique()
    for (rank, _), names in files[files.str.len() > 1].items():
        raise ValueError(f"rank {rank} is in {names[0]} and in {names[1]}: pass each rank once")


def match(entries: pd.DataFrame) -> pd.DataFrame:
    """The entries that have a counterpart on every rank, sorted by collective and rank.

    Adds number (of the collective), end_ns and the columns that `collectives` explains.
    """
    # Only names that every participant has equally often in a step: counting pairs the calls, and
    # one that is missing would shift all behind it.
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


def _summaries(matched: pd.DataFrame) -> pd.DataFrame:
    grouped = matched.groupby("number")
    table = grouped.agg(
        step=("step", "first"),
        name=("name", "first"),
        ranks=("rank", "size"),
        start_ns=("start_ns", "min"),
        last_start=("start_ns", "max"),
        first_end=("end_ns", "min"),
        last_end=("end_ns", "max"),
        wait_ns=("wait_ns", "sum"),
        synchronizing=("synchronizing", "first"),
    ).reset_index()
    # Where several came last together `arrived_last` is True for none, so that the lead is 0.
    others = matched[~matched["arrived_last"]].groupby("number")["start_ns"].max()
    first, last = (matched.loc[grouped["start_ns"].agg(which)] for which in ("idxmin", "idxmax"))
    return table.assign(
        duration_ns=table["last_end"] - table["start_ns"],
        entry_skew_ns=table["last_start"] - table["start_ns"],
        transfer_ns=table["last_end"] - table["last_start"],
        exit_skew_ns=table["last_end"] - table["first_end"],
        lead_ns=table["last_start"] - others.to_numpy(),
        first_rank=first["rank"].to_numpy(),
        last_rank=last["rank"].to_numpy(),
        last_device=last["device"].to_numpy(),
        order_possible=~table["synchronizing"] | (table["first_end"] >= table["last_start"]),
    )


def _clocks(table: pd.DataFrame, matched: pd.DataFrame) -> dict[str, object]:
    """What the order of entries and exits says about the clocks of the ranks."""
    checked = table[table["synchronizing"]]
    impossible = checked[~checked["order_possible"]]
    error = (
        int((impossible["last_start"] - impossible["first_end"]).max()) if len(impossible) else 0
    )
    skew = float(checked["exit_skew_ns"].median()) if len(checked) else None
    text = "Times of all ranks are compared as they are, as if of one clock"
    if not len(checked):
        text += "; there is no collective that could prove them wrong."
    elif not len(impossible):
        text += (
            f": in none of {len(checked)} synchronizing collectives did a rank leave before another"
            f" entered, and all left within {skew / 1000:.1f} µs (median)."
        )
    else:
        text += (
            f", but in {len(impossible)} of {len(checked)} synchronizing collectives a rank left"
            f" before another entered: clocks differ by at least {error / 1000:.1f} µs, or these"
            " are collectives of different process groups. Do not trust the waits."
        )
    return {
        "impossible_orders": len(impossible),
        "clock_error_ns": error,
        "exit_skew_ns": skew,
        "clocks": text,
    }


COMMUNICATION = r"(gloo|mpi|ucc|nccl|xccl):(?P<name>.*)"
"""Ranges of torch.distributed's back ends, on threads of their own."""


def communication(profile: Profile, owner: dict[str, Any]) -> PlainEvents:
    """The ranges of COMMUNICATION of one owner."""
    ranges = events_of_process(plain_host_events(profile, ("annotation", "operator")), owner)
    return ranges[names_matching(ranges, COMMUNICATION)]


def host_entries(profile: Profile, mark: str | None) -> pd.DataFrame:
    """A table like that of `collective_entries`, of the ranges of COMMUNICATION.

    With tensors on a GPU a rank enters once its devices have done what was launched before: the
    copy to the host waits for that. The device of such an entry is the first of the rank's.
    """
    return result(pd.concat(list(_entry_tables(profile, mark))), ENTRY_COLUMNS, profile)


def _entry_tables(profile: Profile, mark: str | None) -> Iterator[pd.DataFrame]:
    marked = steps(profile, mark=mark)
    # A table without rows, since pd.concat needs at least one.
    yield pd.DataFrame(columns=list(ENTRY_COLUMNS))
    for rank in profile.events["rank"].drop_duplicates():
        owner = {"rank": rank, "process": pd.NA}
        ranges, steps_of_rank = communication(profile, owner), events_of_process(marked, owner)
        if not len(ranges):
            continue
        # The last number answers the -1 of collectives in no step.
        numbers = np.append(whole_numbers(steps_of_rank["step"]), ABSENT)
        called, end = start_and_end(ranges)
        work = of_rank(plain_events(profile, DEVICE_KINDS), rank)
        # Within the range, even where work that was launched before it ends later.
        begin = np.minimum(np.maximum(called, _free_from(work, called)), end)
        device = work["device"].min() if len(work) else ABSENT
        same_for_all = {
            "rank": rank,
            "device": pd.NA if device == ABSENT else device,
            "world_size": profile.meta.get("world_size", pd.NA),
        }
        columns = {
            **{column: [value] * len(ranges) for column, value in same_for_all.items()},
            "step": numbers[step_of_time(steps_of_rank, called)],
            "name": [name.partition(":")[2] for name in ranges["name"]],
            "launch_ns": called,
            "start_ns": begin,
            "duration_ns": end - begin,
        }
        yield result(columns, ENTRY_COLUMNS, profile)


def _free_from(work: PlainEvents, times: np.ndarray) -> np.ndarray:
    """For each of these times, when the last device event ended of those launched before it; 0
    where there is none.
    """
    launched = launch_times(work)
    known = launched != ABSENT
    order = np.argsort(launched[known], kind="stable")
    ends = np.append(0, np.maximum.accumulate(start_and_end(work)[1][known][order]))
    return ends[np.searchsorted(launched[known][order], times)]
