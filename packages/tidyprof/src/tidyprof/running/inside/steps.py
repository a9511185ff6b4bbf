"""Find the steps of a program from the order of its optimizer steps or module calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby

MAX_ORDERED_EVENTS = 64
"""The number of events to consider, which is ten rounds of a program with six optimizers."""


def marks_of(events: Sequence[Hashable], last: bool) -> set[Hashable]:
    """Return the kinds of event that mark the steps, from events in order. Each occurrence of such
    a kind is a step.

    If there is only one kind, it marks the steps. If kinds alternate and at least one kind never
    occurs twice in a row, each round is a step. The rarest such kind marks it. If several are
    equally rare, the kind that ends (`last`) or starts a round marks it. Otherwise, each event is a
    step, for example if clients train one after the other.
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
    # A kind that occurred once less often may still follow, because the last round may not be over.
    chosen = [kind for kind in single if events.count(kind) <= rarest + 1]
    return {chosen[-1 if last else 0]}


class Marker:
    """A consumer of events that decides which of them end a step (`last`) or start one."""

    def __init__(self, last: bool) -> None:
        self.last = last
        self.events: list[Hashable] = []
        self.marks: set[Hashable] = set()

    def is_step(self, kind: Hashable) -> bool:
        """Return True if this event marks a step. Later events may prove early results wrong."""
        if len(self.events) < MAX_ORDERED_EVENTS:
            self.events.append(kind)
            self.marks = marks_of(self.events, self.last)
        # A new kind counts, because a new optimizer (for example, per epoch) replaces an old one.
        return kind in self.marks or kind not in self.events

    @property
    def steps(self) -> int:
        """The number of steps among the events so far."""
        return sum(kind in self.marks for kind in self.events)
