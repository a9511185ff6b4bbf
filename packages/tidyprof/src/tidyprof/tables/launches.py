"""Links from device events to the host calls that launched them, and the nesting of calls on a
thread.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, DEVICE_KINDS, ON_DEVICE, first_equal, taken
from tidyprof.tables.contract import is_one_of, whole_numbers
from tidyprof.tables.records import PlainColumns, Records


def callers(
    start: np.ndarray, end: np.ndarray, thread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return an order of the calls, and the caller of each call. Calls are sorted by thread and
    start, and an outer call comes before its inner calls.

    - start, end: the times in nanoseconds.
    - thread: a number for each thread.

    For each call in this order, the second array contains the position of its caller, or -1 if the
    call has no caller. The caller is the innermost call that was running on the thread at the start
    of the call. If two calls have the same times, the first call is the outer one.
    """
    order = np.lexsort((-end, start, thread))
    start, end, thread = start[order], end[order], thread[order]
    caller = np.arange(len(order)) - 1
    caller[np.append(True, thread[1:] != thread[:-1])[: len(order)]] = -1
    # The previous call is the caller unless it has ended. If it has ended, its own caller is tried,
    # and so on. Each caller that is found also serves all later calls, so there are few rounds.
    while (wrong := np.flatnonzero((caller >= 0) & (end[caller] <= start))).size:
        caller[wrong] = caller[caller[wrong]]
    return order, caller


def link(
    records: Records, is_call: np.ndarray, group: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """Add `launch_ns`, `launch_thread` and `process` to the device events of one file or process.

    - is_call: a mask of the calls that can launch work.
    - group: a number for each row. Correlation ids are unique within each group, such as a rank. If
      the argument is None, all rows are in one group.

    The launch is the outermost call with the event's correlation id, because the HIP runtime calls
    itself. For example, hipMemsetAsync and an inner call can have the same start and id. If an id
    was reused later or in another process, the launch is unknown. If a record itself contains
    values about its launch, these values are kept.

    Return the row of the call that launched each event, or -1 for host events and for events
    without a known call. Also return the number of calls with a reused id: an earlier call that had
    already ended, or a call in another process, used the same id.
    """
    on_device = ON_DEVICE[records["kind"]]
    key, has_id = keys_of(records["correlation_id"], group)
    call, repeated = _launches(records, key, is_call & has_id, np.flatnonzero(on_device & has_id))
    for column, source in (("launch_ns", "start_ns"), ("launch_thread", "thread")):
        stated = records.get(column)
        found = taken(records.get(source), call)
        records[column] = np.where(on_device, np.where(stated == ABSENT, found, stated), ABSENT)
    process = records.get("process")
    is_missing = on_device & (process == ABSENT)
    records["process"] = np.where(is_missing, taken(process, call), process)
    return call, repeated


def keys_of(identifier: np.ndarray, group: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each row that is unique for its group and identifier. Also return a mask
    of the rows with an identifier.
    """
    has_id = identifier != ABSENT
    if group is not None and (group != group[:1]).any():
        groups, names = pd.factorize(group)
        identifier = pd.factorize(identifier)[0] * len(names) + groups
    return identifier, has_id


def _launches(
    records: Records, key: np.ndarray, is_call: np.ndarray, events: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the launching call of each row in `events`, and the number of calls with a reused id.

    - key: the same number for rows whose correlation ids are the same.
    """
    start, process = records["start_ns"], records.get("process")
    end = start + records["duration_ns"]
    rows = np.flatnonzero(is_call)
    rows = rows[np.lexsort((-end[rows], start[rows], process[rows], key[rows]))]
    # A call is inside an earlier one of its process if it starts before that one ends.
    owner = np.cumsum(begins([key[rows], process[rows]]))
    latest = pd.Series(end[rows]).groupby(owner).cummax().shift(fill_value=0).to_numpy()
    outer = rows[begins([owner]) | (start[rows] >= latest)]
    outer = outer[np.lexsort((start[outer], key[outer]))]
    is_first = begins([key[outer]])
    alone = outer[is_first & np.append(is_first[1:], True)[: len(outer)]]
    call = np.full(len(records), -1, np.int64)
    call[events] = taken(alone, first_equal(key[alone], key[events]), -1)
    return call, len(outer) - int(is_first.sum())


def begins(columns: list[np.ndarray]) -> np.ndarray:
    """Return a mask of the rows that differ from the previous row in at least one column."""
    differs = [values[1:] != values[:-1] for values in columns]
    return np.append(True, np.any(differs, axis=0))[: len(columns[0])]


def launching_calls(events: pd.DataFrame | PlainColumns) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of device events in a table of events, and the positions of the runtime
    calls that launched them.

    The call has the same rank, process and correlation id as the event. If several calls match, the
    call that `link` would choose is used.
    """
    on_device = is_one_of(events["kind"], DEVICE_KINDS)
    is_call = is_one_of(events["kind"], ["runtime"])
    rows = np.flatnonzero(on_device | is_call)
    columns = ("rank", "process", "correlation_id", "start_ns", "duration_ns")
    rank, process, identifier, start, duration = (
        whole_numbers(events[column])[rows] for column in columns
    )
    owner = pd.DataFrame({"rank": rank, "process": process})
    group = owner.groupby(["rank", "process"], sort=False).ngroup().to_numpy()
    key, has_id = keys_of(identifier, group)
    times = Records({"start_ns": start, "duration_ns": duration})
    launched = np.flatnonzero(on_device[rows] & has_id)
    call = _launches(times, key, is_call[rows] & has_id, launched)[0][launched]
    return rows[launched[call >= 0]], rows[call[call >= 0]]
