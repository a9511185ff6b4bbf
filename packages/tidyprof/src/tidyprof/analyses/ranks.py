"""A comparison of the ranks in a run, which finds the rank that the other ranks wait for."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from tidyprof.analyses.collectives import collective_entries, collectives, joined_entries
from tidyprof.analyses.common import COLUMNS, PLACE, each, join, percent
from tidyprof.analyses.device_time import overlap
from tidyprof.tables.contract import Profile

MAJORITY = 0.5
"""Minimum share of all waiting time that a single rank must cause to be the straggler. Below this
share, different ranks arrive late each time.
"""

NOTICEABLE = 0.01
"""Minimum share of the ranks' time that must be waiting time before a rank counts as a
straggler.
"""

MAXIMUM_IMPOSSIBLE = 0.01
"""Maximum share of collectives with an impossible order. Above this share, no rank is blamed."""


def ranks(profiles: Profile | Iterable[Profile]) -> pd.DataFrame:
    """Return one row per rank and device that shows how the rank spends its time and how long the
    other ranks wait for it.

    `profiles` is one profile with several ranks, or several profiles with one or more ranks each.
    If `profiles` is a generator, only one profile is in memory at a time.

    - `total_ns`: the time from the first start to the last end of the device events. This time is
      the sum of `computation_ns`, `exposed_communication_ns`, `exposed_copy_ns` and `idle_ns` (see
      `overlap`).
    - `busy_ns`, `communication_ns`: the time when any device event ran, and the time when any
      collective ran.
    - `collectives`, `compared`: the number of all collectives, and the number of collectives with a
      counterpart on every rank (see `collectives`). The columns below cover only the compared
      collectives.
    - `wait_ns`, `transfer_ns`: the time that the rank spent in collectives before the last rank
      entered, and the time after that.
    - `arrived_last`: the number of collectives in which this rank alone arrived last.
    - `caused_wait_ns`: the total time that all other ranks waited in these collectives.
    - `exit_offset_ns`: the median time between the median rank's exit and this rank's exit. Values
      of more than a few microseconds indicate a clock difference. The value is `<NA>` if there are
      no synchronizing collectives.

    The entry `straggler` of `attrs` is the straggler's rank. If there is no straggler or its rank
    is unknown, `straggler` is None. `evidence` explains the result in sentences. `ranks` is the
    number of ranks in the table, and a device without a rank counts as one rank. The other entries
    come from `collectives`. Raises ValueError if one of several profiles doesn't state its rank or
    if two of them have the same rank.
    """
    overlaps, entries = [], []
    for profile in each(profiles):
        overlaps.append(overlap(profile))
        entries.append(collective_entries(profile))
    if not entries:
        raise ValueError("there are no profiles to compare")
    return compare_ranks(join(overlaps), joined_entries(entries))


def compare_ranks(overlaps: pd.DataFrame, entries: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `ranks`, based on the tables of `overlap` and `collective_entries` for
    all ranks.

    Use this function for profiles that were reduced elsewhere (see `tidyprof.parallel`). Each file
    must have its own rank.
    """
    place = list(PLACE)
    several = len(entries[place].drop_duplicates()) != 1
    table = overlaps.set_index(pd.MultiIndex.from_frame(overlaps[place].astype("Int64")))
    counts = entries.astype(dict.fromkeys(place, "Int64")).groupby(place, dropna=False).size()
    table = table.assign(collectives=counts.reindex(table.index, fill_value=0))
    # `collectives` rejects a single rank, but here a single rank only means that there is nothing
    # to compare.
    compared = collectives(entries if several else entries.iloc[:0])
    table = table.join(_costs(compared)).fillna(dict.fromkeys(_COSTS, 0))
    columns = COLUMNS["ranks"]
    table = table.reset_index(drop=True)[list(columns)].astype(columns)
    # Each row without a rank counts as one rank.
    number = int(table["rank"].nunique() + table["rank"].isna().sum())
    straggler, evidence = find_straggler(table, compared.attrs)
    table.attrs = {
        **compared.attrs,
        "origin": overlaps.attrs.get("origin"),
        "ranks": number,
        "straggler": straggler,
        "evidence": evidence + _incomplete(number, compared.attrs["world_size"]),
    }
    return table


def _incomplete(here: int, world_size: int | None) -> str:
    """Describe that ranks are missing from the table."""
    if world_size is None or here >= world_size:
        return ""
    return f" Only {here} of {world_size} ranks were read; a missing rank may have arrived later."


_COSTS = ("compared", "arrived_last", "wait_ns", "transfer_ns", "caused_wait_ns")


def _costs(compared: pd.DataFrame) -> pd.DataFrame:
    """Return the time that each rank spent in the compared collectives, and how long other ranks
    waited for it.

    The index of the result is rank and device.
    """
    place = list(PLACE)
    waits = compared.groupby("number")["wait_ns"].transform("sum")
    end = compared["start_ns"] + compared["duration_ns"]
    offset = end - end.groupby(compared["number"]).transform("median")
    table = compared.astype(dict.fromkeys(place, "Int64")).assign(
        caused_wait_ns=waits.where(compared["arrived_last"], 0),
        exit_offset_ns=offset.where(compared["synchronizing"]),
    )
    grouped = table.groupby(place, dropna=False)
    costs = grouped.agg(
        compared=("number", "size"),
        arrived_last=("arrived_last", "sum"),
        wait_ns=("wait_ns", "sum"),
        transfer_ns=("transfer_ns", "sum"),
        caused_wait_ns=("caused_wait_ns", "sum"),
        exit_offset_ns=("exit_offset_ns", "median"),
    )
    return costs.assign(exit_offset_ns=costs["exit_offset_ns"].round().astype("Int64"))


def rank_labels(table: pd.DataFrame) -> list[str]:
    """Return a label for each row. The label is the rank. If a rank is unknown or has several
    devices, the label also contains the device.
    """
    rank = "rank " + table["rank"].astype("string")
    device = "device " + table["device"].astype("string")
    if rank.notna().all() and not rank.duplicated().any():
        return rank.tolist()
    both = rank + ", " + device
    return both.fillna(rank).fillna(device).fillna("device").tolist()


def find_straggler(table: pd.DataFrame, facts: dict) -> tuple[int | None, str]:
    """Return the rank that the other ranks wait for, from a table of `ranks`, or None, and the
    sentences that contain the numbers behind the result.

    - facts: the attrs of the `collectives` table.

    The rank must have caused more than `MAJORITY` of all waiting time, and the ranks must spend at
    least `NOTICEABLE` of their time waiting. The clocks must also be reliable. Only rows with
    compared collectives are considered.
    """
    judged = table[table["compared"] > 0]
    if not len(judged):
        return None, "No collectives could be compared between ranks."
    if facts["impossible_orders"] > MAXIMUM_IMPOSSIBLE * judged["compared"].max():
        return None, f"No rank can be blamed. {facts['clocks']}"
    waited = int(judged["wait_ns"].sum())
    share = float(percent(waited, judged["total_ns"].sum()))
    ranks_wait = f"{share:.1f}% of their time waiting for each other"
    if share < 100 * NOTICEABLE:
        return None, f"Ranks spend only {ranks_wait}."
    worst = judged.assign(label=rank_labels(judged)).loc[judged["caused_wait_ns"].idxmax()]
    others = judged.drop(worst.name)
    caused = float(percent(worst["caused_wait_ns"], waited))
    if worst["caused_wait_ns"] <= MAJORITY * waited:
        most = f"{worst['label']} caused the most, {caused:.0f}% of it"
        return None, f"Ranks spend {ranks_wait}, but no single rank is to blame: {most}."
    name = worst["label"].capitalize()
    # This is the rank's mean lateness, that is, one other rank's waiting time in one collective.
    mean = worst["caused_wait_ns"] / len(others) / max(int(worst["arrived_last"]), 1)
    median = others[["exit_offset_ns", "computation_ns"]].median()
    offset = worst["exit_offset_ns"] - median["exit_offset_ns"]
    if not pd.isna(offset) and 2 * offset > mean:
        return None, f"{name} enters late, but it also leaves late, so its clock may be the cause."
    evidence = (
        f"{name} came last in {worst['arrived_last']} of {worst['compared']} collectives and caused"
        f" {caused:.0f}% of all waiting time. The mean wait for it was {mean / 1e6:.2f} ms. Its"
        f" device computed for {worst['computation_ns'] / 1e6:.1f} ms, and the others for"
        f" {median['computation_ns'] / 1e6:.1f} ms."
    )
    return (None if pd.isna(worst["rank"]) else int(worst["rank"]), evidence)
