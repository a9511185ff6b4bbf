"""Pending sends and receives between two ranks in flight recorder dumps."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tidyprof.analyses.dump_ages import DumpAges

_ENDS = re.compile(r":(send|recv) (\d{1,9})(?:->|<-)(\d{1,9}|\?)$")
"""PyTorch's names for sends and receives. The names contain the ranks' numbers within the group, as
in `nccl:send 0->1` and `nccl:recv 1<-0`. `nccl:recv 1<-?` is a receive from any rank.
"""


@dataclass(frozen=True)
class Message:
    """One end of a pending message.

    - peer: the rank of the other end, or None if the dump doesn't name this rank.
    - answer: True if the other end made its call, and False if it didn't. If the buffers no longer
      contain the call or if the other end's dump is too old, the value is None.
    - call: the call and its line.
    """

    rank: int
    peer: int | None
    answer: bool | None
    call: str
    record: int


def pending_messages(calls: pd.DataFrame, ages: DumpAges) -> list[Message]:
    """Return the first pending send or receive of each rank for each peer. The result is sorted by
    rank and record.

    A message is pending until it has completed. gloo doesn't record messages, and its dumps don't
    contain states. Messages in a batch (`batch_isend_irecv`) have the state of the batch.
    """
    rows = calls[calls["message"]].to_dict("records")
    batches = {_batch(row): row for row in rows if row["call"].endswith("coalesced")}
    kept = calls.groupby("rank")["record"].min()
    # One end of all messages that one rank of a group sends to another rank.
    made: dict[tuple, list[bool]] = defaultdict(list)
    opened = []
    for row in rows:
        if row["call"].endswith("coalesced"):
            continue
        ends = _ENDS.search(row["call"])
        kind, _, number = ends.groups() if ends else (None, None, "?")
        peer = None if number == "?" else _global(calls, row["group"], int(number))
        end = row["group"], row["rank"], peer, kind == "send"
        pending = batches.get(_batch(row), row)["state"] != "completed"
        made[end].append(pending)
        if pending and not row["call"].startswith("gloo"):
            opened.append((row, end, len(made[end])))
    messages: dict[tuple, Message] = {}
    for row, end, number in opened:
        group, rank, peer, sends = end
        others = made.get((group, peer, rank, not sends), [])
        # The first message of one end matches the first one of the other end, and so on. If a
        # buffer has lost its oldest calls, messages can't be counted. Then a pending call counts as
        # the answer, but completed calls don't show whether one of them was the answer.
        answer: bool | None = len(others) >= number
        if any(kept.get(one, 0) > 0 for one in (rank, peer)):
            answer = any(others) or (None if others else False)
        if peer is None or (answer is False and ages.doubt_of_call(peer, row)):
            answer = None
        text = f"{row['call']} at {row['line']}"
        messages.setdefault(end, Message(rank, peer, answer, text, row["record"]))
    return sorted(messages.values(), key=lambda one: (one.rank, one.record))


def _batch(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["rank"], row["group"], row["number"]


def _global(calls: pd.DataFrame, group: str, rank: int) -> int:
    """Convert a rank's number within a group to its number within the job."""
    ranks = calls.attrs["groups"].get(group, [])
    return ranks[rank] if rank < len(ranks) else rank
