"""How long a thread had a processor, where the script itself put it into the trace."""

from __future__ import annotations

from typing import Any

import pandas as pd

KEY = "watch_parts"
"""Under it the block of snippets/14_instrument_me.py keeps a list for each part of a step: name, begin (ns since 1970),
length, time on a processor and, if the system told, time in line for one, in ns."""

NAMES = ("processor_time", "processor_queue")
"""Counters of `Profile.counters`: of the time from time_ns on, duration_ns long, what the thread spent so."""


def watch_tables(metadata: dict[str, Any], rank: int | None) -> list[pd.DataFrame]:
    """The samples of a trace of this rank, a table for each of NAMES; none where the file states no sound ones."""
    stated = metadata.get(KEY)
    parts = [part for part in stated if _is_sound(part)] if isinstance(stated, list) else []
    tables = []
    for place, name in enumerate(NAMES):
        rows = [(begin, length, times[place]) for _, begin, length, *times in parts if len(times) > place]
        if rows:
            table = pd.DataFrame(rows, columns=["time_ns", "duration_ns", "value"], dtype="int64")
            tables.append(table.assign(name=name, unit="ns", **({} if rank is None else {"rank": rank})))
    return tables


def _is_sound(part: Any) -> bool:
    """Whether this is a list as KEY explains."""
    if not isinstance(part, list) or not 4 <= len(part) <= 5 or not isinstance(part[0], str):
        return False
    return all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**62 for number in part[1:])
