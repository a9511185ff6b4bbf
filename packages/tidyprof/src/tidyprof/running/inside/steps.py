"""Finds the steps of a program by the order in which its optimizers step, or its modules are
called.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby

MAX_ORDERED_EVENTS = 64
"""Events by which the order is judged: ten rounds of a program with six optimizers."""


def marks_of(events: Sequence[Hashable], last: bool) -> set[Hashable]:
    """The kinds of event that mark the steps, of events in their order; each occurrence of such a
    kind is a step.

    A single kind marks them. Where kinds take turns, and at least one kind never comes twice in a
    row, a round is a step: the rarest such kind marks it; of several, the kind with which a round
    ends (`last`) or begins. Otherwise each event is a step by itself, as with clients that train
    one after the other.
    """
    kinds = list(dict.fromkeys(events))
    runs = [(kind, len(list(run))) for kind, run in groupby(events)]
    # The last run may not have ended yet.
    longest = {kind: max(length for other, length in runs if other == kind) for kind in kinds}
    returned = len(runs) > len(kinds)
    single = [kind for kind in kinds if longest[kind] == 1]
    if not returned or not single:
        return set(kinds)
    rarest = min(events.count(kind) for kind in single)
    # A kind that came once less often may only be due: the last round may not have ended yet.
    chosen = [kind for kind in single if events.count(kind) <= rarest + 1]
    return {chosen[-1 if last else 0]}


class Marker:
    """Takes events as they come, and decides which of them end a step (`last`) or begin one."""

    def __init__(self, last: bool) -> None:
        self.last = last
        self.events: list[Hashable] = []
        self.marks: set[Hashable] = set()

    def is_step(self, kind: Hashable) -> bool:
        """Return True if this event marks a step. Later events may prove early answers wrong."""
        if len(self.events) < MAX_ORDERED_EVENTS:
            self.events.append(kind)
            self.marks = marks_of(self.events, self.last)
        # A kind never seen before counts: a new optimizer, as for each epoch, replaces an old one.
        return kind in self.marks or kind not in self.events

    @property
    def steps(self) -> int:
        """Steps among the events so far."""
        return sum(kind in self.marks for kind in self.events)
