"""Who is missing: the calls of all ranks side by side, and the first place where they stop being the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pandas as pd

SAME_SIZE = ("all_reduce", "allreduce", "broadcast", "reduce", "reduce_scatter", "_allgather_base")
"""Collectives whose input has the same size on every rank (documentation of torch.distributed)."""

OTHER_CALL, OTHER_SIZE, SKIPPED, BEHIND, NO_DUMP, LATE, NOBODY, UNKNOWN = KINDS = (
    *("other call", "other size", "left the path", "behind", "no dump"),
    *("late", "nobody is missing", "can't tell"),
)
"""What can be found; the first that holds is the verdict of a group."""


@dataclass(frozen=True)
class Hang:
    """One of KINDS, the ranks that are to blame as far as that can be told, a sentence, and a row for each rank."""

    kind: str
    ranks: tuple[int, ...]
    sentence: str
    table: pd.DataFrame


def who_is_missing(calls: pd.DataFrame) -> Hang:
    """What the table of `read_flight_recorder` says about a job that hangs.

    Of several groups the one with a finding that comes first in KINDS, then the one that was called last. The table
    has, for each rank of that group, `rank`, `dump` (<NA> where there is none), the `number`, `call`, `elements` and
    `line` of its last call, and `after_ns`: how much later it came than the first rank's call of that number.
    """
    groups = calls.attrs["groups"]
    found = []
    for group in sorted({*groups, *calls["group"]}):
        rows = calls[calls["group"] == group]
        ranks = sorted({*groups.get(group, ()), *rows["rank"]})
        kind, blamed, sentence = _verdict(calls, rows, ranks)
        last = rows["called_ns"].max() if len(rows) else 0
        hang = Hang(kind, tuple(blamed), sentence, _table(calls, rows, ranks))
        found.append((KINDS.index(kind), -last, group, hang))
    if not found:
        kind, blamed, sentence = _verdict(calls, calls, [])
        return Hang(kind, tuple(blamed), sentence, _table(calls, calls, sorted(calls.attrs["dumps"])))
    return min(found, key=lambda one: one[:3])[3]


Verdict = tuple[str, list[int], str]


@dataclass(frozen=True)
class _Group:
    """The calls of one process group: of each rank with a dump, by number; the ranks without one; what was lost."""

    of_rank: dict[int, pd.DataFrame]
    silent: list[int]
    overwritten: bool

    @property
    def last(self) -> dict[int, int]:
        return {rank: int(of.index.max()) if len(of) else 0 for rank, of in self.of_rank.items()}

    @property
    def oldest(self) -> int:
        """The first call that all buffers still hold."""
        return max((int(of.index.min()) for of in self.of_rank.values() if len(of)), default=1)

    def first_open(self, rank: int) -> int | None:
        """The number of the first call that a rank has not left; None where it has left all, as after a time-out."""
        of = self.of_rank[rank]
        still = of.index[~of["retired"] & (of["state"] != "completed")]
        return int(still.min()) if len(still) else None

    def at(self, number: int) -> dict[int, pd.Series]:
        return {rank: of.loc[number] for rank, of in self.of_rank.items()}


def _verdict(calls: pd.DataFrame, rows: pd.DataFrame, ranks: list[int]) -> Verdict:
    """Kind, ranks to blame and sentence for one group."""
    if not len(rows):
        return _cannot_tell("no dump holds a call of this group: was TORCH_FR_BUFFER_SIZE 0?")
    present = [rank for rank in ranks if rank in calls.attrs["dumps"]]
    rows = rows.assign(line=rows["line"].str.replace(r"^.*/", "", regex=True))  # the table has the whole path
    of_rank = {rank: rows[rows["rank"] == rank].drop_duplicates("number").set_index("number") for rank in present}
    lost = bool(calls.groupby("rank")["record"].min().reindex(present).fillna(0).any())
    group = _Group(of_rank, [rank for rank in ranks if rank not in present], lost)
    end = min(group.last.values())
    if lost and end < group.oldest:
        return _cannot_tell(f"the buffers hold no call that all ranks still have. {_LARGER}")
    parted = None
    for number in range(group.oldest, end + 1):
        found = _mismatch(number, group.at(number))
        differs = found or len({one["stack"] for one in group.at(number).values()}) > 1
        if differs and lost and number == group.oldest:
            text = f"the ranks differ at collective {number}, the oldest that all buffers hold; what came before is"
            return _cannot_tell(f"{text} overwritten. {_LARGER}")
        if found:
            return found
        parted = number if differs and parted is None else parted
    return _at_the_end(group, parted)


_LARGER = "Set TORCH_FR_BUFFER_SIZE higher and run again."


def _cannot_tell(why: str) -> Verdict:
    return UNKNOWN, [], f"Can't tell: {why}"


def _mismatch(number: int, at: dict[int, pd.Series]) -> Verdict | None:
    """Ranks that call something else, or with another size; of two sides of the same number none is to blame."""
    calls = {rank: one["call"] for rank, one in at.items()}
    sizes = {rank: f"{one['call']} of {one['elements']} elements ({one['types']})" for rank, one in at.items()}
    same_size = all(call.rpartition(":")[2] in SAME_SIZE for call in calls.values())
    for kind, what in ((OTHER_CALL, calls), (OTHER_SIZE, sizes if same_size else {})):
        counts = Counter(what.values()).most_common()
        if len(counts) < 2:
            continue
        sides = [[rank for rank in what if what[rank] == side] for side, _ in counts]
        blamed = [rank for side in sides[1:] for rank in side] if counts[0][1] > counts[1][1] else []
        shown = "; ".join(f"{_ranks(side, 'calls', 'call')} {what[side[0]]} at {at[side[0]]['line']}" for side in sides)
        who = f"{_ranks(blamed, 'is', 'are')} the odd one out" if blamed else "The dumps can't say who is wrong"
        return kind, blamed, f"Collective {number} is not the same on all ranks: {shown}. {who}."
    return None


def _at_the_end(group: _Group, parted: int | None) -> Verdict:
    """Where all that the ranks have in common agrees: who has no dump, left the path, is behind, or came late."""
    last = group.last
    newest = max(last.values())
    behind = [rank for rank in last if last[rank] < newest]
    waiting = [rank for rank in last if last[rank] == newest]
    call = group.of_rank[waiting[0]].loc[newest]
    waits = f"{_ranks(waiting, 'waits', 'wait')} in collective {newest}, {call['call']} at {call['line']}."
    if group.silent:
        also = f" {_ranks(behind, 'is', 'are')} behind, too." if behind else ""
        return NO_DUMP, group.silent, f"{_ranks(group.silent, 'left', 'left')} no dump: {_LOOK}. {waits}{also}"
    if not behind:
        return _late(group)
    if parted is not None:
        at = group.at(parted)
        left = [rank for rank in behind if at[rank]["stack"] != at[waiting[0]]["stack"]]
        if left:
            lines = f"at {at[left[0]]['line']}, while {_ranks(waiting, 'is', 'are')} at {at[waiting[0]]['line']}"
            text = f"{_ranks(left, 'leaves', 'leave')} the others' path at collective {parted}: {lines}."
            return SKIPPED, left, f"{text} Look for a branch there that leaves a call out. {waits}"
    # With RCCL a host calls ahead while a call is open on its GPU: who is inside one has only called less ahead.
    inside = {rank: group.first_open(rank) for rank in behind}
    if all(inside.values()):
        number = min(inside.values())
        text = f"Nobody is missing: all ranks are inside collective {number}, or have called ahead of it."
        return NOBODY, [], f"{text} Look below PyTorch (network, driver, GPU)."
    behind = [rank for rank in behind if not inside[rank]]
    number = last[behind[0]]
    place = (
        f"last call number {number} at {group.of_rank[behind[0]].loc[number, 'line']}" if number else "no call at all"
    )
    return BEHIND, behind, f"{_ranks(behind, 'is', 'are')} behind, with {place}: {_LOOK}. {waits}"


_LOOK = "late, stuck or dead? A log and exit code, or the Python stack (py-spy), can say which"


def _late(group: _Group) -> Verdict:
    """Where all ranks made the same calls: whether one came after the others' time-out."""
    times = pd.DataFrame({rank: of["called_ns"] for rank, of in group.of_rank.items()}).dropna()
    for number, called in times.iterrows():
        first = called.idxmin()
        limit_s = group.of_rank[first].loc[number, "timeout_ms"] / 1e3
        after_s = (called - called[first]) / 1e9
        late = [int(rank) for rank in called.index if after_s[rank] > limit_s]
        if late:
            line = group.of_rank[late[0]].loc[number, "line"]
            text = f"{_ranks(late, 'was', 'were')} late: collective {number} at {line} came {after_s[late].max():.1f} s"
            return LATE, late, f"{text} after rank {first}'s, and the time-out is {limit_s:g} s."
    text = "Nobody is missing: all ranks made the same calls, none later than the time-out."
    return NOBODY, [], f"{text} If the job hangs, look below PyTorch (network, driver) or outside of collectives."


def _ranks(ranks: list[int], one: str, many: str) -> str:
    """`Rank 1 waits`, `Ranks 0, 2 wait`."""
    return f"Rank {ranks[0]} {one}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))} {many}"


def _table(calls: pd.DataFrame, rows: pd.DataFrame, ranks: list[int]) -> pd.DataFrame:
    """The last call of each rank."""
    last = rows.sort_values("number").drop_duplicates("rank", keep="last").set_index("rank")
    table = last.reindex(ranks)[["number", "call", "elements", "line", "called_ns"]]
    first = rows.groupby("number")["called_ns"].min()
    table["after_ns"] = table["called_ns"].astype("Int64") - table["number"].map(first).astype("Int64")
    table["number"] = table["number"].astype("Int64")
    table.insert(0, "dump", pd.array([calls.attrs["dumps"].get(rank) for rank in ranks], "string"))
    return table.drop(columns="called_ns").rename_axis("rank").reset_index()
