"""The ranks of one run side by side, and the one that the others wait for."""

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
"""Share of all waiting that the straggler's lateness must have caused, else several ranks take
turns.
"""

NOTICEABLE = 0.01
"""Share of the ranks' time that must be waiting before one of them is called a straggler."""

MAXIMUM_IMPOSSIBLE = 0.01
"""With more than this share of the collectives in an impossible order no rank is blamed."""

SLOWER = 1.1
"""Ratio of the straggler's computation to the others' median from which its device is said to
compute longer.
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
    """The rank that the others wait for, or none.

    rank     -- None where no single rank is it, or where that cannot be told.
    evidence -- sentences with the figures that show it.
    """

    rank: int | None
    evidence: str


def ranks(profiles: Profile | Iterable[Profile]) -> pd.DataFrame:
    """One row per rank and device: where its time goes, and what it cost the others.

    profiles is one profile with several ranks, or several with one or more each; a generator keeps
    one of them in memory at a time. total_ns (first start to last end of device events) is the sum
    of computation_ns, exposed_communication_ns, exposed_copy_ns and idle_ns, see `overlap`; busy_ns
    is the union of all device events, communication_ns that of collectives. collectives counts the
    collectives; of them, `compared` have a counterpart on every rank (see `collectives`). In these
    the rank spent wait_ns, before the last rank entered, and transfer_ns. arrived_last counts those
    that this rank entered last, alone; caused_wait_ns is what all other ranks waited in them.
    exit_offset_ns, the median time by which the rank leaves later than the median rank, should be a
    few microseconds; more is the difference of its clock. It is <NA> without synchronizing
    collectives.

    attrs: `straggler` (rank or None; None too where its rank is unknown), `evidence` (sentences),
    `ranks` (how many are here; a device without a rank counts as one), and the other attrs of
    `collectives`. Raises ValueError for several profiles that do not state their rank or state the
    same rank.
    """
    overlaps, entries = [], []
    for profile in each(profiles):
        overlaps.append(overlap(profile))
        entries.append(collective_entries(profile))
    if not entries:
        raise ValueError("there is no profile to compare")
    return compare_ranks(join(overlaps), joined_entries(entries))


def compare_ranks(overlaps: pd.DataFrame, entries: pd.DataFrame) -> pd.DataFrame:
    """The table of `ranks` from the tables of `overlap` and `collective_entries` of all ranks.

    For recordings that were reduced elsewhere, see `tidyprof.parallel`. Raises ValueError where
    several files (column `file`) do not state their rank or state the same one.
    """
    for part in (overlaps, entries):
        require_own_ranks(part)
    place = list(PLACE)
    several = len(entries[place].drop_duplicates()) != 1
    table = overlaps.set_index(pd.MultiIndex.from_frame(overlaps[place].astype("Int64")))
    counts = entries.astype(dict.fromkeys(place, "Int64")).groupby(place, dropna=False).size()
    table = table.assign(collectives=counts.reindex(table.index, fill_value=0))
    # `collectives` refuses a single rank, which here only has nothing to be compared with.
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
    """How many ranks the rows are about; each row without a rank stands for one."""
    return int(table["rank"].nunique() + table["rank"].isna().sum())


def _incomplete(table: pd.DataFrame, world_size: int | None) -> str:
    """Which ranks the verdict is not about: the ranks without a collective, and how many are not
    here.
    """
    text = ""
    by_rank = table.groupby("rank")["collectives"].sum()
    if by_rank.any() and not by_rank.all():
        silent = ", ".join(map(str, by_rank.index[by_rank == 0]))
        text += f" Without a collective in its recording: rank {silent}."
    here = _number_of_ranks(table)
    if world_size is not None and here < world_size:
        text += (
            f" Only {here} of {world_size} ranks are here: an absent one may have come later still."
        )
    return text


_COSTS = ("compared", "arrived_last", "wait_ns", "transfer_ns", "caused_wait_ns")


def _costs(compared: pd.DataFrame) -> pd.DataFrame:
    """What the compared collectives cost each rank, and what it cost the others in them. The index
    is rank and device.
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
    """What to call each row: its rank, and its device where ranks have several or are unknown."""
    by_rank = table["rank"].notna().all() and not table["rank"].duplicated().any()
    labels = []
    for rank, device in zip(table["rank"], table["device"], strict=True):
        parts = [] if pd.isna(rank) else [f"rank {rank}"]
        if not by_rank and not pd.isna(device):
            parts.append(f"device {device}")
        labels.append(", ".join(parts) or "device")
    return labels


def find_straggler(table: pd.DataFrame, facts: dict) -> Straggler:
    """The rank of a table of `ranks` for which the others wait. facts -- the attrs of
    `collectives`.

    It must have caused more than MAJORITY of all waiting, which must be more than NOTICEABLE of the
    time, with clocks that can be trusted. Only rows with compared collectives are judged.
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
        return Straggler(None, f"Ranks wait for each other in {share:.1f} % of their time only.")
    worst = judged.loc[judged["caused_wait_ns"].idxmax()]
    if worst["caused_wait_ns"] <= MAJORITY * waited:
        most = (
            f"{worst['label']} caused the most, {percent(worst['caused_wait_ns'], waited):.0f} % of"
            " it"
        )
        if not worst["caused_wait_ns"]:
            most = "none of them came last alone"
        return Straggler(
            None,
            f"Ranks wait for each other in {share:.1f} % of their time, and no single one is to"
            f" blame: {most}.",
        )
    return _judged(worst, judged.drop(worst.name), waited)


def _judged(worst: pd.Series, others: pd.DataFrame, waited: int) -> Straggler:
    """What speaks for this rank being the straggler, its clock considered."""
    name = worst["label"].capitalize()
    # Of one other rank in one collective: so late did this rank come.
    mean = worst["caused_wait_ns"] / len(others) / max(int(worst["arrived_last"]), 1)
    offset = worst["exit_offset_ns"] - others["exit_offset_ns"].median()
    if not pd.isna(offset) and 2 * offset > mean:
        return Straggler(
            None,
            f"{name} enters {mean / 1000:.1f} µs late on average, but also leaves"
            f" {offset / 1000:.1f} µs after the others: its clock may explain that.",
        )
    caused = float(percent(worst["caused_wait_ns"], waited))
    idle = float(percent(worst["idle_ns"], worst["total_ns"]))
    computed, median = worst["computation_ns"], others["computation_ns"].median()
    cause = "its device is not slower: it gets its work later"
    if computed > SLOWER * median:
        cause = "its device computes longer"
    evidence = (
        f"{name} came last in {worst['arrived_last']} of {worst['compared']} collectives and caused"
        f" {caused:.0f} % of all waiting: each time the others waited {mean / 1e6:.2f} ms for it on"
        f" average. It waited {worst['wait_ns'] / 1e6:.1f} ms itself, the others"
        f" {others['wait_ns'].median() / 1e6:.1f} ms (median). It computed for"
        f" {computed / 1e6:.1f} ms, the others for {median / 1e6:.1f} ms, so {cause}"
        f" (idle for {idle:.0f} % of the time)."
    )
    return Straggler(None if pd.isna(worst["rank"]) else int(worst["rank"]), evidence)
