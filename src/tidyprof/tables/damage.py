"""Events that cannot be right: what is wrong with them, and how many a file may have before none is trusted."""

from __future__ import annotations

from collections import Counter
from os import PathLike

import numpy as np

from tidyprof.io.errors import ProfileReadError
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.records import Records

MAXIMUM_DROPPED = 0.01
"""Share of a file's events that may be left out. A recording that lost more can mislead in what is left."""

LATEST_START_NS = 2**62
LONGEST_NS = 2**61
"""Starts and durations from these on (146 and 73 years) are damage; below them, ends fit into 64 bits."""

UNFINISHED = "unfinished when the recording ended"
"""Why events are dropped whose end is the recording's, not their own: no damage."""


def durations(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Ends minus starts, int64; ABSENT where one of them is."""
    unknown = (start_ns == ABSENT) | (end_ns == ABSENT)
    return np.where(unknown, ABSENT, end_ns - start_ns)


def time_faults(start_ns: np.ndarray, duration_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Reasons to leave an event out -> mask of the events that they concern.

    An event without duration is none: profilers lose the times of kernels, and `zero_length_warning` tells.
    Start 0 is what profilers write for an event that never got a time
    (https://github.com/pytorch/pytorch/issues/188481).
    """
    return {
        "without start or end": (start_ns == ABSENT) | (duration_ns == ABSENT),
        "at time zero": start_ns <= 0,
        "with negative duration": duration_ns < 0,
        "with an impossible time": (start_ns >= LATEST_START_NS) | (duration_ns >= LONGEST_NS),
    }


def drop_unusable(records: Records, faults: dict[str, np.ndarray] | None = None) -> None:
    """Leave out the events with faults, those of their times first, and count why in `records.dropped`."""
    sound = np.ones(len(records), bool)
    for reason, affected in (time_faults(records["start_ns"], records["duration_ns"]) | (faults or {})).items():
        affected = affected & sound
        if affected.any():
            records.dropped[reason] += int(affected.sum())
            sound &= ~affected
    records.keep(sound)


def refuse_damage(
    path: str | PathLike[str],
    what: str,
    dropped: Counter[str],
    total: int,
    cause: str = "the profiler lost times, or another program changed the file",
    next_step: str = "record again, and pass the file that the profiler itself wrote",
) -> None:
    """Raise ProfileReadError if more than MAXIMUM_DROPPED of `total` events were left out.

    what    -- what the events are, in the plural.
    dropped -- reason -> number of events; reasons read as in "3 <what> <reason>". UNFINISHED ones do not count.
    """
    damage = Counter({reason: number for reason, number in dropped.items() if reason != UNFINISHED})
    if damage.total() <= MAXIMUM_DROPPED * total:
        return
    reasons = ", ".join(f"{number} {reason}" for reason, number in damage.most_common(6))
    raise ProfileReadError(path, f"{damage.total()} of {total} {what} are unusable ({reasons})", cause, next_step)


def refuse_repeated(path: str | PathLike[str], what: str, identifiers: np.ndarray) -> None:
    """Refuse a file in which two rows have the same identifier: links between its tables mean nothing then."""
    repeated = 0
    if (identifiers[1:] <= identifiers[:-1]).any():
        repeated = len(identifiers) - len(np.unique(identifiers))
    if repeated:
        raise ProfileReadError(
            path,
            f"{repeated} of {len(identifiers)} {what} have an identifier that another one has",
            "files of several runs were merged without renumbering",
            "read the files one by one",
        )
