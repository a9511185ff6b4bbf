"""Find the rank that the other ranks wait for by comparing the calls of all ranks up to the first
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pandas as pd

from tidyprof.analyses.dump_ages import NEXT_STEP, DumpAges
from tidyprof.analyses.messages import Message, pending_messages

SAME_SIZE = ("all_reduce", "allreduce", "broadcast", "reduce", "reduce_scatter", "_allgather_base")
"""Collectives whose input must have the same size on every rank, according to the torch.distributed
documentation.
"""

OTHER_CALL, OTHER_SIZE, SKIPPED, CIRCLE, BEHIND, MESSAGE, NO_DUMP, LATE, NOBODY, UNKNOWN = KINDS = (
    "other call",
    "other size",
    "left the path",
    "wait for each other",
    "behind",
    "message pending",
    "no dump",
    "late",
    "nobody is missing",
    "inconclusive",
)
"""The possible verdicts. If there are several groups, the first verdict in this order that applies
to one of the groups is used. A group is skipped if its missing ranks are waiting in another group.
"""


MOST_NAMED = 8
"""Maximum number of ranks that a sentence names."""

_SILENT = (SKIPPED, BEHIND, MESSAGE, NO_DUMP)
"""Verdicts for which the end of a rank's log is useful."""

_NO_CALL = "the dumps contain no calls of this group. Check that TORCH_FR_BUFFER_SIZE isn't 0."
_LARGER = "Increase TORCH_FR_BUFFER_SIZE and run again."
_BRANCH = "Look for a branch that skips a call there."
_LOOK = (
    "To see whether a rank is late, stuck or dead, check its log and exit code, or its Python stack"
    " (py-spy)"
)


@dataclass(frozen=True)
class Hang:
    """A verdict on a hanging job: one of `KINDS`, the ranks to blame if they are known, a sentence,
    and a table with one row per rank.
    """

    kind: str
    ranks: tuple[int, ...]
    sentence: str
    table: pd.DataFrame


class _Verdict(NamedTuple):
    """A verdict without its table: one of `KINDS`, the ranks to blame, and a sentence."""

    kind: str
    blamed: list[int]
    sentence: str


class _Wait(NamedTuple):
    """A rank that waits, the ranks that it seems to wait for, and the place where it waits.

    - group: the name of the process group, or None for a message.
    - call: a description of the waiting call.
    """

    rank: int
    others: set[int]
    group: str | None
    call: str


class _Late(NamedTuple):
    """A late call: its number, the ranks that made it, and a description of how late they were."""

    number: int
    ranks: list[int]
    how: str


def find_missing_ranks(calls: pd.DataFrame) -> Hang:
    """Return a verdict on a hanging job from the table of `read_flight_recorder`.

    A rank is behind only if its dump is recent enough to prove that. Otherwise, the verdict is
    inconclusive, except when the ranks made different calls earlier.

    If there are several groups, the verdict covers a group with a missing rank that isn't waiting
    anywhere. If all ranks are waiting for each other, the verdict covers the group of the rank that
    left the other ranks' path. Sends and receives count as groups of two ranks.

    The table describes each rank of the chosen group. `dump` is `<NA>` if the rank has no dump.
    `number`, `call`, `elements` and `line` describe the rank's last call. `after_ns` is the time
    from the first rank's call with the same number to this rank's call.
    """
    # The table contains whole paths, but sentences contain only file names.
    short = {"path": calls["line"], "line": _short(calls["line"])}
    calls = calls.assign(**short, stack=calls["stack"].fillna(""))
    names = sorted({*calls.attrs["groups"], *calls.loc[~calls["message"], "group"]})
    ages = DumpAges(calls)
    groups = [_group(calls, name, ages, several=len(names) > 1) for name in names]
    messages = pending_messages(calls, ages)
    waits = [wait for group in groups for wait in group.waits()]
    waits += [
        _Wait(one.rank, {one.peer}, None, one.call)
        for one in messages
        if one.peer is not None and one.answer is False
    ]
    missing = {rank for wait in waits for rank in wait.others}
    free = missing - {wait.rank for wait in waits}
    hangs = {}
    for group in groups:
        # Leave out a group in which no rank made a call, unless it is the only one.
        if any(group.last.values()) or not group.title:
            elsewhere = {wait.rank for wait in waits if wait.group != group.name}
            verdict = _verdict(group, elsewhere)
            hangs[group.name] = _hang(verdict, calls, group.rows, group.ranks)
    parted = [hang for hang in hangs.values() if hang.kind in (OTHER_CALL, OTHER_SIZE)]
    skipped = [hang for hang in hangs.values() if hang.kind == SKIPPED]
    # Check the most certain verdicts first. Calls that differ prove a fault if any rank waits. Next
    # comes a rank that waits for no other rank. Compare the ranks' paths only if all ranks wait for
    # each other.
    if parted:
        return min(parted, key=lambda one: (not one.ranks, KINDS.index(one.kind)))
    ends = {wait.group for wait in waits if wait.others & free}
    of_free = [hang for name, hang in hangs.items() if name in ends]
    if of_free:
        late = [hang for hang in of_free if hang.kind == LATE and free & {*hang.ranks}]
        return _first(late or of_free)
    if skipped and not free:
        return _first(skipped)
    if missing and not free:
        return _circle(calls, groups, waits, missing)
    if messages:
        return _pending(calls, messages, free)
    if hangs:
        return _first(hangs.values())
    return _hang(_inconclusive(_NO_CALL), calls, calls, calls.attrs["dumps"])


def _first(found: Iterable[Hang]) -> Hang:
    """Return the hang that comes first in the order of `KINDS`. On a tie, return the hang with the
    latest last call.
    """
    return min(found, key=lambda one: (KINDS.index(one.kind), -one.table.attrs["last_ns"]))


def _hang(verdict: _Verdict, calls: pd.DataFrame, rows: pd.DataFrame, ranks: Iterable[int]) -> Hang:
    """Return the verdict together with a table of the ranks' last calls among these rows."""
    ranks = sorted(ranks)
    last = rows.sort_values("record").drop_duplicates("rank", keep="last").set_index("rank")
    # Keep integers even if another rank has no number.
    last = last.drop(columns="line").rename(columns={"path": "line"}).astype({"number": "Int64"})
    table = last.reindex(ranks)[["number", "call", "elements", "line", "called_ns"]]
    first = rows.groupby("number")["called_ns"].min()
    table["after_ns"] = table["called_ns"] - table["number"].map(first).astype("Int64")
    table.insert(0, "dump", pd.array([calls.attrs["dumps"].get(rank) for rank in ranks], "string"))
    table = table.drop(columns="called_ns").rename_axis("rank").reset_index()
    table.attrs = {"last_ns": max(rows["called_ns"].dropna(), default=0)}
    logs = _logs(calls, verdict.blamed) if verdict.kind in _SILENT else ""
    return Hang(verdict.kind, tuple(verdict.blamed), f"{verdict.sentence}{logs}", table)


def _logs(calls: pd.DataFrame, ranks: Iterable[int]) -> str:
    """Return how the logs of these ranks end, or an empty string if there are no logs."""
    logs = calls.attrs["logs"]
    ends = "; ".join(logs[rank] for rank in [*ranks][:MOST_NAMED] if rank in logs)
    return f" {ends}." * bool(ends)


@dataclass(frozen=True)
class _Group:
    """The calls of one process group.

    - calls: a table of the calls of all groups.
    - title: the words ` of group 3`, or an empty string if there is only one group.
    - rows: the rows of `calls` that belong to the group.
    - of_rank: the calls of each rank that left a dump, by call number.
    - silent: the ranks that left no dump.
    """

    calls: pd.DataFrame
    ages: DumpAges
    name: str
    title: str
    rows: pd.DataFrame
    of_rank: dict[int, pd.DataFrame]
    silent: list[int]

    @property
    def ranks(self) -> list[int]:
        return [*self.of_rank, *self.silent]

    @cached_property
    def last(self) -> dict[int, int]:
        return {rank: int(of.index.max()) if len(of) else 0 for rank, of in self.of_rank.items()}

    @cached_property
    def doubts(self) -> dict[int, str]:
        """The reason for each rank whose dump can't prove that the rank is behind."""
        whys = ((rank, self.ages.doubt(rank, self.name, last)) for rank, last in self.last.items())
        return {rank: why for rank, why in whys if why}

    def first_open(self, rank: int) -> int | None:
        """Return the number of the first call that a rank is still inside, or None if the rank has
        left all calls.

        For example, a rank has left all calls after a timeout.
        """
        of = self.of_rank[rank]
        still = of.index[~of["retired"] & (of["state"] != "completed")]
        return int(still.min()) if len(still) else None

    def at(self, number: int) -> pd.DataFrame:
        """Return each rank's call with this number, for the ranks whose buffers contain the
        call.
        """
        made = {rank: of.loc[number] for rank, of in self.of_rank.items() if number in of.index}
        return pd.DataFrame(made).T

    def place(self, rank: int, number: int) -> str:
        """Describe a rank's call."""
        call = self.of_rank[rank].loc[number]
        return f"collective {number}{self.title}, {call['call']} at {call['line']}"

    def waits(self) -> Iterator[_Wait]:
        """Yield the ranks that may be waiting in their last call in this group, and the ranks that
        they wait for.
        """
        newest_record = self.calls.groupby("rank")["record"].max()
        for rank, number in self.last.items():
            if not number:
                continue
            call = self.of_rank[rank].loc[number]
            # A call that was retired, for example by a timeout, is still open if the rank has made
            # no later call in any group.
            is_over = call["retired"] and call["record"] != newest_record[rank]
            if call["state"] == "completed" or is_over:
                continue
            # A rank inside an earlier call isn't missing because it waits in that call.
            behind = [one for one, last in self.last.items() if last < number]
            others = {*self.silent, *(one for one in behind if self.first_open(one) is None)}
            if self.late and self.late.number == number and rank not in self.late.ranks:
                others |= {*self.late.ranks}
            if others:
                yield _Wait(rank, others, self.name, self.place(rank, number))

    @cached_property
    def late(self) -> _Late | None:
        """The first late call, which is a call that a rank made after the timeout of the first rank
        to make it.
        """
        times = pd.DataFrame({rank: of["called_ns"] for rank, of in self.of_rank.items()})
        for number, called in times.dropna().astype("int64").iterrows():
            first = called.idxmin()
            limit_s = self.of_rank[first].loc[number, "timeout_ms"] / 1e3
            after_s = (called - called[first]) / 1e9
            late = after_s[after_s > limit_s]
            if len(late):
                how = f"{late.max():.1f} s after rank {first}'s call"
                how += f", but the timeout is {limit_s:g} s"
                return _Late(int(number), [int(rank) for rank in late.index], how)
        return None


def _group(calls: pd.DataFrame, name: str, ages: DumpAges, several: bool) -> _Group:
    rows = calls[(calls["group"] == name) & ~calls["message"]]
    dumps, groups = calls.attrs["dumps"], calls.attrs["groups"]
    everybody = {*calls.attrs["unreadable"], *(rank for ranks in groups.values() for rank in ranks)}
    ranks = sorted({*groups.get(name, everybody - {*dumps}), *rows["rank"]})
    # The last record with a number is the end of a batch of collectives, which has the batch's
    # state.
    ends = rows.drop_duplicates(["rank", "number"], keep="last").set_index("number")
    of_rank = {rank: ends[ends["rank"] == rank] for rank in ranks if rank in dumps}
    silent = [rank for rank in ranks if rank not in dumps]
    return _Group(calls, ages, name, f" of group {name}" * several, rows, of_rank, silent)


def _short(lines: pd.Series) -> pd.Series:
    return lines.str.replace(r"^.*/", "", regex=True).replace("not recorded", "an unknown line")


def _verdict(group: _Group, elsewhere: set[int]) -> _Verdict:
    """Return the verdict on one group, based on its calls.

    - elsewhere: the ranks that are waiting in another group.
    """
    numbers = [of.index for of in group.of_rank.values() if len(of)]
    if not numbers:
        return _inconclusive(_NO_CALL)
    # The oldest call that every buffer may contain, and the last call that all ranks made.
    oldest, end = max(int(own.min()) for own in numbers), min(group.last.values())
    kept = group.calls.groupby("rank")["record"].min()
    overwritten = bool(kept.reindex([*group.of_rank]).fillna(0).any())
    if overwritten and end < oldest:
        return _inconclusive(f"no call is in the buffers of all ranks anymore. {_LARGER}")
    # Start with the oldest call because the first difference explains later ones.
    parted = None
    for number in sorted({int(one) for own in numbers for one in own if oldest <= one <= end}):
        at = group.at(number)
        lacking = [rank for rank in group.of_rank if rank not in at.index]
        if lacking:
            text = (
                f"{_ranks(lacking, 'has', 'have')} no record of collective"
                f" {number}{group.title}, although later collectives are recorded"
            )
            return _inconclusive(f"{text}. {_LARGER}")
        found = _mismatch(f"{number}{group.title}", at)
        differs = found or at["stack"].nunique() > 1
        if differs and overwritten and number == oldest:
            text = (
                f"the ranks differ at collective {number}. It is the oldest collective in all"
                " buffers. Earlier calls were"
            )
            return _inconclusive(f"{text} overwritten. {_LARGER}")
        if found:
            return found
        parted = number if differs and parted is None else parted
    return _at_the_end(group, parted, elsewhere)


def _inconclusive(why: str) -> _Verdict:
    return _Verdict(UNKNOWN, [], f"Inconclusive: {why}")


def _mismatch(number: str, at: pd.DataFrame) -> _Verdict | None:
    """Return a verdict if ranks make different calls or use different sizes. Otherwise, return
    None.

    If the two largest sets of ranks that agree have the same size, the verdict doesn't blame any
    rank.
    """
    sizes = at["call"] + " with " + at["elements"].astype(str) + " elements (" + at["types"] + ")"
    same_size = at["call"].str.rpartition(":")[2].isin(SAME_SIZE).all()
    kind, what = (OTHER_SIZE, sizes) if at["call"].nunique() == 1 else (OTHER_CALL, at["call"])
    counts = Counter(what).most_common()
    if len(counts) < 2 or (kind == OTHER_SIZE and not same_size):
        return None
    sides = [[*what.index[what == side]] for side, _ in counts]
    is_clear = counts[0][1] > counts[1][1]
    blamed = [rank for side in sides[1:] for rank in side] if is_clear else []
    shown = "; ".join(
        f"{_ranks(side, 'calls', 'call')} {what[side[0]]} at {at.loc[side[0], 'line']}"
        for side in sides
    )
    who = "The dumps don't show which ranks are wrong"
    if blamed:
        who = f"{_ranks(blamed, 'is', 'are')} different from the other ranks"
    return _Verdict(kind, blamed, f"Collective {number} differs between ranks: {shown}. {who}.")


def _at_the_end(group: _Group, parted: int | None, elsewhere: set[int]) -> _Verdict:
    """Return the verdict if all calls that the ranks have in common agree.

    The verdict names the ranks that left no dump, left the other ranks' path, are behind, or were
    late.

    - parted: the number of the first call that the ranks made from different places, or None if
      there is no such call.
    """
    newest = max(group.last.values())
    # A rank that waits in another group is behind for that reason, so prefer other ranks.
    behind = [rank for rank, last in group.last.items() if last < newest]
    behind = [rank for rank in behind if rank not in elsewhere] or behind
    waiting = [rank for rank, last in group.last.items() if last == newest]
    place = group.place(waiting[0], newest)
    called = f"The last call of {_named(waiting)} is {place}."
    if group.silent:
        return _without_dump(group, called)
    if not behind:
        return _nobody(group)
    if parted is not None:
        left = _left_the_path(group, parted, behind)
        if left:
            return left._replace(sentence=f"{left.sentence} {_BRANCH} {called}")
    sure = [rank for rank in behind if rank not in group.doubts]
    if not sure:
        lines = (
            f" The ranks have made calls from different lines since collective {parted}."
            if parted
            else ""
        )
        text = f"{group.doubts[behind[0]]}.{lines} {NEXT_STEP} {called}"
        return _inconclusive(f"{text}{_logs(group.calls, behind)}")
    # With RCCL, a host continues to make calls while an earlier call is open on its GPU. A rank
    # inside a call has therefore only made fewer calls ahead.
    inside = [number for rank in sure if (number := group.first_open(rank))]
    if len(inside) == len(sure):
        text = (
            f"No rank is missing. All ranks are inside collective {min(inside)}{group.title} or"
            " have made later calls. Look for the cause below PyTorch (network, driver, GPU)."
        )
        return _Verdict(NOBODY, [], text)
    sure = [rank for rank in sure if not group.first_open(rank)]
    number = group.last[sure[0]]
    own = "the dump contains no calls"
    if number:
        line = group.of_rank[sure[0]].loc[number, "line"]
        own = f"the last call is number {number} at {line}"
    waits = f"{_ranks(waiting, 'waits', 'wait')} in {place}."
    return _Verdict(BEHIND, sure, f"{_ranks(sure, 'is', 'are')} behind: {own}. {_LOOK}. {waits}")


def _left_the_path(group: _Group, parted: int, behind: list[int]) -> _Verdict | None:
    """Return a verdict on the ranks that took a different path at call `parted`, or None if these
    ranks are unclear.

    By default, the verdict blames the ranks that are behind. If a dump can't prove that its rank is
    behind, the ranks' steps are compared instead. A step leads from one call to the next. A rank
    left the path if it made a step that no other rank ever made. The rank must have made this step
    only once, and the step must lead to a call that other ranks also make. Lines that only rank 0
    runs, for example, don't count as a different path.
    """
    at = group.at(parted)
    suspects, doubtful = behind, not group.doubts.keys().isdisjoint(behind)
    if doubtful:
        odd = [rank for rank in at.index if rank in _deviations(group.calls)]
        suspects = odd if len(odd) < len(at) else behind
    others = [rank for rank in at.index if rank not in suspects]
    first = max(others, key=lambda rank: group.last[rank])
    usual, shared = at.loc[first], {*group.of_rank[first]["stack"]}
    stacks = at["stack"].reindex(suspects)
    left = [
        rank
        for rank, stack in stacks.items()
        if stack != usual["stack"] and (not doubtful or stack in shared)
    ]
    if not left:
        return None
    here, there = _apart(at.loc[left[0]], usual)
    text = (
        f"{_ranks(left, 'takes', 'take')} a different path at collective {parted}{group.title}: the"
        f" call is at {here}, but {_ranks(others, 'is', 'are').lower()} at {there}."
    )
    return _Verdict(SKIPPED, left, text)


def _apart(one: pd.Series, other: pd.Series) -> tuple[str, str]:
    """Return the source lines of two calls. If the lines are equal, return the first different
    lines in the calls' stacks.
    """
    stacks = (pd.Series(call["stack"].split(" < ")[::-1]) for call in (one, other))
    lines = one["line"], other["line"]
    pairs = [lines, *zip(*map(_short, stacks), strict=False)]
    return next((pair for pair in pairs if pair[0] != pair[1]), lines)


def _without_dump(group: _Group, called: str) -> _Verdict:
    """Return the verdict on ranks without a readable dump. A rank with an unreadable dump isn't
    blamed.
    """
    unreadable = group.calls.attrs["unreadable"]
    gone = [rank for rank in group.silent if rank not in unreadable]
    there = [rank for rank in group.silent if rank in unreadable]
    files = "; ".join(unreadable[rank] for rank in there[:MOST_NAMED])
    broken = f"a dump exists but can't be read: {files}."
    if not gone:
        return _inconclusive(f"{broken} {called}")
    also = f" For {_named(there)}, {broken}" if there else ""
    text = f"{_ranks(gone, 'left', 'left')} no dump. {_LOOK}.{also} {called}"
    return _Verdict(NO_DUMP, gone, text)


def _nobody(group: _Group) -> _Verdict:
    """Return the verdict if all ranks made the same calls. Either a rank is late or no rank is
    missing.
    """
    late = group.late
    if late:
        line = group.of_rank[late.ranks[0]].loc[late.number, "line"]
        at = f"collective {late.number}{group.title} at {line}"
        text = f"{_ranks(late.ranks, 'was', 'were')} late: {at} came {late.how}."
        return _Verdict(LATE, late.ranks, text)
    timed = ", all before the timeout" if group.calls["called_ns"].notna().all() else ""
    is_gloo = group.rows["call"].str.startswith("gloo").any()
    gloo = ". Note that gloo doesn't record sends and receives" if is_gloo else ""
    text = (
        f"No rank is missing. All ranks made the same calls{timed}. If the job hangs, look for the"
        f" cause in the layers below PyTorch (network, driver) or outside of collectives{gloo}."
    )
    return _Verdict(NOBODY, [], text)


def _pending(calls: pd.DataFrame, messages: list[Message], missing: set[int]) -> Hang:
    """Return the verdict on pending messages.

    The verdict covers the messages whose other end is missing and isn't waiting anywhere. If there
    are no such messages, the verdict covers all messages.
    """
    chosen = [one for one in messages if one.answer is False and one.peer in missing] or messages
    blamed = sorted({one.peer for one in chosen if one.peer in missing})
    texts = [f"Rank {one.rank}'s {one.call} is pending, {_told(calls, one)}" for one in chosen]
    look = "Look for the cause below PyTorch (network, driver, GPU), or in the code before it."
    if blamed:
        look = f"{_LOOK}."
    ends = {rank for one in chosen for rank in (one.rank, one.peer) if rank is not None}
    verdict = _Verdict(MESSAGE, blamed, f"{' '.join(texts[:MOST_NAMED])} {look}")
    if all(one.peer is not None and one.answer is None for one in chosen):
        verdict = _inconclusive(f"{texts[0]} {NEXT_STEP}")
    return _hang(verdict, calls, calls[calls["rank"].isin(ends)], ends)


def _told(calls: pd.DataFrame, one: Message) -> str:
    """Describe the state of a pending message's other end."""
    if one.peer is None:
        return "but the dump doesn't name its other end."
    if why := calls.attrs["unreadable"].get(one.peer):
        return f"and the dump of rank {one.peer} exists but can't be read: {why}."
    if one.peer not in calls.attrs["dumps"]:
        return f"and rank {one.peer} left no dump."
    if one.answer is None:
        return (
            f"and the dump of rank {one.peer} doesn't show whether the rank made the matching"
            " call. Either the dump is too old, or TORCH_FR_BUFFER_SIZE is too low."
        )
    if one.answer:
        return f"but rank {one.peer} made the matching call."
    of = calls[calls["rank"] == one.peer].sort_values("record")[["call", "line"]].to_numpy()
    last = f"its last call is {' at '.join(of[-1])}" if len(of) else "it made no call"
    return f"and rank {one.peer} hasn't made the matching call: {last}."


def _circle(
    calls: pd.DataFrame, groups: list[_Group], waits: list[_Wait], missing: set[int]
) -> Hang:
    """Return the verdict if every missing rank is also waiting.

    If only some of the ranks left the other ranks' path, the verdict blames these ranks. Otherwise,
    the verdict doesn't blame any of the ranks.
    """
    inside = [wait for wait in waits if wait.rank in missing]
    ranks = sorted({wait.rank for wait in inside})
    texts = [f"rank {one.rank} waits for {_named(one.others)} in {one.call}" for one in inside]
    # If each rank did something that no other rank did, no rank left a common path.
    has_messages = any(wait.group is None for wait in inside)
    odd = {} if has_messages else _deviations(calls)
    blamed = [rank for rank in ranks if rank in odd]
    if blamed and len(blamed) < len(ranks):
        first = blamed[0]
        wanted = next(wait for wait in inside if first in wait.others)
        text = (
            f"{_ranks(blamed, 'is', 'are')} missing from {wanted.call}, in which rank"
            f" {wanted.rank} waits, and took a different path: {odd[first]}."
        )
        of_first = zip(inside, texts, strict=True)
        own = [f"R{told[1:]}." for wait, told in of_first if wait.rank == first]
        group = next(group for group in groups if group.name == wanted.group)
        verdict = _Verdict(SKIPPED, blamed, " ".join([text, _BRANCH, *own]))
        return _hang(verdict, calls, group.rows, group.ranks)
    told = "; ".join(texts[:MOST_NAMED])
    text = (
        f"{_ranks(ranks, 'waits', 'wait')} for each other: {told}. Each rank would"
        " first have to make the call that another rank waits for."
    )
    doubts = [why for group in groups for rank, why in group.doubts.items() if rank in missing]
    verdict = _Verdict(CIRCLE, ranks, text)
    if doubts:
        verdict = _inconclusive(f"{doubts[0]}. {NEXT_STEP}")
    return _hang(verdict, calls, calls[calls["rank"].isin(ranks)], ranks)


def _deviations(calls: pd.DataFrame) -> dict[int, str]:
    """For each rank, describe the first step that the rank made only once and that no other rank
    made. Ranks without such a step are left out.

    A step leads from one call to the next.
    """
    made = calls.sort_values("record")
    # Identify a call by its stack and its name without sizes and ranks.
    made = made.assign(
        key=made["call"].str.partition(" ")[0] + "\n" + made["stack"],
        text=made["call"] + " of group " + made["group"] + " at " + made["line"],
    )
    before = made.groupby("rank")[["key", "text"]].shift()
    made["before"], made["from"] = before["key"].fillna(""), before["text"].fillna("the start")
    odd = made[~made.duplicated(["before", "key"], keep=False)].drop_duplicates("rank")
    return {
        row["rank"]: f"after {row['from']}, it calls {row['text']}, unlike any other rank"
        for row in odd.to_dict("records")
    }


def _named(ranks: Iterable[int]) -> str:
    """Return ranks in words: `rank 1`, `ranks 0, 2`."""
    return _ranks(sorted(ranks), "", "").strip().replace("R", "r", 1)


def _ranks(ranks: list[int], one: str, many: str) -> str:
    """Return ranks with a verb: `Rank 1 waits`, `Ranks 0, 2 wait`."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]} {one}"
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"Ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more} {many}"
