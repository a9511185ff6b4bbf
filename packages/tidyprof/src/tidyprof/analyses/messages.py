"""Sends and receives between two ranks in dumps of the flight recorder: which are pending, and the
ranks at their ends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from tidyprof.analyses.dump_ages import DumpAges

_ENDS = re.compile(r":(send|recv) (\d{1,9})(?:->|<-)(\d{1,9}|\?)$")
"""How PyTorch names them: `nccl:send 0->1`, `nccl:recv 1<-0`, `nccl:recv 1<-?` from any rank. The
numbers are ranks in the group.
"""


@dataclass(frozen=True)
class Message:
    """One end of a message that is pending.

    peer -- rank of the other end; None where the dump does not name it.
    answer -- whether the other end made its call: True, False, or None if the buffers no longer
              show it, or if the dump of the other end is too old.
    """

    rank: int
    peer: int | None
    answer: bool | None
    call: str
    line: str
    record: int

    def __str__(self) -> str:
        return f"{self.call} at {self.line}"


class _End(NamedTuple):
    """One side of all messages in one direction between two ranks of a group."""

    group: str
    rank: int | None
    peer: int | None
    sends: bool


def pending_messages(calls: pd.DataFrame, ages: DumpAges) -> list[Message]:
    """The first pending send or receive of each rank to each peer, in the order of ranks and
    records.

    Pending is what has not completed. gloo records no messages, and its dumps have no states. What
    was batched (`batch_isend_irecv`) has the state of its batch.
    """
    rows = calls[calls["message"]].to_dict("records")
    batches = {_batch(row): row for row in rows if row["call"].endswith("coalesced")}
    kept = calls.groupby("rank")["record"].min()
    made: dict[_End, list[bool]] = defaultdict(list)
    opened = []
    for row in rows:
        ends = _ENDS.search(row["call"])
        if row["call"].endswith("coalesced"):
            continue
        pending = batches.get(_batch(row), row)["state"] != "completed"
        peer = _global(calls, row["group"], ends[3]) if ends else None
        end = _End(row["group"], row["rank"], peer, sends=bool(ends) and ends[1] == "send")
        made[end].append(pending)
        if pending and not row["call"].startswith("gloo"):
            opened.append((row, end, len(made[end])))
    messages: dict[_End, Message] = {}
    for row, end, number in opened:
        others = made.get(_End(end.group, end.peer, end.rank, not end.sends), [])
        # The first message of one end meets the first of the other, and so on. Where a buffer has
        # lost its oldest calls they can't be counted: an open call may then be the answer, a
        # completed one leaves it open.
        if any(kept.get(one, 0) > 0 for one in (end.rank, end.peer)):
            answer = any(others) or (None if others else False)
        else:
            answer = len(others) >= number
        if answer is False and end.peer is not None and ages.doubt_of_call(end.peer, row):
            answer = None
        message = Message(
            rank=end.rank,
            peer=end.peer,
            answer=None if end.peer is None else answer,
            call=row["call"],
            line=row["line"],
            record=row["record"],
        )
        messages.setdefault(end, message)
    return sorted(messages.values(), key=lambda one: (one.rank, one.record))


def _batch(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["rank"], row["group"], row["number"]


def _global(calls: pd.DataFrame, group: str, rank: str) -> int | None:
    """The rank in the job of a rank in a group."""
    if rank == "?":
        return None
    ranks = calls.attrs["groups"].get(group, [])
    return ranks[int(rank)] if int(rank) < len(ranks) else int(rank)
