"""Find the rank that the other ranks wait for by comparing the calls of all ranks up to the first
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
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


@dataclass(frozen=True)
class Hang:
    """A verdict on a hanging job: one of `KINDS`, the ranks to blame if they are known, a sentence,
    and a table with one row per rank.
    """

    kind: str
    ranks: tuple[int, ...]
    sentence: str
    table: pd.DataFrame


@dataclass(frozen=True)
class _Wait:
    """A rank that waits, the ranks that it seems to wait for, and the place where it waits.

    - group: the name of the process group, or None for a message.
    - call: a description of the waiting call.
    """

    rank: int
    others: frozenset[int]
    group: str | None
    call: str


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
    waits = [wait for group in groups for wait in group.waits()] + _in_messages(messages)
    missing = {rank for wait in waits for rank in wait.others}
    free = missing - {wait.rank for wait in waits}
    hangs = {group.name: _hang(calls, group, waits) for group in groups if not _mute(group)}
    parted = [hang for hang in hangs.values() if hang.kind in (OTHER_CALL, OTHER_SIZE)]
    skipped = [hang for hang in hangs.values() if hang.kind == SKIPPED]
    # Check the most certain verdicts first. Calls that differ prove a fault if any rank waits. Next
    # comes a rank that waits for no other rank. Compare the ranks' paths only if all ranks wait for
    # each other.
    if parted:
        hang = min(parted, key=lambda one: (not one.ranks, KINDS.index(one.kind)))
    elif free:
        ends = {wait.group for wait in waits if wait.others & free}
        of_free = [hang for name, hang in hangs.items() if name in ends]
        late = [hang for hang in of_free if hang.kind == LATE and free & {*hang.ranks}]
        hang = _first(late or of_free) if of_free else _pending(calls, messages, free)
    elif skipped or missing:
        hang = _first(skipped) if skipped else _circle(calls, groups, waits, missing)
    elif messages:
        hang = _pending(calls, messages, free)
    elif hangs:
        hang = _first(list(hangs.values()))
    else:
        hang = _whole(_inconclusive(_NO_CALL), calls, calls, sorted(calls.attrs["dumps"]))
    logs = _logs(calls, hang.ranks) if hang.kind in _SILENT else ""
    return replace(hang, sentence=f"{hang.sentence}{logs}")


def _logs(calls: pd.DataFrame, ranks: Iterable[int]) -> str:
    """Return how the logs of these ranks end, or an empty string if there are no logs."""
    logs = calls.attrs["logs"]
    ends = "; ".join(logs[rank] for rank in [*ranks][:MOST_NAMED] if rank in logs)
    return f" {ends}." * bool(ends)


def _mute(group: _Group) -> bool:
    """Return True if the group is one of several groups and no rank made a call in it."""
    return bool(group.title) and not any(group.last.values())


def _first(found: list[Hang]) -> Hang:
    """Return the hang that comes first in the order of `KINDS`. On a tie, return the hang with the
    latest last call.
    """

    def order(hang: Hang) -> tuple[int, float]:
        newest = hang.table.attrs["last_ns"]
        return KINDS.index(hang.kind), -newest

    return min(found, key=order)


def _hang(calls: pd.DataFrame, group: _Group, waits: list[_Wait]) -> Hang:
    elsewhere = {wait.rank for wait in waits if wait.group != group.name}
    rows = calls[(calls["group"] == group.name) & ~calls["message"]]
    return _whole(_verdict(group, elsewhere), calls, rows, sorted({*group.last, *group.silent}))


def _whole(verdict: Verdict, calls: pd.DataFrame, rows: pd.DataFrame, ranks: list[int]) -> Hang:
    """Return the verdict together with a table of the ranks' last calls among these rows."""
    return Hang(verdict.kind, tuple(verdict.blamed), verdict.sentence, _table(calls, rows, ranks))


class Verdict(NamedTuple):
    """A verdict without its table: one of `KINDS`, the ranks to blame, and a sentence."""

    kind: str
    blamed: list[int]
    sentence: str


class _Late(NamedTuple):
    """A late call: its number, the ranks that made it, and a description of how late they were."""

    number: int
    ranks: list[int]
    how: str


@dataclass(frozen=True)
class _Group:
    """The calls of one process group.

    - calls: a table of the calls of all groups.
    - title: the words ` of group 3`, or an empty string if there is only one group.
    - of_rank: the calls of each rank that left a dump, by call number.
    - silent: the ranks that left no dump.
    - overwritten: True if at least one buffer has lost calls.
    """

    calls: pd.DataFrame
    ages: DumpAges
    name: str
    title: str
    of_rank: dict[int, pd.DataFrame]
    silent: list[int]
    overwritten: bool

    @property
    def last(self) -> dict[int, int]:
        return {rank: int(of.index.max()) if len(of) else 0 for rank, of in self.of_rank.items()}

    @property
    def oldest(self) -> int:
        """Number of the oldest call that is still in every buffer."""
        return max((int(of.index.min()) for of in self.of_rank.values() if len(of)), default=1)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the calls in at least one buffer. They range from the oldest call that every
        buffer may contain to the last call that all ranks made.
        """
        end = min(self.last.values())
        held = {int(number) for of in self.of_rank.values() for number in of.index}
        return sorted(number for number in held if self.oldest <= number <= end)

    def first_open(self, rank: int) -> int | None:
        """Return the number of the first call that a rank is still inside, or None if the rank has
        left all calls.

        For example, a rank has left all calls after a timeout.
        """
        of = self.of_rank[rank]
        still = of.index[~of["retired"] & (of["state"] != "completed")]
        return int(still.min()) if len(still) else None

    def at(self, number: int) -> dict[int, pd.Series]:
        """Return each rank's call with this number, for the ranks whose buffers contain the
        call.
        """
        return {rank: of.loc[number] for rank, of in self.of_rank.items() if number in of.index}

    @cached_property
    def doubts(self) -> dict[int, str]:
        """The reason for each rank whose dump can't prove that the rank is behind."""
        last = self.last
        whys = {rank: self.ages.doubt(rank, self.name, number) for rank, number in last.items()}
        return {rank: why for rank, why in whys.items() if why}

    def waits(self) -> list[_Wait]:
        """Return the ranks that may be waiting in their last call in this group, and the ranks that
        they wait for.
        """
        last = self.last
        late = self.late()
        newest_record = self.calls.groupby("rank")["record"].max()
        waits = []
        for rank, number in last.items():
            if not number:
                continue
            call = self.of_rank[rank].loc[number]
            # A call that was retired, for example by a timeout, is still open if the rank has made
            # no later call in any group.
            open_still = not call["retired"] or call["record"] == newest_record[rank]
            if call["state"] == "completed" or not open_still:
                continue
            # A rank inside an earlier call isn't missing because it waits in that call.
            behind = {one for one in last if last[one] < number and self.first_open(one) is None}
            others = behind | {*self.silent}
            if late and late.number == number and rank not in late.ranks:
                others |= {*late.ranks}
            if others:
                text = f"collective {number}{self.title}, {call['call']} at {call['line']}"
                waits.append(_Wait(rank, frozenset(others), self.name, text))
        return waits

    def late(self) -> _Late | None:
        """Return the first late call, which is a call that a rank made after the timeout of the
        first rank to make it.
        """
        times = pd.DataFrame({rank: of["called_ns"] for rank, of in self.of_rank.items()})
        times = times.dropna().astype("int64")
        for number, called in times.iterrows():
            first = called.idxmin()
            limit_s = self.of_rank[first].loc[number, "timeout_ms"] / 1e3
            after_s = (called - called[first]) / 1e9
            late = [int(rank) for rank in called.index if after_s[rank] > limit_s]
            if late:
                how = (
                    f"{after_s[late].max():.1f} s after rank {first}'s call, but the timeout is"
                    f" {limit_s:g} s"
                )
                return _Late(int(number), late, how)
        return None


def _group(calls: pd.DataFrame, name: str, ages: DumpAges, several: bool) -> _Group:
    rows = calls[(calls["group"] == name) & ~calls["message"]]
    dumps, groups = calls.attrs["dumps"], calls.attrs["groups"]
    everybody = {*calls.attrs["unreadable"], *(rank for ranks in groups.values() for rank in ranks)}
    ranks = {*groups.get(name, everybody - {*dumps}), *rows["rank"]}
    # The last record with a number is the end of a batch of collectives, which has the batch's
    # state.
    of_rank = {
        rank: rows[rows["rank"] == rank].drop_duplicates("number", keep="last").set_index("number")
        for rank in sorted(ranks & {*dumps})
    }
    lost = bool(calls.groupby("rank")["record"].min().reindex(list(of_rank)).fillna(0).any())
    silent = sorted(ranks - {*of_rank})
    return _Group(calls, ages, name, f" of group {name}" * several, of_rank, silent, lost)


def _short(lines: pd.Series) -> pd.Series:
    return lines.str.replace(r"^.*/", "", regex=True).replace("not recorded", "an unknown line")


def _verdict(group: _Group, elsewhere: set[int]) -> Verdict:
    """Return the verdict on one group, based on its calls.

    - elsewhere: the ranks that are waiting in another group.
    """
    if not any(group.last.values()):
        return _inconclusive(_NO_CALL)
    if group.overwritten and min(group.last.values()) < group.oldest:
        return _inconclusive(f"no call is in the buffers of all ranks anymore. {_LARGER}")
    # Start with the oldest call because the first difference explains later ones.
    parted = None
    for number in group.numbers:
        at = group.at(number)
        lacking = [rank for rank in group.of_rank if rank not in at]
        if lacking:
            text = (
                f"{_ranks(lacking, 'has', 'have')} no record of collective"
                f" {number}{group.title}, although later collectives are recorded"
            )
            return _inconclusive(f"{text}. {_LARGER}")
        found = _mismatch(f"{number}{group.title}", at)
        differs = found or len({one["stack"] for one in at.values()}) > 1
        if differs and group.overwritten and number == group.oldest:
            text = (
                f"the ranks differ at collective {number}. It is the oldest collective in all"
                " buffers. Earlier calls were"
            )
            return _inconclusive(f"{text} overwritten. {_LARGER}")
        if found:
            return found
        parted = number if differs and parted is None else parted
    return _at_the_end(group, parted, elsewhere)


_NO_CALL = "the dumps contain no calls of this group. Check that TORCH_FR_BUFFER_SIZE isn't 0."
_LARGER = "Increase TORCH_FR_BUFFER_SIZE and run again."


def _inconclusive(why: str) -> Verdict:
    return Verdict(UNKNOWN, [], f"Inconclusive: {why}")


def _mismatch(number: str, at: dict[int, pd.Series]) -> Verdict | None:
    """Return a verdict if ranks make different calls or use different sizes. Otherwise, return
    None.

    If the two largest sets of ranks that agree have the same size, the verdict doesn't blame any
    rank.
    """
    calls = {rank: one["call"] for rank, one in at.items()}
    sizes = {
        rank: f"{one['call']} with {one['elements']} elements ({one['types']})"
        for rank, one in at.items()
    }
    same_size = all(call.rpartition(":")[2] in SAME_SIZE for call in calls.values())
    for kind, what in ((OTHER_CALL, calls), (OTHER_SIZE, sizes if same_size else {})):
        counts = Counter(what.values()).most_common()
        if len(counts) < 2:
            continue
        sides = [[rank for rank in what if what[rank] == side] for side, _ in counts]
        blamed = (
            [rank for side in sides[1:] for rank in side] if counts[0][1] > counts[1][1] else []
        )
        shown = "; ".join(
            f"{_ranks(side, 'calls', 'call')} {what[side[0]]} at {at[side[0]]['line']}"
            for side in sides
        )
        who = (
            f"{_ranks(blamed, 'is', 'are')} different from the other ranks"
            if blamed
            else "The dumps don't show which ranks are wrong"
        )
        text = f"Collective {number} differs between ranks: {shown}. {who}."
        return Verdict(kind, blamed, text)
    return None


def _at_the_end(group: _Group, parted: int | None, elsewhere: set[int]) -> Verdict:
    """Return the verdict if all calls that the ranks have in common agree.

    The verdict names the ranks that left no dump, left the other ranks' path, are behind, or were
    late.

    - parted: the number of the first call that the ranks made from different places, or None if
      there is no such call.
    """
    last = group.last
    newest = max(last.values())
    # A rank that waits in another group is behind for that reason, so prefer other ranks.
    behind = [rank for rank in last if last[rank] < newest]
    behind = [rank for rank in behind if rank not in elsewhere] or behind
    doubts = {rank: group.doubts[rank] for rank in behind if rank in group.doubts}
    waiting = [rank for rank in last if last[rank] == newest]
    call = group.of_rank[waiting[0]].loc[newest]
    place = f"collective {newest}{group.title}, {call['call']} at {call['line']}"
    called = f"The last call of {_named(waiting)} is {place}."
    if group.silent:
        return _without_dump(group, called)
    if not behind:
        return _nobody(group)
    if parted is not None:
        left = _left_the_path(group, parted, behind)
        if left:
            return left._replace(sentence=f"{left.sentence} {_BRANCH} {called}")
    if len(doubts) == len(behind):
        lines = (
            f" The ranks have made calls from different lines since collective {parted}."
            if parted
            else ""
        )
        text = f"{doubts[behind[0]]}.{lines} {NEXT_STEP} {called}"
        return _inconclusive(f"{text}{_logs(group.calls, doubts)}")
    waits = f"{_ranks(waiting, 'waits', 'wait')} in {place}."
    return _behind(group, [rank for rank in behind if rank not in doubts], waits)


def _behind(group: _Group, behind: list[int], waits: str) -> Verdict:
    """Return the verdict on the ranks that are behind according to the dumps."""
    # With RCCL, a host continues to make calls while an earlier call is open on its GPU. A rank
    # inside a call has therefore only made fewer calls ahead.
    inside = {rank: group.first_open(rank) for rank in behind}
    numbers = [number for number in inside.values() if number]
    if len(numbers) == len(inside):
        text = (
            f"No rank is missing. All ranks are inside collective {min(numbers)}{group.title} or"
            " have made later calls."
        )
        return Verdict(
            NOBODY, [], f"{text} Look for the cause below PyTorch (network, driver, GPU)."
        )
    behind = [rank for rank in behind if not inside[rank]]
    number = group.last[behind[0]]
    own = (
        f"the last call is number {number} at {group.of_rank[behind[0]].loc[number, 'line']}"
        if number
        else "the dump contains no calls"
    )
    text = f"{_ranks(behind, 'is', 'are')} behind: {own}. {_LOOK}. {waits}"
    return Verdict(BEHIND, behind, text)


def _left_the_path(group: _Group, parted: int, behind: list[int]) -> Verdict | None:
    """Return a verdict on the ranks that took a different path at call `parted`, or None if these
    ranks are unclear.

    By default, the verdict blames the ranks that are behind. If a dump can't prove that its rank is
    behind, the ranks' steps are compared instead. A step leads from one call to the next. A rank
    left the path if it made a step that no other rank ever made. The rank must have made this step
    only once, and the step must lead to a call that other ranks also make. Lines that only rank 0
    runs, for example, don't count as a different path.
    """
    at = group.at(parted)
    suspects, doubtful = behind, any(rank in group.doubts for rank in behind)
    if doubtful:
        odd = [rank for rank in at if rank in _deviations(group.calls, list(at))]
        suspects = odd if len(odd) < len(at) else behind
    others = [rank for rank in at if rank not in suspects]
    first = max(others, key=lambda rank: group.last[rank])
    usual, shared = at[first], {*group.of_rank[first]["stack"]}
    stacks = {rank: at[rank]["stack"] for rank in suspects if at[rank]["stack"] != usual["stack"]}
    left = [rank for rank, stack in stacks.items() if not doubtful or stack in shared]
    if not left:
        return None
    here, there = _apart(at[left[0]], usual)
    lines = f"the call is at {here}, but {_ranks(others, 'is', 'are').lower()} at {there}"
    text = (
        f"{_ranks(left, 'takes', 'take')} a different path at collective"
        f" {parted}{group.title}: {lines}."
    )
    return Verdict(SKIPPED, left, text)


def _apart(one: pd.Series, other: pd.Series) -> tuple[str, str]:
    """Return the source lines of two calls. If the lines are equal, return the first different
    lines in the calls' stacks.
    """
    if one["line"] != other["line"]:
        return one["line"], other["line"]
    stacks = (pd.Series(call["stack"].split(" < ")[::-1]) for call in (one, other))
    pairs = zip(*map(_short, stacks), strict=False)
    return next((pair for pair in pairs if pair[0] != pair[1]), (one["line"], other["line"]))


def _without_dump(group: _Group, called: str) -> Verdict:
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
    return Verdict(NO_DUMP, gone, text)


_LOOK = (
    "To see whether a rank is late, stuck or dead, check its log and exit code, or its Python stack"
    " (py-spy)"
)
_BRANCH = "Look for a branch that skips a call there."
_SILENT = (SKIPPED, BEHIND, MESSAGE, NO_DUMP)
"""Verdicts for which the end of a rank's log is useful."""

MOST_NAMED = 8
"""Maximum number of ranks that a sentence names."""


def _nobody(group: _Group) -> Verdict:
    """Return the verdict if all ranks made the same calls. Either a rank is late or no rank is
    missing.
    """
    late = group.late()
    if late:
        line = group.of_rank[late.ranks[0]].loc[late.number, "line"]
        at = f"collective {late.number}{group.title} at {line}"
        text = f"{_ranks(late.ranks, 'was', 'were')} late: {at} came {late.how}."
        return Verdict(LATE, late.ranks, text)
    timed = ", all before the timeout" if group.calls["called_ns"].notna().all() else ""
    text = f"No rank is missing. All ranks made the same calls{timed}."
    silent = any(of["call"].str.startswith("gloo").any() for of in group.of_rank.values())
    gloo = ". Note that gloo doesn't record sends and receives" if silent else ""
    look = (
        "If the job hangs, look for the cause in the layers below PyTorch (network, driver) or"
        f" outside of collectives{gloo}."
    )
    return Verdict(NOBODY, [], f"{text} {look}")


def _in_messages(messages: list[Message]) -> list[_Wait]:
    """Return the ranks that wait for the other end of a message."""
    return [
        _Wait(one.rank, frozenset([one.peer]), None, str(one))
        for one in messages
        if one.peer is not None and one.answer is False
    ]


def _pending(calls: pd.DataFrame, messages: list[Message], missing: set[int]) -> Hang:
    """Return the verdict on pending messages.

    The verdict covers the messages whose other end is missing and isn't waiting anywhere. If there
    are no such messages, the verdict covers all messages.
    """
    chosen = [one for one in messages if one.answer is False and one.peer in missing] or messages
    blamed = sorted({one.peer for one in chosen if one.peer in missing})
    texts = [_told(calls, one) for one in chosen[:MOST_NAMED]]
    look = (
        f"{_LOOK}."
        if blamed
        else "Look for the cause below PyTorch (network, driver, GPU), or in the code before it."
    )
    ends = sorted({rank for one in chosen for rank in (one.rank, one.peer) if rank is not None})
    rows = calls[calls["rank"].isin(ends)]
    verdict = Verdict(MESSAGE, blamed, f"{' '.join(texts)} {look}")
    if all(one.peer is not None and one.answer is None for one in chosen):
        verdict = _inconclusive(f"{texts[0]} {NEXT_STEP}")
    return _whole(verdict, calls, rows, ends)


def _told(calls: pd.DataFrame, one: Message) -> str:
    """Describe a pending message and the state of its other end."""
    text = f"Rank {one.rank}'s {one} is pending, "
    if one.peer is None:
        return f"{text}but the dump doesn't name its other end."
    if one.peer in calls.attrs["unreadable"]:
        return (
            f"{text}and the dump of rank {one.peer} exists but can't be read:"
            f" {calls.attrs['unreadable'][one.peer]}."
        )
    if one.peer not in calls.attrs["dumps"]:
        return f"{text}and rank {one.peer} left no dump."
    if one.answer is None:
        return (
            f"{text}and the dump of rank {one.peer} doesn't show whether the rank made the matching"
            " call. Either the dump is too old, or TORCH_FR_BUFFER_SIZE is too low."
        )
    if one.answer:
        return f"{text}but rank {one.peer} made the matching call."
    of = calls[calls["rank"] == one.peer].sort_values("record")
    last = (
        f"its last call is {of['call'].iloc[-1]} at {of['line'].iloc[-1]}"
        if len(of)
        else "it made no call"
    )
    return f"{text}and rank {one.peer} hasn't made the matching call: {last}."


def _circle(
    calls: pd.DataFrame, groups: list[_Group], waits: list[_Wait], missing: set[int]
) -> Hang:
    """Return the verdict if every missing rank is also waiting.

    If only some of the ranks left the other ranks' path, the verdict blames these ranks. Otherwise,
    the verdict doesn't blame any of the ranks.
    """
    doubts = [why for group in groups for rank, why in group.doubts.items() if rank in missing]
    inside = [wait for wait in waits if wait.rank in missing]
    ranks = sorted({wait.rank for wait in inside})
    texts = [
        f"{_ranks([wait.rank], 'waits', '')} for {_named(wait.others)} in {wait.call}"
        for wait in inside
    ]
    odd = {} if any(wait.group is None for wait in inside) else _deviations(calls, ranks)
    # If each rank did something that no other rank did, no rank left a common path.
    if odd and len(odd) < len(ranks):
        blamed = sorted(odd)
        first = blamed[0]
        group = next(wait.group for wait in waits if first in wait.others)
        rows = calls[(calls["group"] == group) & ~calls["message"]]
        of_group = sorted({*calls.attrs["groups"].get(group, ()), *rows["rank"]})
        wanted = next(wait for wait in inside if first in wait.others)
        of_first = [
            f" {text}." for text, wait in zip(texts, inside, strict=True) if wait.rank == first
        ]
        text = (
            f"{_ranks(blamed, 'is', 'are')} missing from {wanted.call}, in which rank"
            f" {wanted.rank} waits"
        )
        text = f"{text}, and took a different path: {odd[first]}. {_BRANCH}{''.join(of_first)}"
        return _whole(Verdict(SKIPPED, blamed, text), calls, rows, of_group)
    told = "; ".join(text[0].lower() + text[1:] for text in texts[:MOST_NAMED])
    text = (
        f"{_ranks(ranks, 'waits', 'wait')} for each other: {told}. Each rank would"
        " first have to make the call that another rank waits for."
    )
    circle = Verdict(CIRCLE, ranks, text)
    verdict = _inconclusive(f"{doubts[0]}. {NEXT_STEP}") if doubts else circle
    return _whole(verdict, calls, calls[calls["rank"].isin(ranks)], ranks)


class _Step(NamedTuple):
    """Two consecutive calls of a rank. Each call consists of a name and a stack. `text` describes
    the step between them.
    """

    both: tuple[tuple[str, str], tuple[str, str]]
    text: str


def _deviations(calls: pd.DataFrame, ranks: list[int]) -> dict[int, str]:
    """For each rank, describe the first step that the rank made only once and that no other rank
    made.

    A step leads from one call to the next.
    """
    steps: dict[int, list[_Step]] = {}
    for rank, of in calls.sort_values("record").groupby("rank"):
        # Identify a call by its stack and its name without sizes and ranks.
        keys, texts = [("", "")], ["the start"]
        rows = zip(of["call"], of["stack"], of["group"], of["line"], strict=True)
        for call, stack, group, line in rows:
            keys.append((call.split(" ")[0], stack))
            texts.append(f"{call} of group {group} at {line}")
        pairs = zip(pairwise(keys), pairwise(texts), strict=True)
        steps[int(rank)] = [
            _Step(both, f"after {before}, it calls {after}, unlike any other rank")
            for both, (before, after) in pairs
        ]
    counts = {rank: Counter(step.both for step in made) for rank, made in steps.items()}
    odd: dict[int, str] = {}
    for rank in ranks:
        others = {both for other, of in counts.items() if other != rank for both in of}
        for step in steps.get(rank, []):
            if step.both not in others and counts[rank][step.both] == 1:
                odd.setdefault(rank, step.text)
    return odd


def _named(ranks: Iterable[int]) -> str:
    """Return ranks in words: `rank 1`, `ranks 0, 2`."""
    found = _ranks(sorted(ranks), "", "").strip()
    return found[0].lower() + found[1:]


def _ranks(ranks: list[int], one: str, many: str) -> str:
    """Return ranks with a verb: `Rank 1 waits`, `Ranks 0, 2 wait`."""
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    several = f"Ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more} {many}"
    return f"Rank {ranks[0]} {one}" if len(ranks) == 1 else several


def _table(calls: pd.DataFrame, rows: pd.DataFrame, ranks: list[int]) -> pd.DataFrame:
    """Return the last call of each rank."""
    last = rows.sort_values("record").drop_duplicates("rank", keep="last").set_index("rank")
    # Keep integers even if another rank has no number.
    last = last.drop(columns="line").rename(columns={"path": "line"}).astype({"number": "Int64"})
    table = last.reindex(ranks)[["number", "call", "elements", "line", "called_ns"]]
    first = rows.groupby("number")["called_ns"].min()
    table["after_ns"] = table["called_ns"] - table["number"].map(first).astype("Int64")
    table.insert(0, "dump", pd.array([calls.attrs["dumps"].get(rank) for rank in ranks], "string"))
    table = table.drop(columns="called_ns").rename_axis("rank").reset_index()
    table.attrs = {"last_ns": max(rows["called_ns"].dropna(), default=0)}
    return table
