"""A comparison of a run's ranks, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from tidyprof.analyses.collectives import (
    collective_entries,
    collectives,
    joined_entries,
    require_own_ranks,
)
from tidyprof.analyses.common import PLACE, each, join, percent
from tidyprof.analyses.device_time import overlap
from tidyprof.tables.contract import Profile

MAJORITY = 0.5
"""Share of all waiting time that the straggler's lateness must have caused. Below this share,
different ranks are late each time.
"""

NOTICEABLE = 0.01
"""Share of the ranks' time that must be waiting time before a rank counts as a straggler."""

MAXIMUM_IMPOSSIBLE = 0.01
"""Maximum share of collectives in an impossible order. Above this share, none of the ranks is
blamed.
"""

SLOWER = 1.1
"""Ratio of the straggler's computation to the other ranks' median. Above this ratio, the evidence
says that its device computes longer.
"""

RANK_COLUMNS = {
    **PLACE,
    "total_ns": "int64",
    "busy_ns": "int64",
    "computation_ns": "int64",
    "communication_ns": "int64",
    "exposed_communication_ns": "int64",
    "exposed_copy_ns": "int64",
    "idle_ns": "int64",
    "collectives": "int64",
    "compared": "int64",
    "arrived_last": "int64",
    "wait_ns": "int64",
    "transfer_ns": "int64",
    "caused_wait_ns": "int64",
    "exit_offset_ns": "Int64",
}
"""Columns of `ranks`."""


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for, or no rank.

    rank     -- None if no single rank is late, or if the straggler can't be determined.
    evidence -- sentences with the numbers behind the result.
    """

    rank: int | None
    evidence: str


def ranks(profiles: Profile | Iterable[Profile]) -> pd.DataFrame:
    """Return one row per rank and device: how it spends its time, and how long the other ranks wait
    for it.

    `profiles` is one profile with several ranks, or several profiles with one or more ranks each. A
    generator keeps only one of them in memory at a time.

    - `total_ns`: from the first start to the last end of device events. It is the sum of
      `computation_ns`, `exposed_communication_ns`, `exposed_copy_ns` and `idle_ns` (see `overlap`).
    - `busy_ns`, `communication_ns`: the time when any device event or any collective ran.
    - `collectives`, `compared`: the number of collectives, and of collectives with a counterpart on
      every rank (see `collectives`). The following columns cover the compared collectives.
    - `wait_ns`, `transfer_ns`: the rank's time before the last rank entered, and after it.
    - `arrived_last`: the number of collectives that only this rank entered last.
    - `caused_wait_ns`: how long all other ranks waited in these collectives.
    - `exit_offset_ns`: the median time by which the rank leaves after the median rank. Values above
      a few microseconds show a clock difference. `<NA>` without synchronizing collectives.

    In `attrs`, `straggler` is the rank, or None if there is no straggler or its rank is unknown.
    `evidence` explains it in sentences. `ranks` is the number of ranks in the table, where a device
    without a rank counts as one. The other entries come from `collectives`. Raises ValueError if
    one of several profiles doesn't state its rank or if two have the same rank.
    """
    overlaps, entries = [], []
    for profile in each(profiles):
        overlaps.append(overlap(profile))
        entries.append(collective_entries(profile))
    if not entries:
        raise ValueError("there are no profiles to compare")
    return compare_ranks(join(overlaps), joined_entries(entries))


def compare_ranks(overlaps: pd.DataFrame, entries: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `ranks` from the tables of `overlap` and `collective_entries` of all
    ranks.

    Use it for profiles that were reduced elsewhere (see `tidyprof.parallel`). Raises ValueError if
    one of several files (column `file`) doesn't state its rank or if two have the same rank.
    """
    for part in (overlaps, entries):
        require_own_ranks(part)
    place = list(PLACE)
    several = len(entries[place].drop_duplicates()) != 1
    table = overlaps.set_index(pd.MultiIndex.from_frame(overlaps[place].astype("Int64")))
    counts = entries.astype(dict.fromkeys(place, "Int64")).groupby(place, dropna=False).size()
    table = table.assign(collectives=counts.reindex(table.index, fill_value=0))
    # `collectives` rejects a single rank, but here a single rank only means that there is nothing
    # to compare.
    compared = collectives(entries if several else entries.iloc[:0], per_rank=True)
    table = table.join(_costs(compared)).fillna(dict.fromkeys(_COSTS, 0))
    table = table.reset_index(drop=True)[list(RANK_COLUMNS)].astype(RANK_COLUMNS)
    found = find_straggler(table, compared.attrs)
    table.attrs = {
        **compared.attrs,
        "origin": overlaps.attrs.get("origin"),
        "ranks": _number_of_ranks(table),
        "straggler": found.rank,
        "evidence": found.evidence + _incomplete(table, compared.attrs["world_size"]),
    }
    return table


def _number_of_ranks(table: pd.DataFrame) -> int:
    """Return the number of ranks in the rows. Each row without a rank counts as one."""
    return int(table["rank"].nunique() + table["rank"].isna().sum())


def _incomplete(table: pd.DataFrame, world_size: int | None) -> str:
    """Return which ranks the verdict doesn't cover: ranks without collectives, and missing
    ranks.
    """
    text = ""
    by_rank = table.groupby("rank")["collectives"].sum()
    if by_rank.any() and not by_rank.all():
        silent = ", ".join(map(str, by_rank.index[by_rank == 0]))
        text += f" Without a collective in the trace: rank {silent}."
    here = _number_of_ranks(table)
    if world_size is not None and here < world_size:
        text += (
            f" Only {here} of {world_size} ranks were read; a missing rank may have arrived even"
            " later."
        )
    return text


_COSTS = ("compared", "arrived_last", "wait_ns", "transfer_ns", "caused_wait_ns")


def _costs(compared: pd.DataFrame) -> pd.DataFrame:
    """Return the time that the compared collectives cost each rank, and how long others waited for
    it.

    The index is rank and device.
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
    """Return a label for each row: its rank, plus its device if a rank is unknown or has
    several.
    """
    by_rank = table["rank"].notna().all() and not table["rank"].duplicated().any()
    labels = []
    for rank, device in zip(table["rank"], table["device"], strict=True):
        parts = [] if pd.isna(rank) else [f"rank {rank}"]
        if not by_rank and not pd.isna(device):
            parts.append(f"device {device}")
        labels.append(", ".join(parts) or "device")
    return labels


def find_straggler(table: pd.DataFrame, facts: dict) -> Straggler:
    """Return the rank that the others wait for, from a table of `ranks`.

    facts -- the attrs of `collectives`.

    The rank must have caused more than `MAJORITY` of all waiting time, and waiting must take at
    least `NOTICEABLE` of the time. The clocks must also be reliable. Only rows with compared
    collectives are judged.
    """
    judged = table[table["compared"] > 0]
    if not len(judged):
        return Straggler(None, "No collective could be compared between ranks.")
    judged = judged.assign(label=rank_labels(judged))
    if facts["impossible_orders"] > MAXIMUM_IMPOSSIBLE * judged["compared"].max():
        return Straggler(None, f"No rank can be blamed. {facts['clocks']}")
    waited = int(judged["wait_ns"].sum())
    share = float(percent(waited, judged["total_ns"].sum()))
    if share < 100 * NOTICEABLE:
        return Straggler(
            None, f"Ranks spend only {share:.1f}% of their time waiting for each other."
        )
    worst = judged.loc[judged["caused_wait_ns"].idxmax()]
    if worst["caused_wait_ns"] <= MAJORITY * waited:
        most = (
            f"{worst['label']} caused the most, {percent(worst['caused_wait_ns'], waited):.0f}% of"
            " it"
        )
        if not worst["caused_wait_ns"]:
            most = "no rank was ever the only one to arrive last"
        return Straggler(
            None,
            f"Ranks spend {share:.1f}% of their time waiting for each other, but no single rank is"
            f" to blame: {most}.",
        )
    return _judged(worst, judged.drop(worst.name), waited)


def _judged(worst: pd.Series, others: pd.DataFrame, waited: int) -> Straggler:
    """Return the evidence that this rank is the straggler, considering its clock."""
    name = worst["label"].capitalize()
    # This is the rank's mean lateness, that is, one other rank's waiting time in one collective.
    mean = worst["caused_wait_ns"] / len(others) / max(int(worst["arrived_last"]), 1)
    offset = worst["exit_offset_ns"] - others["exit_offset_ns"].median()
    if not pd.isna(offset) and 2 * offset > mean:
        return Straggler(
            None,
            f"{name} enters {mean / 1000:.1f} µs late on average but also leaves"
            f" {offset / 1000:.1f} µs after the other ranks, so its clock may be the cause.",
        )
    caused = float(percent(worst["caused_wait_ns"], waited))
    idle = float(percent(worst["idle_ns"], worst["total_ns"]))
    computed, median = worst["computation_ns"], others["computation_ns"].median()
    cause = "its device isn't slower but receives its work later"
    if computed > SLOWER * median:
        cause = "its device computes longer"
    evidence = (
        f"{name} came last in {worst['arrived_last']} of {worst['compared']} collectives and caused"
        f" {caused:.0f}% of all waiting time. Each time, the other ranks waited"
        f" {mean / 1e6:.2f} ms for it on average. The rank itself waited"
        f" {worst['wait_ns'] / 1e6:.1f} ms, and the other ranks waited"
        f" {others['wait_ns'].median() / 1e6:.1f} ms (median). It computed for"
        f" {computed / 1e6:.1f} ms and the other ranks for {median / 1e6:.1f} ms, so {cause}"
        f" (idle for {idle:.0f}% of the time)."
    )
    return Straggler(None if pd.isna(worst["rank"]) else int(worst["rank"]), evidence)
