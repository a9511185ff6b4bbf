"""Collectives of gloo and MPI: ranges on the host, on a processor and with a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.collectives import ENTRY_COLUMNS
from tidyprof.analyses.common import (
    events_of_process,
    launch_times,
    names_matching,
    of_rank,
    plain_events,
    plain_host_events,
    result,
    start_and_end,
)
from tidyprof.analyses.steps import step_of_time, steps
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, Profile, whole_numbers
from tidyprof.tables.records import PlainEvents

COMMUNICATION = r"(gloo|mpi|ucc|nccl|xccl):(?P<name>.*)"
"""Ranges of torch.distributed's back ends, on threads of their own."""


def communication(profile: Profile, owner: dict[str, Any]) -> PlainEvents:
    """The ranges of COMMUNICATION of one owner."""
    ranges = events_of_process(plain_host_events(profile, ("annotation", "operator")), owner)
    return ranges[names_matching(ranges, COMMUNICATION)]


def host_entries(profile: Profile, mark: str | None) -> pd.DataFrame:
    """A table like that of `collective_entries`, of the ranges of COMMUNICATION.

    With tensors on a GPU a rank enters once its devices have done what was launched before: the
    copy to the host waits for that. The device of such an entry is the first of the rank's.
    """
    return result(pd.concat(list(_entry_tables(profile, mark))), ENTRY_COLUMNS, profile)


def _entry_tables(profile: Profile, mark: str | None) -> Iterator[pd.DataFrame]:
    marked = steps(profile, mark=mark)
    # A table without rows, since pd.concat needs at least one.
    yield pd.DataFrame(columns=list(ENTRY_COLUMNS))
    for rank in profile.events["rank"].drop_duplicates():
        owner = {"rank": rank, "process": pd.NA}
        ranges, steps_of_rank = communication(profile, owner), events_of_process(marked, owner)
        if not len(ranges):
            continue
        # The last number answers the -1 of collectives in no step.
        numbers = np.append(whole_numbers(steps_of_rank["step"]), ABSENT)
        called, end = start_and_end(ranges)
        work = of_rank(plain_events(profile, DEVICE_KINDS), rank)
        # Within the range, even where work that was launched before it ends later.
        begin = np.minimum(np.maximum(called, _free_from(work, called)), end)
        device = work["device"].min() if len(work) else ABSENT
        same_for_all = {
            "rank": rank,
            "device": pd.NA if device == ABSENT else device,
            "world_size": profile.meta.get("world_size", pd.NA),
        }
        columns = {
            **{column: [value] * len(ranges) for column, value in same_for_all.items()},
            "step": numbers[step_of_time(steps_of_rank, called)],
            "name": [name.partition(":")[2] for name in ranges["name"]],
            "launch_ns": called,
            "start_ns": begin,
            "duration_ns": end - begin,
        }
        yield result(columns, ENTRY_COLUMNS, profile)


def _free_from(work: PlainEvents, times: np.ndarray) -> np.ndarray:
    """For each of these times, when the last device event ended of those launched before it; 0
    where there is none.
    """
    launched = launch_times(work)
    known = launched != ABSENT
    order = np.argsort(launched[known], kind="stable")
    ends = np.append(0, np.maximum.accumulate(start_and_end(work)[1][known][order]))
    return ends[np.searchsorted(launched[known][order], times)]
