"""Find the rank that the other ranks wait for by comparing the calls of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

OTHER_CALL, OTHER_SIZE, SKIPPED, CIRCLE, BEHIND, MESSAGE, NO_DUMP, LATE, NOBODY, UNKNOWN = (
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
"""The possible verdicts."""

SAME_SIZE = r":(?:all_?reduce|broadcast|reduce|reduce_scatter|_allgather_base)$"
"""Collectives whose input must have the same size on every rank, according to the torch.distributed
documentation.
"""

NEEDS_ALL = r"all_?reduce|all_?gather|reduce_scatter|all_?to_?all|barrier"
"""Collectives that no rank can finish before all ranks have called them. A broadcast, for example,
isn't listed because its root can finish early.
"""

WRITING_S = 60
"""Time after a timeout within which a rank writes its dump, in seconds. PyTorch's watchdog waits
for the dumps for this long (`waitTimeoutDumpInMilSec_ * 4` in ProcessGroupNCCL.cpp).
"""

CLOCK_SKEW_S = 0.1
"""Assumed maximum difference between the clocks of nodes and file systems, in seconds."""

MOST_NAMED = 8
"""Maximum number of ranks that a sentence names."""

_LARGER = "Increase TORCH_FR_BUFFER_SIZE and run again."
_LOOK = (
    "To see whether a rank is late, stuck or dead, check its log and exit code, or its Python stack"
    " (py-spy)."
)
_BELOW = "Look for the cause below PyTorch (network, driver, GPU)"
_NEXT_STEP = (
    "Take the dumps of all ranks at the same time after the timeout, and copy them with cp -p,"
    " which preserves their file times."
)


@dataclass(frozen=True)
class Hang:
    """A verdict on a hanging job: the kind of hang, the ranks to blame if they are known, a
    sentence, and a table with the last call of each rank.
    """

    kind: str
    ranks: tuple[int, ...]
    sentence: str
    table: pd.DataFrame


class _Verdict(NamedTuple):
    """A verdict without its table."""

    kind: str
    blamed: list[int]
    sentence: str


class _Group(NamedTuple):
    """The collectives of one process group.

    - rows: one row per rank and number.
    - last: the number of the last call of each rank that left a dump, or 0 without a call.
    - silent: the ranks that left no dump.
    """

    name: str
    rows: pd.DataFrame
    last: dict[int, int]
    silent: list[int]


class _Wait(NamedTuple):
    """A call in which a rank waits, and the ranks that didn't make their part of this call."""

    call: dict[str, Any]
    others: set[int]


def find_missing_ranks(calls: pd.DataFrame) -> Hang:
    """Return a verdict on a hanging job from the table of `read_flight_recorder`.

    The verdict is the first of these findings:

    - The ranks of a group call different collectives, or use different sizes.
    - Ranks haven't made a call in which other ranks wait. Ranks that wait themselves, for example
      in another group, aren't blamed. If all ranks wait for each other, the verdict blames those
      that went from one call to another in a different order than the majority.
    - A rank made a call after the timeout of the other ranks.

    A rank is blamed for a missing call only if its dump is recent enough. Otherwise, the verdict is
    inconclusive.

    The table describes the last call of each rank. `dump` is `<NA>` if the rank has no dump.
    `after_ns` is the time from the first rank's call with the same number to this rank's call.
    """
    calls = _prepared(calls)
    groups = list(_groups(calls))
    verdicts = [_different_calls(group, calls) for group in groups]
    differing = [one for one in verdicts if one and one.kind != UNKNOWN]
    compared = [group for group, one in zip(groups, verdicts, strict=True) if one is None]
    waits = [wait for group in compared for wait in _waits(group)] + list(_messages(calls))
    late = (_late(group) for group in compared)
    verdict = (
        min(differing, key=lambda one: not one.blamed, default=None)
        or _missing(calls, waits)
        or next((one for one in late if one), None)
        or next((one for one in verdicts if one), None)
        or _nobody(calls, waits)
    )
    return Hang(verdict.kind, tuple(verdict.blamed), verdict.sentence, _last_calls(calls))


def _prepared(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls with additional columns.

    - path: the line with the whole path, which a sentence shortens.
    - open: whether the call hasn't ended.
    - waits: whether the rank may still wait in the call. After a timeout, a call has ended, but it
      is still the rank's newest call.
    - place: a description of the call.
    """
    attrs, path = calls.attrs, calls["line"]
    calls = calls.drop_duplicates(["rank", "record"]).sort_values(["rank", "record"])
    newest = calls["record"] == calls.groupby("rank")["record"].transform("max")
    unfinished = calls["state"] != "completed"
    calls = calls.assign(
        path=path,
        line=path.str.replace(r"^.*/", "", regex=True),
        stack=calls["stack"].fillna(""),
        open=unfinished & ~calls["retired"],
        waits=unfinished & (newest | ~calls["retired"]),
    )
    several = len({*attrs["groups"], *calls.loc[~calls["message"], "group"]}) > 1
    collective = "collective " + calls["number"].astype("string")
    collective += " of group " + calls["group"] if several else ""
    call = calls["call"] + " at " + calls["line"]
    calls["place"] = call.where(calls["message"], collective + ", " + call)
    calls.attrs = attrs
    return calls


def _groups(calls: pd.DataFrame) -> Iterator[_Group]:
    dumps, groups = calls.attrs["dumps"], calls.attrs["groups"]
    everybody = {*calls.attrs["unreadable"], *(rank for ranks in groups.values() for rank in ranks)}
    # The last record with a number is the end of a batch of collectives, which has the batch's
    # state.
    collectives = calls[~calls["message"]].drop_duplicates(["group", "rank", "number"], keep="last")
    for name in sorted({*groups, *collectives["group"]}):
        rows = collectives[collectives["group"] == name]
        ranks = {*groups.get(name, everybody - {*dumps}), *rows["rank"]}
        last = dict.fromkeys(sorted(ranks & {*dumps}), 0)
        last |= rows.groupby("rank")["number"].max().to_dict()
        yield _Group(name, rows, last, sorted(ranks - {*dumps}))


def _inconclusive(why: str) -> _Verdict:
    return _Verdict(UNKNOWN, [], f"Inconclusive: {why}")


def _different_calls(group: _Group, calls: pd.DataFrame) -> _Verdict | None:
    """Return a verdict if ranks make different calls, use different sizes, or if their calls can't
    be compared. Otherwise, return None.

    If the two largest sets of ranks that agree have the same size, the verdict doesn't blame any
    rank.
    """
    kept = group.rows.groupby("rank")["number"].agg(["min", "max"])
    if not len(kept):
        return None
    # The oldest call that every buffer may contain, and the last call that all ranks made.
    oldest, end = kept["min"].max(), min(group.last.values())
    overwritten = (calls.groupby("rank")["record"].min() > 0).reindex(kept.index).any()
    common = group.rows[group.rows["number"].between(oldest, end)]
    lacking = common.groupby("number")["rank"].size() < len(group.last)
    if lacking.any() or (overwritten and end < oldest):
        return _inconclusive(f"some calls aren't in the buffers of all ranks. {_LARGER}")
    sized = common["call"] + " with " + common["elements"] + " elements (" + common["types"] + ")"
    fixed_size = common["call"].str.contains(SAME_SIZE)
    common = common.assign(sized=sized.where(fixed_size, common["call"]))
    differs = common.groupby("number")["sized"].nunique() > 1
    if not differs.any():
        return None
    number = differs.idxmax()
    if overwritten and number == oldest:
        return _inconclusive(f"the ranks differ in the oldest call of all buffers. {_LARGER}")
    at = common[common["number"] == number].set_index("rank")
    kind = OTHER_CALL if at["call"].nunique() > 1 else OTHER_SIZE
    what = at["call" if kind == OTHER_CALL else "sized"]
    counts = what.value_counts()
    sides = [[*what.index[what == side]] for side in counts.index]
    blamed = sorted({*what.index} - {*sides[0]}) if counts.iloc[0] > counts.iloc[1] else []
    shown = "; ".join(
        f"{_ranks(side, 'calls', 'call')} {what[side[0]]} at {at.loc[side[0], 'line']}"
        for side in sides
    )
    who = "The dumps don't show which ranks are wrong"
    if blamed:
        who = f"{_ranks(blamed, 'is', 'are')} different from the other ranks"
    return _Verdict(kind, blamed, f"Collective {number} differs between ranks: {shown}. {who}.")


def _waits(group: _Group) -> Iterator[_Wait]:
    """Yield the calls in which ranks wait for ranks that made no such call.

    With RCCL, a host continues to make calls while an earlier call is open on its GPU. Therefore,
    the ranks wait in the first open call. Without open calls, they wait in the newest call.
    """
    is_open = group.rows["open"]
    number = group.rows.loc[is_open if is_open.any() else slice(None), "number"]
    number = number.min() if is_open.any() else number.max()
    others = {*group.silent, *(rank for rank, last in group.last.items() if last < number)}
    waiting = group.rows[(group.rows["number"] == number) & group.rows["waits"]]
    if others:
        yield from (_Wait(call, others) for call in waiting.to_dict("records"))


def _messages(calls: pd.DataFrame) -> Iterator[_Wait]:
    """Yield the sends and receives that have started but not completed, with the rank that didn't
    make the other end.

    The first message of one end matches the first one of the other end, and so on. If a buffer has
    lost its oldest calls, or if the dump doesn't name the other end, that rank isn't known. gloo
    doesn't record messages. PyTorch names both ends by their numbers within the group, as in
    `nccl:send 0->1` and `nccl:recv 1<-0`.
    """
    rows = calls[calls["message"]]
    ends = rows["call"].str.extract(r":(send|recv) \d+(?:->|<-)(\d{1,9})$")
    # The position in each group's list is the number of the rank within the group.
    ranks_of = {
        (group, str(number)): rank
        for group, ranks in calls.attrs["groups"].items()
        for number, rank in enumerate(ranks)
    }
    peers = [ranks_of.get(end) for end in zip(rows["group"], ends[1], strict=True)]
    rows = rows.assign(kind=ends[0].fillna(""), peer=pd.array(peers, "Int64"))
    end = ["group", "rank", "peer", "kind"]
    made = rows.groupby(end, dropna=False)["record"]
    count, total = made.cumcount() + 1, made.size()
    is_overwritten = (calls.groupby("rank")["record"].min() > 0).any()
    pending = rows[(rows["state"] == "started") & rows["waits"]]
    for call, own in zip(pending.to_dict("records"), count[pending.index], strict=True):
        opposite = {"send": "recv", "recv": "send"}.get(call["kind"])
        answers = total.get((call["group"], call["peer"], call["rank"], opposite), 0)
        is_known = opposite and not pd.isna(call["peer"]) and not is_overwritten
        yield _Wait(call, {call["peer"]} if is_known and answers < own else set())


def _missing(calls: pd.DataFrame, waits: list[_Wait]) -> _Verdict | None:
    """Return a verdict on the ranks that other ranks wait for, or None if there are none."""
    waits = [wait for wait in waits if wait.others]
    missing = {rank for wait in waits for rank in wait.others}
    if not missing:
        return None
    free = missing - {wait.call["rank"] for wait in waits}
    wait = next((wait for wait in waits if wait.others & free), waits[0])
    others = sorted(one.call["rank"] for one in waits if one.call["place"] == wait.call["place"])
    called = f"{_ranks(others, 'waits', 'wait')} in {wait.call['place']}."
    unreadable = {rank: name for rank, name in calls.attrs["unreadable"].items() if rank in free}
    if gone := sorted(free - {*calls.attrs["dumps"], *unreadable}):
        return _Verdict(NO_DUMP, gone, f"{_ranks(gone, 'left', 'left')} no dump. {_LOOK} {called}")
    doubtful = _doubtful(calls, waits)
    sure = sorted((free or missing) - {*doubtful, *unreadable})
    group = wait.call["group"] if free else None
    if left := _left_the_path(calls, group, sure if free else []):
        return left._replace(sentence=f"{left.sentence} {called}")
    if unreadable and not sure:
        names = ", ".join(unreadable.values())
        return _inconclusive(f"these files aren't readable dumps: {names}. {called}")
    if not sure or (doubtful and not free):
        rank, call = next(iter(doubtful.items()))
        return _inconclusive(
            f"the dump of rank {rank} doesn't prove that the rank is missing from {call['place']},"
            f" in which rank {call['rank']} waits. The dump may be older than this call, or the"
            f" call hadn't waited for its timeout of {call['timeout_ms'] / 1e3:g} s. {_NEXT_STEP}"
        )
    if not free:
        told = "; ".join(
            f"rank {wait.call['rank']} waits for {_named(wait.others)} in {wait.call['place']}"
            for wait in waits[:MOST_NAMED]
        )
        return _Verdict(CIRCLE, sure, f"{_ranks(sure, 'waits', 'wait')} for each other: {told}.")
    places = calls.loc[calls["rank"] == sure[0], "place"].tolist()
    last = f"the last call is {places[-1]}" if places else "the dump contains no calls"
    text = f"{_ranks(sure, 'is', 'are')} behind: {last}. {_LOOK} {called}"
    return _Verdict(BEHIND, sure, text)


def _doubtful(calls: pd.DataFrame, waits: list[_Wait]) -> dict[int, dict[str, Any]]:
    """Return the ranks whose dumps can't prove that they are missing from another rank's call, and
    this call.

    A dump doesn't contain the time when it was written. However, the dump must have been written
    after its newest call and no later than its file time. A copy of a dump can only have a later
    file time. If a file is older than its own calls, its time comes from a different clock.
    """
    collectives = calls[~calls["message"]]
    last = collectives.groupby(["group", "rank"])["number"].max().to_dict()
    finished = collectives[collectives["call"].str.contains(NEEDS_ALL)]
    finished = finished[finished["state"] == "completed"].groupby("group")["number"].max()
    with_states = {*calls.loc[calls["state"] == "completed", "rank"]}
    newest_s = calls.groupby("rank")["called_ns"].max().dropna().astype(float) / 1e9
    written_s = pd.Series(calls.attrs["written_ns"], dtype=float) / 1e9
    written_s = written_s[~(written_s < newest_s.reindex(written_s.index) - CLOCK_SKEW_S)]
    doubtful: dict[int, dict[str, Any]] = {}
    waiting = {rank: wait.call for wait in waits[::-1] for rank in sorted(wait.others)}
    for rank, call in waiting.items():
        called_s = float("nan") if pd.isna(call["called_ns"]) else call["called_ns"] / 1e9
        age_s, own_age_s = (
            written_s.get(one, float("nan")) - called_s for one in (call["rank"], rank)
        )
        has_states, timeout_s = call["rank"] in with_states, call["timeout_ms"] / 1e3
        is_older = finished.get(call["group"], 0) > last.get((call["group"], rank), 0)
        is_older |= own_age_s < -CLOCK_SKEW_S
        is_young = age_s < timeout_s - CLOCK_SKEW_S and not (has_states and call["retired"])
        # gloo's states don't show which calls are pending. Then the files must date from the first
        # minute after the timeout, or the rank must have made another call since.
        is_recent = max(age_s, own_age_s) <= timeout_s + WRITING_S and own_age_s >= -CLOCK_SKEW_S
        went_on = newest_s.get(rank, 0) > called_s + CLOCK_SKEW_S
        if is_older or is_young or not (has_states or is_recent or went_on):
            doubtful[rank] = call
    return doubtful


def _left_the_path(calls: pd.DataFrame, group: str | None, missing: list[int]) -> _Verdict | None:
    """Return a verdict on the ranks that made a different call than the majority, although the
    majority also makes this call earlier or later. Return None if there are no such ranks.

    Calls that only some ranks ever make, such as those of rank 0, don't count. If two sides have
    the same size, the missing ranks are blamed.

    - group: the group whose calls are compared by number. None compares all calls in order. Then
      only the first difference counts, because ranks of different groups may take different paths.
    """
    overwritten = (calls.groupby("rank")["record"].min() > 0).any()
    calls = calls.assign(key=calls["call"] + "\n" + calls["stack"])
    if group is not None:
        calls = calls[(calls["group"] == group) & ~calls["message"]]
        calls = calls.drop_duplicates(["rank", "number"], keep="last")
    index = "record" if group is None else "number"
    oldest = calls.groupby("rank")[index].min().max()
    paths = calls.pivot(index=index, columns="rank", values="key").loc[oldest:]
    differing = paths[paths.nunique(axis=1) > 1]
    for number, at in differing.head(1 if group is None else None).iterrows():
        counts = at.value_counts()
        usual = counts.index[0]
        if counts.iloc[0] == counts.iloc[1]:
            sides = [key for key in counts.index if not {*at.index[at == key]} & {*missing}]
            usual = sides[0] if len(sides) == 1 else ""
        others = [*at.index[at == usual]]
        shared = {*calls.loc[calls["rank"].isin(others), "key"]}
        left = [rank for rank, key in at.dropna().items() if key != usual and key in shared]
        if left and overwritten and number == oldest:
            return _inconclusive(f"the ranks differ in the oldest call of all buffers. {_LARGER}")
        if left:
            made = calls[calls[index] == number].set_index("rank")["place"]
            text = (
                f"{_ranks(left, 'takes', 'take')} a different path at {made[left[0]]}, but"
                f" {_named(others)} at {made[others[0]]}. Look for a branch there, or in a caller,"
                " that skips or adds a call."
            )
            return _Verdict(SKIPPED, left, text)
    return None


def _late(group: _Group) -> _Verdict | None:
    """Return a verdict on the ranks that first made a call after its timeout on another rank."""
    called = group.rows.groupby("number")["called_ns"]
    after_ns = group.rows["called_ns"] - called.transform("min")
    late = group.rows[(after_ns > group.rows["timeout_ms"] * 1e6).fillna(False)]
    late = late[late["number"] == late["number"].min()]
    if not len(late):
        return None
    ranks, call = sorted(late["rank"]), late.iloc[0]
    text = (
        f"{_ranks(ranks, 'was', 'were')} late: {call['place']} came"
        f" {after_ns[late.index].max() / 1e9:.1f} s after the first rank's call, but the timeout is"
        f" {call['timeout_ms'] / 1e3:g} s."
    )
    return _Verdict(LATE, ranks, text)


def _nobody(calls: pd.DataFrame, waits: list[_Wait]) -> _Verdict:
    if not len(calls):
        return _inconclusive("the dumps contain no calls. Check that TORCH_FR_BUFFER_SIZE isn't 0.")
    if waits:
        call = waits[0].call
        text = f"Rank {call['rank']}'s {call['place']} is pending. {_BELOW}, or in the code before."
        return _Verdict(MESSAGE, [], text)
    text = f"No rank is missing. All ranks made the same calls. {_BELOW} or outside of collectives."
    return _Verdict(NOBODY, [], f"{text} gloo doesn't record sends and receives.")


def _last_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the last call of each rank."""
    dumps, groups = calls.attrs["dumps"], calls.attrs["groups"]
    ranks = sorted({*dumps, *calls.attrs["unreadable"], *(r for of in groups.values() for r in of)})
    first = calls.groupby(["message", "group", "number"])["called_ns"].transform("min")
    last = calls.assign(after_ns=calls["called_ns"] - first)
    last = last.drop(columns="line").rename(columns={"path": "line"}).astype({"number": "Int64"})
    last = last.drop_duplicates("rank", keep="last").set_index("rank").reindex(ranks)
    table = last[["group", "number", "call", "elements", "line", "after_ns"]]
    table.insert(0, "dump", pd.array([dumps.get(rank) for rank in ranks], "string"))
    return table.rename_axis("rank").reset_index()


def _named(ranks: Iterable[int]) -> str:
    """Return ranks in words: `rank 1`, `ranks 0, 2`."""
    return _ranks(sorted(ranks), "", "").strip().replace("R", "r", 1)


def _ranks(ranks: list[int], one: str, many: str) -> str:
    """Return ranks with a verb: `Rank 1 waits`, `Ranks 0, 2 wait`."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]} {one}"
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"Ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more} {many}"
