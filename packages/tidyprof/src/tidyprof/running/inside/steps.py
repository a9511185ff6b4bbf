"""Find the steps of a program based on the order of its optimizer steps or module calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby

MAX_ORDERED_EVENTS = 64
"""The number of events to consider, which is enough for ten rounds of a program with six
optimizers.
"""


def marks_of(events: Sequence[Hashable], last: bool) -> set[Hashable]:
    """Return the kinds of events that mark steps, based on the order of events. Each event of such
    a kind is a step.

    If there is only one kind, this kind marks the steps. If kinds alternate and at least one kind
    never occurs twice in a row, each round is a step. The rarest kind that never occurs twice in a
    row then marks the steps. If several kinds are equally rare, the kind at the end (`last`) or at
    the start of a round marks the steps. In all other cases, each event is a step, for example if
    clients train one after the other.
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
    # Allow for one missing event, because the last round may be incomplete.
    chosen = [kind for kind in single if events.count(kind) <= rarest + 1]
    return {chosen[-1 if last else 0]}


class Marker:
    """An object that decides which events mark the end (`last`) or the start of a step."""

    def __init__(self, last: bool) -> None:
        self.last = last
        self.events: list[Hashable] = []
        self.marks: set[Hashable] = set()

    def is_step(self, kind: Hashable) -> bool:
        """Return True if this event marks a step. Results for the first events may turn out to be
        wrong.
        """
        if len(self.events) < MAX_ORDERED_EVENTS:
            self.events.append(kind)
            self.marks = marks_of(self.events, self.last)
        # Accept a new kind, because a new optimizer may replace an old optimizer, for example in
        # each epoch.
        return kind in self.marks or kind not in self.events

    @property
    def steps(self) -> int:
        """The number of steps among the events so far."""
        return sum(kind in self.marks for kind in self.events)
