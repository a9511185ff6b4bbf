"""Calls of the runtime in which the host waits while the device has nothing to do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    PLACE,
    by_device,
    names_matching,
    occupied,
    plain_host_events,
    result,
    start_and_end,
)
from tidyprof.analyses.idleness import idleness
from tidyprof.analyses.processes import of_owner, owner_of
from tidyprof.analyses.steps import steps
from tidyprof.tables.contract import Profile
from tidyprof.tables.plain import PlainEvents

WAITING_CALLS = {
    "synchronisation": r"(hip|cuda|cu)(Device|Stream|Event|Ctx|Thread)Synchronize\w*",
    "allocation": r"(hipExt|hip|cuda|cu)(Mem)?(Host)?(Malloc|Alloc|Free)(?!\w*Async)\w*|(hip|cuda)Host(Unr|R)egister",
    "copy": r"(hip|cuda|cu)Memcpy(?!\w*Async)\w*",
}
"""Why a call does not return at once -> names of HIP's and CUDA's calls that do so."""

BLOCKED_CALL_COLUMNS = {
    **PLACE,
    "name": "string",
    "category": "string",
    "calls": "int64",
    "total_ns": "int64",
    "blocked_ns": "int64",
}
"""Columns of `blocked_calls`."""


def blocked_calls(profile: Profile) -> pd.DataFrame:
    """The calls behind `blocked_host_ns` of `step_budget`: one row per rank, device and call, most blocked_ns first.

    category is a key of WAITING_CALLS: the host synchronises, allocates or frees memory, or copies and waits for it.
    calls and total_ns count and add up the calls. blocked_ns is the part of them in which the device was idle and
    nothing was launched for it; the rest had the device at work. All of the recording counts, its steps or not.
    Where calls run at the same time on several threads, each has the whole time. Raises ValueError as `steps` does.
    """
    marked = steps(profile)
    calls = waiting_calls(profile)
    rows: list[dict[str, Any]] = []
    for place, events in by_device(profile):
        owner = owner_of(place, events, marked)
        begin, finish = start_and_end(of_owner(profile.events, owner))
        dry = idleness(int(begin.min()), int(finish.max()), events).dry
        called = of_owner(calls, owner)
        names = called["name"]
        for code in np.unique(names.codes):
            own, name = called[names.codes == code], str(names.categories[code])
            total, blocked = int(own["duration_ns"].sum()), (occupied(own) & dry).length
            found = {"name": name, "category": category_of_call(name), "calls": len(own)}
            rows.append({**place, **found, "total_ns": total, "blocked_ns": blocked})
    table = result(rows, BLOCKED_CALL_COLUMNS, profile)
    order = ["blocked_ns", "total_ns", "name"]
    return table.sort_values(order, ascending=[False, False, True], kind="stable", ignore_index=True)


def waiting_calls(profile: Profile) -> PlainEvents:
    """The runtime calls of WAITING_CALLS."""
    calls = plain_host_events(profile, "runtime")
    return profile.once("waiting calls", lambda: calls[names_matching(calls, "|".join(WAITING_CALLS.values()))])


def category_of_call(name: str) -> str | None:
    """Why a call waits, a key of WAITING_CALLS; None for one that returns at once."""
    return next((category for category, pattern in WAITING_CALLS.items() if re.fullmatch(pattern, name)), None)
