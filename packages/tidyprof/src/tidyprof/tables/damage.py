"""Detection of invalid events, and a limit on the number of invalid events in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.tables.codes import ABSENT, KIND_CODE, KINDS, ON_DEVICE
from tidyprof.tables.launches import begins
from tidyprof.tables.records import Records

MAXIMUM_DROPPED = 0.1
"""Maximum share of a file's events that may be left out. If more events are invalid, the reason is
probably systematic, such as another unit. Then the other events are also wrong, although nothing
shows it.
"""

MAXIMUM_SILENT = 0.01
"""Maximum share of a file's events that may be left out without a warning."""

LATEST_START_NS = 2**62
"""Smallest start that counts as damage, which is 146 years after the start of the clock."""

_LONGEST_NS = np.full(len(KINDS), 24 * 3600 * 10**9)
_LONGEST_NS[ON_DEVICE] = 3600 * 10**9
_LONGEST_NS[[KIND_CODE["annotation"], KIND_CODE["sample"]]] = 2**53
"""Smallest duration of each kind that counts as damage: one hour on a device, one day for calls and
operators, and 104 days for ranges that a program marked and for samples.

One wrong digit in a start time can turn microseconds into days. A collective waits for another rank
for up to 30 minutes (the longest default of `timeout` in
https://docs.pytorch.org/docs/stable/distributed.html). In the available public traces, all events
are shorter than one minute.
"""

UNFINISHED = "unfinished when the trace ended"
"""Reason to drop an event that was still running at the end of the trace, because its end is
unknown. Such events are common on the host.
"""

NO_TIMES, AT_ZERO = "without start or end", "at time zero"
_INCOMPLETE = (UNFINISHED, NO_TIMES, AT_ZERO)

REPEATED = "that occur twice"
"""Reason to drop an event that has the same values as an earlier event in all columns."""

REPEATED_ID = "with a repeated dispatch ID"

_IDENTIFIERS = ("correlation_id", "external_id", "dispatch_id")
_NUMBERS_OF_ROWS = (*_IDENTIFIERS, "id", "event_id", "row")
_MIXING = 0x9E3779B97F4A7C15
"""Odd multiplier that spreads numbers that are close to each other (the golden ratio, as in Knuth's
multiplicative hashing).
"""

ROUNDING_NS = 2_000
"""Apparent overlap of kernels, in nanoseconds, if a file rounds starts and durations to whole
microseconds.
"""

EARLY_NS = 100_000
"""Allowed overlap of consecutive kernels, in nanoseconds. A kernel can start before the previous
kernel has ended (programmatic dependent launch). In the public traces and in the course's H200
traces, the overlap is at most 34 microseconds, and no kernel outlasts the next kernel.
"""

OTHER_UNIT = 10
"""Ratio of the typical kernel's duration to the time until the next kernel starts. Above this
ratio, durations and starts evidently have different units.
"""

CAUSE = "the profiler lost times or records, or the file was damaged"
NEXT_STEP = "record again"


_SHOWN = 3
"""Maximum number of categories in a warning."""


def left_out(path: Path, unread: Counter[str], named: str = "category") -> list[str]:
    """Return a warning about events that are left out because tidyprof doesn't read their
    category.
    """
    if not unread:
        return []
    shown = ", ".join(f"{name!r} {count:,} times" for name, count in unread.most_common(_SHOWN))
    return [
        f"{path.name}: {unread.total():,} events are left out because tidyprof doesn't read their"
        f" {named}, such as {shown}."
    ]


def durations(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Return ends minus starts as int64. If an end or a start is `ABSENT`, the result is
    `ABSENT`.
    """
    unknown = (start_ns == ABSENT) | (end_ns == ABSENT)
    return np.where(unknown, ABSENT, end_ns - start_ns)


def time_faults(
    start_ns: np.ndarray, duration_ns: np.ndarray, kind: np.ndarray
) -> dict[str, np.ndarray]:
    """Return a mask of the affected events for each reason to leave out events.

    A duration of 0 isn't a reason because profilers lose kernel times, and `Profile.meta` contains
    a warning about that. Profilers write start 0 for an event whose time is unknown
    (https://github.com/pytorch/pytorch/issues/188481), and end 0 for an event that didn't end.
    """
    too_late = (start_ns >= LATEST_START_NS) | (duration_ns >= _LONGEST_NS[kind])
    return {
        NO_TIMES: (start_ns == ABSENT) | (duration_ns == ABSENT),
        AT_ZERO: start_ns <= 0,
        UNFINISHED: duration_ns == -start_ns,
        "with negative duration": duration_ns < 0,
        "with an impossible time": too_late,
    }


def repeated(records: Records) -> np.ndarray:
    """Return a mask of the records that repeat an earlier record in all columns except row numbers.

    Work on a device counts as repeated even if its identifiers differ, because a device never runs
    the same work twice at the same time. Other records can match by coincidence, because some
    clocks count microseconds. They count as repeated only if they have the same identifier, such as
    a correlation id. Samples never count as repeated because a recursive function has one frame for
    each of its calls.
    """
    # Nearly all records differ in their times alone. Sorting takes a fifth of the time of a hash
    # table.
    start, duration = (records[name].astype(np.uint64) for name in ("start_ns", "duration_ns"))
    key = start * np.uint64(_MIXING) ^ duration
    in_order = np.sort(key)
    twice = in_order[1:][in_order[1:] == in_order[:-1]]
    found = np.zeros(len(records), bool)
    if not len(twice):
        return found
    rows = np.flatnonzero(pd.Series(key).isin(twice) & (records["kind"] != KIND_CODE["sample"]))
    table = pd.DataFrame({name: values[rows] for name, values in records.columns.items()})
    works = ON_DEVICE[table["kind"]] & (table["duration_ns"] > 0)
    numbers = table.reindex(columns=[*_IDENTIFIERS], fill_value=0)
    is_numbered = ((numbers != ABSENT) & (numbers != 0)).any(axis="columns")
    same = table.drop(columns="row", errors="ignore").duplicated()
    alike = table.drop(columns=[*_NUMBERS_OF_ROWS], errors="ignore").duplicated()
    found[rows] = (same & is_numbered) | (alike & works)
    return found


def without_damage(
    path: str | PathLike[str], records: Records, faults: dict[str, np.ndarray] | None = None
) -> None:
    """Leave out the invalid events of a file or table, and count the reasons in `records.dropped`.

    - faults: a mask of events for each additional reason. Reasons that concern times come first.

    Raises ProfileReadError if too many device events or host events are invalid.
    """
    on_device = ON_DEVICE[records["kind"]]
    times = (records["start_ns"], records["duration_ns"], records["kind"])
    reasons = time_faults(*times) | (faults or {}) | {REPEATED: repeated(records)}
    sound = np.ones(len(records), bool)
    for what, where in (("device events", on_device), ("host events", ~on_device)):
        faulty, counts = _first_faults({reason: mask & where for reason, mask in reasons.items()})
        records.dropped += counts
        sound &= ~faulty
        # The profiler itself marks incomplete events, so they cast no doubt on the others.
        for reason in _INCOMPLETE if (where & sound).any() else ():
            del counts[reason]
        refuse_damage(path, what, counts, int(where.sum()))
    records.keep(sound)


def damage_warnings(dropped: Mapping[str, int], total: int) -> list[str]:
    """Return a warning if more than `MAXIMUM_SILENT` of `total` rows were left out. Rows that occur
    twice don't count, because nothing is missing.

    - dropped: the number of rows for each reason.
    """
    dropped = {reason: number for reason, number in dropped.items() if REPEATED not in reason}
    count = sum(dropped.values())
    if count <= MAXIMUM_SILENT * total:
        return []
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
    return [
        f"{count:,} of {total:,} rows are damaged and left out ({reasons}), so times and counts are"
        " too small."
    ]


def refuse_damage(
    path: str | PathLike[str],
    what: str,
    dropped: Counter[str],
    total: int,
    cause: str = CAUSE,
    next_step: str = NEXT_STEP,
) -> None:
    """Raise ProfileReadError if more than `MAXIMUM_DROPPED` of `total` events were left out.

    - what: the name of the events in the plural.
    - dropped: the number of events for each reason. Each reason must fit into the phrase `3 <what>
      <reason>`.
    """
    count = dropped.total()
    if count <= MAXIMUM_DROPPED * total:
        return
    reasons = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common(6))
    raise ProfileReadError(
        path, f"{count} of {total} {what} are unusable ({reasons})", cause, next_step
    )


def sound_rows(
    path: str | PathLike[str], what: str, faults: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Counter[str]]:
    """Return a mask of the rows without a fault, and the number of other rows for each reason. A
    row with several faults counts only for the first one.

    Raises ProfileReadError if too many rows have faults.

    - what: the name of the rows in the plural
    - faults: a mask of the rows for each reason
    """
    faulty, counts = _first_faults(faults)
    refuse_damage(path, what, counts, len(faulty))
    return ~faulty, counts


def _first_faults(faults: Mapping[str, np.ndarray]) -> tuple[np.ndarray, Counter[str]]:
    """Return a mask of the rows with a fault, and the number of rows for each reason. A row with
    several faults counts only for the first one.
    """
    counts: Counter[str] = Counter()
    faulty = np.zeros(len(next(iter(faults.values()))), bool)
    for reason, affected in faults.items():
        if number := int((affected & ~faulty).sum()):
            counts[reason] = number
        faulty |= affected
    return faulty, counts


def cut_hip_overlaps(path: Path, records: Records, stream: np.ndarray | None = None) -> list[str]:
    """Apply `cut_overlaps` to files from ROCm's tools, in which durations are ends minus starts.

    Return the warning from `cut_overlaps`. If `cut_overlaps` rejects the file, return a warning
    instead of raising an error.

    - stream: the HIP stream number of each event. If the argument is None, the column `stream` is
      used.

    A hardware queue can't replace the stream, because HIP maps several streams to one queue.
    Without a barrier bit, the kernels of a queue run at the same time. Stream numbers 0 to 2 may
    refer to a default stream (hipStreamLegacy is 1, hipStreamPerThread is 2 in hip_runtime_api.h),
    and each thread can have a separate default stream. Number 0 also refers to work that HIP didn't
    launch, such as OpenMP kernels, which may run in any order. Number 0 therefore counts as a
    stream only if the launching call is in the file.
    """
    stream = records.get("stream") if stream is None else stream
    stream = np.where((stream == 0) & (records.get("launch_ns") == ABSENT), ABSENT, stream)
    thread = np.where((stream >= 0) & (stream <= 2), records.get("launch_thread"), ABSENT)
    try:
        warning = cut_overlaps(path, records, {"stream": stream, "launch_thread": thread})
    except ProfileReadError as error:
        warning = (
            f"{path.name}: {error.finding}. Likely cause: the file's stream numbers don't identify"
            " streams. Nothing was cut."
        )
    return [warning] if warning else []


def cut_overlaps(
    path: Path, records: Records, streams: dict[str, np.ndarray] | None = None
) -> str | None:
    """Cut kernels that continue after the next kernel on their stream has started. Return a warning
    if any kernels were cut.

    A stream runs one kernel at a time. Only kernels from a single launch, such as a graph launch,
    may run at the same time.

    - streams: the columns that together identify an event's stream. `stream` is `ABSENT` if the
      stream is unknown.

    Raises ProfileReadError if durations and starts evidently have different units.
    """
    streams = {"stream": records.get("stream")} if streams is None else streams
    is_kernel = np.isin(records["kind"], [KIND_CODE["kernel"], KIND_CODE["collective"]])
    rows = np.flatnonzero(is_kernel & (streams["stream"] != ABSENT))
    start, duration = records["start_ns"], records["duration_ns"]
    if len(rows) < 2:
        return None
    owner = [*streams.values(), *map(records.get, ("device", "rank", "process"))]
    rows = rows[np.lexsort((duration[rows], start[rows], *(values[rows] for values in owner)))]
    number = np.cumsum(begins([values[rows] for values in owner]))
    launch = records.get("correlation_id")[rows]
    # Kernels of one launch may run at the same time. A kernel without an id is a separate launch.
    is_head = begins([number, launch]) | (launch <= 0)
    later = np.append(np.flatnonzero(is_head), 0)[np.cumsum(is_head)]
    same = (later > 0) & (number[later] == number)
    first, then = rows[same], rows[later[same]]
    # A kernel is too long if it outlasts the next one, or ends long after the next one starts. The
    # next kernel may start slightly early. If both start at the same time, the first one can't be
    # cut.
    end, limit = start[first] + duration[first], start[then]
    over = (end > start[then] + duration[then] + ROUNDING_NS) | (end > limit + EARLY_NS)
    over &= (end > limit + ROUNDING_NS) & (limit > start[first])
    if not over.any():
        return None
    excess = np.median(duration[first] / np.maximum(limit - start[first], 1))
    if excess >= OTHER_UNIT:
        raise ProfileReadError(
            path,
            f"a typical kernel lasts {excess:,.0f} times as long as the time until the next kernel"
            " on its stream starts",
            "durations and starts have different units because another tool changed the file",
            "export it again with both ts and dur in microseconds",
        )
    longest = (end - limit)[over].max() / 1e6
    duration[first[over]] = (limit - start[first])[over]
    return (
        f"{path.name}: {over.sum():,} of {len(rows):,} kernels end up to {longest:,.3f} ms after"
        " the start of the next kernel on their stream. These kernels were cut there because a"
        " stream runs one kernel at a time."
    )
