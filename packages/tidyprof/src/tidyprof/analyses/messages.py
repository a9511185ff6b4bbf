"""Sends and receives between two ranks in dumps of the flight recorder: which are pending, and who
is at their ends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pandas as pd

_ENDS = re.compile(r":(send|recv) (\d{1,9})(?:->|<-)(\d{1,9}|\?)$")
"""How PyTorch names them: `nccl:send 0->1`, `nccl:recv 1<-0`, `nccl:recv 1<-?` from any; ranks of
their group.
"""


@dataclass(frozen=True)
class Message:
    """One end of a message that is pending.

    peer -- rank of the other end; None where the dump does not name it.
    answer -- whether the other end made its call: True, False, or None where the buffers no longer
              tell.
    """

    rank: int
    peer: int | None
    answer: bool | None
    call: str
    line: str
    record: int

    def __str__(self) -> str:
        return f"{self.call} at {self.line}"


def pending_messages(calls: pd.DataFrame) -> list[Message]:
    """The first pending send or receive of each rank to each peer, in the order of ranks and
    records.

    Pending is what has not completed. Of gloo, whose dumps have no states, that can't be told, and
    it records no messages. What was batched (`batch_isend_irecv`) has the state of its batch.
    """
    rows = calls[calls["message"]].to_dict("records")
    batches = {_batch(row): row for row in rows if row["call"].endswith("coalesced")}
    kept = calls.groupby("rank")["record"].min()
    made: dict[tuple[Any, ...], list[bool]] = defaultdict(list)
    opened = []
    for row in rows:
        ends = _ENDS.search(row["call"])
        if row["call"].endswith("coalesced"):
            continue
        pending = batches.get(_batch(row), row)["state"] != "completed"
        peer = _global(calls, row["group"], ends[3]) if ends else None
        sends = bool(ends) and ends[1] == "send"
        pair = (row["group"], row["rank"], peer, sends)
        made[pair].append(pending)
        if pending and not row["call"].startswith("gloo"):
            opened.append((row, pair, len(made[pair])))
    found: dict[tuple[Any, ...], Message] = {}
    for row, pair, count in opened:
        group, rank, peer, sends = pair
        others = made.get((group, peer, rank, not sends), [])
        lost = any(kept.get(one, 0) > 0 for one in (rank, peer))
        answer = any(others) or (None if others else False) if lost else len(others) >= count
        message = Message(
            rank, peer, None if peer is None else answer, row["call"], row["line"], row["record"]
        )
        found.setdefault(pair, message)
    return sorted(found.values(), key=lambda one: (one.rank, one.record))


def _batch(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["rank"], row["group"], row["number"]


def _global(calls: pd.DataFrame, group: str, rank: str) -> int | None:
    """The rank in the job of a rank in a group."""
    if rank == "?":
        return None
    ranks = calls.attrs["groups"].get(group, [])
    return ranks[int(rank)] if int(rank) < len(ranks) else int(rank)
