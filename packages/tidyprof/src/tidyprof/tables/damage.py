"""Events that cannot be right: what is wrong with them, and how many of them a file may have before
none of its events is trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.tables.codes import ABSENT, KIND_CODE, ON_DEVICE
from tidyprof.tables.records import Records

MAXIMUM_DROPPED = 0.01
"""Share of a file's events that may be left out. What is left of a recording that lost more can
mislead.
"""

LATEST_START_NS = 2**62
LONGEST_NS = 2**53
"""Starts from 146 years after the clock began on, and durations from 104 days on, are damage. Ends
of events below fit into 64 bits.
"""

UNFINISHED = "unfinished when the recording ended"
"""The reason to drop an event that still ran when the recording ended: its end is not known. On the
host that is usual.
"""

REPEATED = "that are there twice"
"""The reason to drop an event: an earlier event has the same values in all columns."""

OUTLYING = "that last a thousand times as long as all the rest"
"""The reason to drop an event: the rest of the recording is short beside it, see `outlying`."""

OUTLYING_FACTOR = 1000
OUTLYING_NS = {"device": 3600 * 10**9, "host": 24 * 3600 * 10**9}
"""Shortest durations that can be outlying: an hour on a device, a day on the host."""

_IDENTIFIERS = ("correlation_id", "external_id", "dispatch_id")
_NUMBERS_OF_ROWS = (*_IDENTIFIERS, "id", "event_id", "row")
_MANY_ALIKE = {"lasting": (4, 10), "instant": (8, 2)}
"""How many events at least, and which part of all (one in so many), must be alike but for their
numbers before chance is ruled out.
"""
_MIXING = 0x9E3779B97F4A7C15
"""An odd number with bits everywhere (the golden ratio as in Knuth's multiplicative hashing): it
spreads close numbers.
"""

ROUNDING_NS = 2_000
"""Kernels can seem to overlap by so much in files of whole microseconds, where start and duration
are rounded.
"""

EARLY_NS = 100_000
"""A kernel can begin so long before the kernel ahead has ended (programmatic dependent launch): in
public recordings, and those of the course's H200, by 34 microseconds at most, and none outlasts the
next kernel.
"""

OTHER_UNIT = 10
"""Where the kernels of a stream add up to so many times its span, durations are in another unit
than starts.
"""

CAUSE = "the profiler lost times or records, or the file was damaged"
NEXT_STEP = "record again"


_SHOWN = 3
"""The most categories that a warning names."""


def left_out(path: Path, unread: Counter[str], named: str = "category") -> list[str]:
    """Return a warning about events that are left out because their category isn't read."""
    if not unread:
        return []
    shown = ", ".join(f"{name!r} {count:,} times" for name, count in unread.most_common(_SHOWN))
    more = f" and {len(unread) - _SHOWN} more" if len(unread) > _SHOWN else ""
    return [
        f"{path.name}: {unread.total():,} events are left out, since tidyprof doesn't read their"
        f" {named}: {shown}{more}."
    ]


def durations(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Ends minus starts, int64; ABSENT where one of the two is."""
    unknown = (start_ns == ABSENT) | (end_ns == ABSENT)
    return np.where(unknown, ABSENT, end_ns - start_ns)


def time_faults(start_ns: np.ndarray, duration_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Reasons to leave an event out -> mask of the events that they concern.

    A duration of 0 is no reason: profilers lose the times of kernels, and `Profile.meta` warns of
    it. Profilers write start 0 for an event that never got a time
    (https://github.com/pytorch/pytorch/issues/188481), and end 0 for one that did not end.
    """
    return {
        "without start or end": (start_ns == ABSENT) | (duration_ns == ABSENT),
        "at time zero": start_ns <= 0,
        UNFINISHED: duration_ns == -start_ns,
        "with negative duration": duration_ns < 0,
        "with an impossible time": (start_ns >= LATEST_START_NS) | (duration_ns >= LONGEST_NS),
    }


def outlying(records: Records, sound: np.ndarray) -> np.ndarray:
    """Mask of the events among the sound ones that last OUTLYING_FACTOR times as long as all others
    together, and OUTLYING_NS or longer.

    One wrong digit of a start makes days of microseconds. But a true event can be far longer than
    the rest, too: a collective waits for another rank for up to 30 minutes (the longest default of
    `timeout` in https://docs.pytorch.org/docs/stable/distributed.html), a call on the host can last
    for the whole job. In the public recordings at hand no event lasts a minute. Ranges that a
    program marked, and samples, may last as long as they like.
    """
    on_device = ON_DEVICE[records["kind"]]
    is_measured = ~np.isin(records["kind"], [KIND_CODE["annotation"], KIND_CODE["sample"]])
    duration = records["duration_ns"]
    long = (
        sound
        & is_measured
        & (duration >= np.where(on_device, OUTLYING_NS["device"], OUTLYING_NS["host"]))
    )
    rest = sound & ~long
    if not long.any() or not rest.any():
        return np.zeros(len(long), bool)
    start, end = records["start_ns"][rest], records["start_ns"][rest] + duration[rest]
    return long & (duration // OUTLYING_FACTOR >= end.max() - start.min())


def repeated(records: Records) -> np.ndarray:
    """Mask of the records that repeat an earlier record in every column but the numbers of rows and
    records (_NUMBERS_OF_ROWS).

    Records that also have the same identifier, such as a correlation id, cannot be alike by chance.
    Others can, where a clock counts microseconds, above all if they have no duration: they count as
    repeated only if many are alike, see _MANY_ALIKE. In the public recordings at hand no events
    with a duration are alike, and one in forty of those without. Samples are never repeated: a
    sample has a frame for each call of a function that calls itself.
    """
    nothing_repeated = np.zeros(len(records), bool)
    # Nearly all records differ in their times alone, and sorting takes a fifth of the time of a
    # hash table.
    key = _mixed(records[name] for name in ("start_ns", "duration_ns"))
    in_order = np.sort(key)
    twice = in_order[1:][in_order[1:] == in_order[:-1]]
    if not len(twice):
        return nothing_repeated
    candidates = np.flatnonzero(
        pd.Series(key).isin(twice) & (records["kind"] != KIND_CODE["sample"])
    )
    numbered, alike = nothing_repeated.copy(), nothing_repeated
    for mask, left_out in ((numbered, ("row",)), (alike, _NUMBERS_OF_ROWS)):
        compared = (
            values[candidates] for name, values in records.columns.items() if name not in left_out
        )
        mask[candidates] = pd.Series(_mixed(compared)).duplicated()
    # Without any identifier there is nothing that chance could not make equal.
    numbers = [records.get(name) for name in _IDENTIFIERS]
    numbered &= np.any([(number != ABSENT) & (number != 0) for number in numbers], axis=0)
    lasting = records["duration_ns"] > 0
    for among, (least, part) in zip((lasting, ~lasting), _MANY_ALIKE.values(), strict=True):
        among = among & (records["kind"] != KIND_CODE["sample"])
        if (alike & among).sum() < max(least, int(among.sum()) // part):
            alike &= ~among
    return numbered | alike


def _mixed(columns: Iterable[np.ndarray]) -> np.ndarray:
    """A number for each row that depends on all columns, uint64: two rows that differ share it in
    one of 2**64 cases.
    """
    key: Any = np.uint64(0)
    for values in columns:
        key = (key ^ values.astype(np.uint64)) * np.uint64(_MIXING)
        key ^= key >> np.uint64(29)
    return key


def without_damage(
    path: str | PathLike[str], records: Records, faults: dict[str, np.ndarray] | None = None
) -> None:
    """Leave out the events of a file or table that cannot be right, and count why in
    `records.dropped`.

    faults -- further reasons -> mask of events; those by their times come first.
    Raises ProfileReadError if they are too many of the events of the device or of the host.
    """
    sound = np.ones(len(records), bool)
    on_device = ON_DEVICE[records["kind"]]
    counts: dict[str, Counter[str]] = {"device events": Counter(), "host events": Counter()}
    reasons = time_faults(records["start_ns"], records["duration_ns"]) | (faults or {})
    reasons[OUTLYING] = outlying(records, sound & ~np.any([*reasons.values()], axis=0))
    reasons[REPEATED] = repeated(records)
    # An event with several faults counts for the first of them only.
    for reason, affected in reasons.items():
        affected = affected & sound
        sound &= ~affected
        for what, where in (("device events", on_device), ("host events", ~on_device)):
            if number := int((affected & where).sum()):
                counts[what][reason] = number
    records.dropped += counts["device events"] + counts["host events"]
    refuse_damage(path, "device events", counts["device events"], int(on_device.sum()))
    del counts["host events"][UNFINISHED]
    refuse_damage(path, "host events", counts["host events"], int((~on_device).sum()))
    records.keep(sound)


def refuse_damage(
    path: str | PathLike[str],
    what: str,
    dropped: Counter[str],
    total: int,
    cause: str = CAUSE,
    next_step: str = NEXT_STEP,
) -> None:
    """Raise ProfileReadError if more than MAXIMUM_DROPPED of `total` events were left out.

    what    -- the name of the events, in the plural.
    dropped -- reason -> number of events; reasons read as in "3 <what> <reason>".
    """
    count = dropped.total()
    if count <= MAXIMUM_DROPPED * total:
        return
    reasons = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common(6))
    raise ProfileReadError(
        path, f"{count} of {total} {what} are unusable ({reasons})", cause, next_step
    )


def refuse_repeated(path: str | PathLike[str], what: str, identifiers: np.ndarray) -> None:
    """Refuse a file in which two rows have the same identifier: links between its tables mean
    nothing then.
    """
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


def cut_hip_overlaps(path: Path, records: Records, stream: np.ndarray | None = None) -> list[str]:
    """`cut_overlaps` for the files of ROCm's tools, whose durations are ends minus starts. Returns
    its warning, or one where it refuses.

    stream -- of each event as HIP numbers it; the column `stream` if None. A hardware queue is no
    stream: HIP puts several streams on one queue, and without a barrier bit its kernels run beside
    each other. 0 to 2 may stand for a default stream (hipStreamLegacy is 1, hipStreamPerThread 2 in
    hip_runtime_api.h), and each thread can have one of its own. 0 also stands for work that HIP did
    not launch, such as kernels of OpenMP, which need no order: it counts only where the call is in
    the file.
    """
    stream = records.get("stream") if stream is None else stream
    stream = np.where((stream == 0) & (records.get("launch_ns") == ABSENT), ABSENT, stream)
    thread = np.where((stream >= 0) & (stream <= 2), records.get("launch_thread"), ABSENT)
    try:
        warning = cut_overlaps(path, records, {"stream": stream, "launch_thread": thread})
    except ProfileReadError as error:
        warning = (
            f"{path.name}: {error.finding}. Likely cause: the file's streams are none. Nothing was"
            " cut."
        )
    return [warning] if warning else []


def cut_overlaps(
    path: Path, records: Records, streams: dict[str, np.ndarray] | None = None
) -> str | None:
    """Cut kernels that last beyond the next kernel of their stream at the start of that, and return
    a warning if there are any.

    A stream runs one kernel at a time. Only the kernels of one launch, that of a graph, may run
    beside each other.
    streams -- columns that together identify the stream of an event; `stream` is ABSENT where it is
    not known. Raises ProfileReadError where most of a stream's kernels last too long, and add up to
    OTHER_UNIT times its span.
    """
    streams = {"stream": records.get("stream")} if streams is None else streams
    is_kernel = np.isin(records["kind"], [KIND_CODE["kernel"], KIND_CODE["collective"]])
    rows = np.flatnonzero(is_kernel & (streams["stream"] != ABSENT))
    start, duration = records["start_ns"], records["duration_ns"]
    if len(rows) < 2:
        return None
    # With one process alone, events without a number are of it, too.
    processes = np.unique(records.get("process")[rows])
    others = ("device", "rank", *(["process"] if (processes != ABSENT).sum() > 1 else []))
    owner = [*streams.values(), *map(records.get, others)]
    rows = rows[np.lexsort((duration[rows], start[rows], *(values[rows] for values in owner)))]
    owner = [values[rows] for values in owner]
    later, same = _next_launch(owner, records.get("correlation_id")[rows])
    first, then = rows[same], rows[later[same]]
    # Too long is a kernel that outlasts the next one, or ends far behind its start: a next kernel
    # may begin a bit early. One that begins at the same time leaves nothing to cut to.
    end, limit = start[first] + duration[first], start[then]
    over = (end > start[then] + duration[then] + ROUNDING_NS) | (end > limit + EARLY_NS)
    over &= (end > limit + ROUNDING_NS) & (limit > start[first])
    if not over.any():
        return None
    _refuse_other_unit(path, records, rows, _begins(owner), first[over])
    longest = (end - limit)[over].max() / 1e6
    duration[first[over]] = (limit - start[first])[over]
    return (
        f"{path.name}: {over.sum():,} of {len(rows):,} kernels last beyond the start of the next"
        f" one on their stream, by up to {longest:,.3f} ms, and were cut there: a stream runs one"
        " kernel at a time."
    )


def _begins(columns: list[np.ndarray]) -> np.ndarray:
    """Mask of the rows, in order, that differ from the row before in a column."""
    differs = [values[1:] != values[:-1] for values in columns]
    return np.append(True, np.any(differs, axis=0))[: len(columns[0])]


def _next_launch(owner: list[np.ndarray], launch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each kernel, in order, the position of the next kernel of another launch, and whether
    that is on its stream.

    launch -- correlation ids; a kernel without one counts as a launch of its own.
    """
    stream, each = _begins(owner), _begins([*owner, launch]) | (launch <= 0)
    number = np.cumsum(each)
    later = np.append(np.flatnonzero(each), len(each))[number]
    inside = later < len(each)
    later = np.where(inside, later, 0)
    return later, inside & (np.cumsum(stream)[later] == np.cumsum(stream))


def _refuse_other_unit(
    path: Path, records: Records, rows: np.ndarray, stream: np.ndarray, over: np.ndarray
) -> None:
    """Raise ProfileReadError if durations of one stream are evidently in another unit than its
    starts. rows -- kernels in order; stream -- mask of the first kernel of each stream; over --
    rows that are too long.
    """
    for kernels in np.split(rows, np.flatnonzero(stream)[1:]):
        start, total = records["start_ns"][kernels], int(records["duration_ns"][kernels].sum())
        span = max(int(start[-1] - start[0]), 1)
        # The last kernel has no next one that it could reach over.
        if 2 * np.isin(kernels, over).sum() >= len(kernels) - 1 and total >= OTHER_UNIT * span:
            raise ProfileReadError(
                path,
                f"kernels of one stream last {total / span:,.0f} times as long as all of its time",
                "durations are in another unit than starts: another tool wrote or changed the file",
                "export it again with ts and dur both in microseconds",
            )
