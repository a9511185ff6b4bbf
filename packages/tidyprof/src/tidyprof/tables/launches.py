"""Links from device events to the host calls that launched them, and the nesting of calls on a
thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, DEVICE_KINDS, ON_DEVICE, taken
from tidyprof.tables.contract import is_one_of, whole_numbers
from tidyprof.tables.records import PlainColumns, Records

_Threads = tuple[np.ndarray, np.ndarray]


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


def innermost(
    outer: tuple[np.ndarray, np.ndarray],
    outer_threads: _Threads,
    inner: tuple[np.ndarray, np.ndarray],
    inner_threads: _Threads,
) -> np.ndarray:
    """For each inner interval, return the row of the shortest outer interval that encloses it on
    the same thread, or -1 if there is none.

    - outer, inner: the starts and ends in nanoseconds.
    - outer_threads, inner_threads: the process and thread of each interval.

    The outer intervals of a thread must be nested like calls. An interval may enclose an interval
    with equal times.
    """
    found = np.full(len(inner[0]), -1, np.int64)
    inner_rows = _rows_of_threads(inner_threads)
    for thread, rows in _rows_of_threads(outer_threads).items():
        asked = inner_rows.get(thread, np.empty(0, np.int64))
        start, end = outer[0][rows], outer[1][rows]
        order, caller = callers(start, end, np.zeros(len(rows)))
        start, end = start[order], end[order]
        # Start with the last interval that started earlier. If it ended too early, try the interval
        # around it, and so on.
        around = np.searchsorted(start, inner[0][asked], side="right") - 1
        while (wrong := np.flatnonzero((around >= 0) & (end[around] < inner[1][asked]))).size:
            around[wrong] = caller[around[wrong]]
        found[asked] = np.where(around >= 0, rows[order[around]], -1)
    return found


def _rows_of_threads(threads: _Threads) -> dict[tuple[int, int], np.ndarray]:
    return pd.DataFrame(dict(enumerate(threads))).groupby([0, 1], sort=False).indices


@dataclass(frozen=True)
class Launches:
    """The calls that launched events, and counts that show how reliable their correlation ids are.

    - call: the row of the call that launched each event. The row is -1 for host events and for
      events without a known call.
    - shared: the number of calls that have the same correlation id as an enclosing call. The
      enclosing call counts as the launch.
    - repeated: the number of calls with a reused id. An earlier call that had already ended, or a
      call in another process, used the same id.
    """

    call: np.ndarray
    shared: int
    repeated: int


def link(records: Records, is_call: np.ndarray, group: np.ndarray | None = None) -> Launches:
    """Add `launch_ns`, `launch_thread` and `process` to the device events of one file or process.

    - is_call: a mask of the calls that can launch work.
    - group: a number for each row. Correlation ids are unique within each group, such as a rank. If
      the argument is None, all rows are in one group.

    The launch is the outermost call with the event's correlation id, because the HIP runtime calls
    itself. For example, hipMemsetAsync and an inner call can have the same start and id. If an id
    was reused later or in another process, the launch is the last such call that started before the
    event. If a record itself contains values about its launch, these values are kept.
    """
    if group is None:
        group = np.zeros(len(records), np.int64)
    on_device = ON_DEVICE[records["kind"]]
    identifier, events = records["correlation_id"], np.flatnonzero(on_device)
    call, shared, repeated = _launch_of_each(records, identifier, is_call, events, group)
    for column, source in (("launch_ns", "start_ns"), ("launch_thread", "thread")):
        stated = records.get(column)
        found = taken(records.get(source), call)
        records[column] = np.where(on_device, np.where(stated == ABSENT, found, stated), ABSENT)
    process = records.get("process")
    records["process"] = np.where(on_device & (process == ABSENT), taken(process, call), process)
    return Launches(call, shared, repeated)


def _launch_of_each(
    records: Records,
    identifier: np.ndarray,
    is_call: np.ndarray,
    events: np.ndarray,
    group: np.ndarray,
) -> tuple[np.ndarray, int, int]:
    """Return the launching call of each row in `events` and -1 for all other rows, together with
    the counts `shared` and `repeated` of `Launches`.
    """
    calls, others = first_of_each(records, identifier, is_call, group)
    call = rows_of(identifier, group, events, calls)
    again = _come_again(records, identifier, is_call, group) if others else calls[:0]
    if len(again):
        events = events[call[events] >= 0]
        calls = np.concatenate([calls, again])
        call[events] = _last_before(
            records["start_ns"], (group, identifier), calls, events, call[events]
        )
    return call, others - len(again), len(again)


def _come_again(
    records: Records, identifier: np.ndarray, is_call: np.ndarray, group: np.ndarray
) -> np.ndarray:
    """Return the rows of calls that reuse the group and identifier of an earlier, unrelated call.

    The earlier call is unrelated if it belongs to another process or had ended when the later call
    started.
    """
    rows = np.flatnonzero(is_call & (identifier != ABSENT))
    start, end = records["start_ns"][rows], (records["start_ns"] + records["duration_ns"])[rows]
    columns = {
        "group": group[rows],
        "identifier": identifier[rows],
        "process": records.get("process")[rows],
    }
    table = pd.DataFrame(columns | {"row": rows, "start": start, "end": end})
    table = table.sort_values(
        ["group", "identifier", "start", "end"], ascending=[True, True, True, False]
    )
    # This is the latest end of earlier calls in the same process. If there are none, it is 0, so
    # that a call of another process always counts.
    latest = table.groupby([*columns], sort=False)["end"].cummax()
    latest = latest.groupby([table[name] for name in columns], sort=False).shift(fill_value=0)
    is_first = ~table.duplicated(["group", "identifier"])
    return table["row"][(table["start"] >= latest) & ~is_first].to_numpy()


def _last_before(
    start: np.ndarray,
    same: tuple[np.ndarray, ...],
    calls: np.ndarray,
    events: np.ndarray,
    first: np.ndarray,
) -> np.ndarray:
    """For each event, return the last earlier call with the same numbers. If there is no such call,
    return `first`.
    """
    # Sort calls and events together, with calls first at equal times. The most recent call is then
    # the event's call if the group and the identifier match.
    rows = np.concatenate([calls, events])
    is_event = np.arange(len(rows)) >= len(calls)
    order = np.lexsort((is_event, start[rows], *(numbers[rows] for numbers in same)))
    last_call = np.maximum.accumulate(np.where(is_event[order], -1, np.arange(len(rows))))
    before = np.empty(len(rows), np.int64)
    before[order] = np.where(last_call >= 0, rows[order[last_call]], -1)
    before = before[len(calls) :]
    sound = (before >= 0) & np.all([numbers[before] == numbers[events] for numbers in same], axis=0)
    return np.where(sound, before, first)


def unlaunched(records: Records) -> int:
    """Return the number of device events whose launch is missing from the file."""
    return int((ON_DEVICE[records["kind"]] & (records.get("launch_ns") == ABSENT)).sum())


def first_of_each(
    records: Records, identifier: np.ndarray, chosen: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return one row per group and identifier, and the number of rows that were left out.

    The row that starts first is kept. On a tie, the longest row is kept. The rows are sorted by
    group and identifier.
    """
    start, duration = records["start_ns"], records["duration_ns"]
    rows = np.flatnonzero(chosen & (identifier != ABSENT))
    # lexsort sorts by the last key first: here by group, identifier and start, and then by
    # descending duration.
    rows = rows[np.lexsort((-duration[rows], start[rows], identifier[rows], group[rows]))]
    identifier, group = identifier[rows], group[rows]
    first = np.ones(len(rows), bool)
    first[1:] = (group[1:] != group[:-1]) | (identifier[1:] != identifier[:-1])
    return rows[first], int((~first).sum())


def rows_of(
    identifier: np.ndarray, group: np.ndarray, wanted: np.ndarray, candidates: np.ndarray
) -> np.ndarray:
    """For each wanted row, return the candidate with the same group and identifier. For all other
    rows, return -1.

    - candidates: the rows that `first_of_each` returned.
    """
    found = np.full(len(identifier), -1, np.int64)
    for number in np.unique(group[candidates]):
        in_group = candidates[group[candidates] == number]
        rows = wanted[group[wanted] == number]
        # The minimum avoids an index after the last candidate.
        index = np.searchsorted(identifier[in_group], identifier[rows])
        index = np.minimum(index, len(in_group) - 1)
        same = identifier[in_group[index]] == identifier[rows]
        found[rows[same]] = in_group[index[same]]
    return found


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
    *owner, identifier, start, duration = (
        whole_numbers(events[column])[rows] for column in columns
    )
    group = np.zeros(len(rows), np.int64)
    for values in owner:
        number = pd.factorize(values)[0]
        # Combine the columns like digits, with one base per column, so that numbers are equal only
        # for rows with equal rank and process.
        group = group * (number.max(initial=0) + 1) + number
    times = Records({"start_ns": start, "duration_ns": duration})
    launched = np.flatnonzero(on_device[rows])
    call = _launch_of_each(times, identifier, is_call[rows], launched, group)[0][launched]
    return rows[launched[call >= 0]], rows[call[call >= 0]]
