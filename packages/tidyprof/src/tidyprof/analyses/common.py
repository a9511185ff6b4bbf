"""What all analyses share: choosing rows, grouping by device, the shape of a result, and joining
several results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, nullable, used_codes
from tidyprof.tables.contract import (
    DEVICE_KINDS,
    KINDS,
    Profile,
    categorical_of,
    is_one_of,
    rows,
    whole_numbers,
)
from tidyprof.tables.intervals import Intervals, Times
from tidyprof.tables.launches import launching_calls
from tidyprof.tables.records import PlainColumns, PlainEvents

Events: TypeAlias = "pd.DataFrame | PlainEvents"
"""What helpers take: a table of events, or its plain arrays."""

HOST_KINDS = ("runtime", "operator", "annotation")
"""Kinds that tell what a host thread was doing."""

PLACE = {"rank": "Int32", "device": "Int32"}
"""Columns that say which GPU a row is about; <NA> where the file does not say."""


def result(
    rows: pd.DataFrame | Sequence[Mapping[str, Any]] | Mapping[str, Any],
    columns: Mapping[str, str],
    profile: Profile,
) -> pd.DataFrame:
    """A table with exactly these columns and dtypes, and the profile's origin in `attrs`.

    rows -- a table, a sequence of mappings that are a row each, or one mapping of columns: int64
            with ABSENT, or lists.
    """
    # Column by column: pandas takes ten times as long to make a table of records, or to change
    # types in one.
    table = pd.DataFrame({name: _column(rows, name, dtype) for name, dtype in columns.items()})
    table.attrs["origin"] = profile.origin
    return table


def _column(
    rows: pd.DataFrame | Sequence[Mapping[str, Any]] | Mapping[str, Any], name: str, dtype: str
) -> Any:
    if isinstance(rows, pd.DataFrame):
        values = rows[name].array
        return values if str(values.dtype) == dtype else values.astype(dtype)
    values = rows[name] if isinstance(rows, Mapping) else [row.get(name) for row in rows]
    if not isinstance(values, np.ndarray):
        # Where none of the numbers can be missing, numpy is the shorter way.
        return (
            np.array(values, dtype)
            if dtype in ("int64", "float64", "bool")
            else pd.array(values, dtype)
        )
    return nullable(values.copy(), dtype) if dtype.startswith("Int") else values.astype(dtype)


def repeated(values: Mapping[str, Any], count: int) -> dict[str, np.ndarray]:
    """Columns for `result` that repeat each of these whole numbers `count` times; None or <NA>
    becomes ABSENT.
    """
    return {
        name: np.full(count, ABSENT if pd.isna(value) else value) for name, value in values.items()
    }


Kinds = str | Iterable[str]
"""One kind of event or several."""


def kind_names(kinds: Kinds) -> list[str]:
    """The kinds as a list. Raises ValueError for a kind that no event has, see `contract.KINDS`."""
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    for name in names:
        if name not in KINDS:
            raise ValueError(f"there is no kind {name!r}, only {', '.join(KINDS)}")
    return names


def of_kind(profile: Profile, kinds: Kinds) -> pd.DataFrame:
    """The events of one kind or several. Raises ValueError for a kind that no event has."""
    return profile.of_kind(tuple(kind_names(kinds)))


def host_events(profile: Profile, kinds: Kinds = HOST_KINDS) -> pd.DataFrame:
    """Events on host threads: a range that a tool projected onto a device is not among them."""
    names = tuple(kind_names(kinds))

    def select() -> pd.DataFrame:
        events = profile.of_kind(names)
        return rows(events, events["device"].isna().to_numpy())

    return profile.once(("host", names), select)


def event_arrays(profile: Profile) -> PlainColumns:
    """The columns of all events as plain arrays."""
    return profile.once("columns", lambda: PlainColumns(profile.events))


def plain_events(profile: Profile, kinds: Kinds) -> PlainEvents:
    """`of_kind` as plain arrays."""
    names, columns = tuple(kind_names(kinds)), event_arrays(profile)
    return profile.once(
        ("plain", names),
        lambda: PlainEvents(columns, np.flatnonzero(is_one_of(columns["kind"], names))),
    )


def plain_host_events(profile: Profile, kinds: Kinds = HOST_KINDS) -> PlainEvents:
    """`host_events` as plain arrays."""
    names = tuple(kind_names(kinds))

    def select() -> PlainEvents:
        events = plain_events(profile, names)
        return rows(events, equal(events["device"], None))

    return profile.once(("plain host", names), select)


def by_device(
    profile: Profile, kinds: Kinds = DEVICE_KINDS
) -> Iterator[tuple[dict[str, Any], PlainEvents]]:
    """For each GPU its place (rank and device) and its events of these kinds, in order of rank and
    device. Events without a device are those of one GPU if no event of the rank has a device;
    otherwise, they belong to an unknown GPU and are left out.

    The events have a column `launched_ns`: when the call that launched them returned, ABSENT where
    none is known.
    """
    events, columns = plain_events(profile, kinds), event_arrays(profile)
    if "launched_ns" not in columns:
        device_rows, calls = launches_of(profile)
        columns["launched_ns"] = np.full(len(profile.events), ABSENT)
        columns["launched_ns"][device_rows] = (columns["start_ns"] + columns["duration_ns"])[calls]
    for rank in _distinct(events["rank"]):
        own = of_rank(events, rank)
        devices = _distinct(own["device"])
        for device in [one for one in devices if one is not None] or devices:
            yield {"rank": rank, "device": device}, rows(own, equal(own["device"], device))


def _distinct(values: np.ndarray) -> list[int | None]:
    """The distinct numbers, in order; None, for ABSENT, comes last."""
    numbers = np.unique(values).tolist()
    return [*numbers[1:], None] if numbers[:1] == [ABSENT] else numbers


def launches_of(profile: Profile) -> tuple[np.ndarray, np.ndarray]:
    """`launching_calls` of the profile's events."""
    return profile.once("launches", lambda: launching_calls(event_arrays(profile)))


def of_rank(events: Events, rank: Any) -> Events:
    """The events of one rank; None or <NA> takes those without a rank. Where all events are of this
    rank, it is the table itself.
    """
    return rows(events, equal(events["rank"], rank))


def equal(column: pd.Series | np.ndarray, number: Any) -> np.ndarray:
    """Mask of the rows of a column of whole numbers that have this number; None or <NA> stands for
    <NA>.
    """
    return whole_numbers(column) == (ABSENT if pd.isna(number) else number)


def start_and_end(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Start and end in ns of each event, as int64 arrays."""
    start = whole_numbers(events["start_ns"])
    return start, start + whole_numbers(events["duration_ns"])


def occupied(events: Events, chosen: np.ndarray | slice = slice(None)) -> Intervals:
    """The time during which at least one of the events runs. chosen -- a mask of the events that
    count.
    """
    start, end = start_and_end(events)
    return Intervals.union(start[chosen], end[chosen])


def overlapping(
    start: Times, end: Times, begin: Times, finish: Times
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of an event [start, end) and a window [begin, finish) that overlap, as positions;
    windows sorted by begin.

    Windows that overlap each other can add pairs that are only near each other.
    """
    first = np.searchsorted(np.maximum.accumulate(finish), start, side="right")
    count = np.maximum(np.searchsorted(begin, end, side="left") - first, 0)
    event = np.repeat(np.arange(len(start)), count)
    # Each event overlaps a run of consecutive windows: first, first + 1, ...
    window = (
        np.repeat(first, count)
        + np.arange(count.sum())
        - np.repeat(np.cumsum(count) - count, count)
    )
    return event, window


def launch_times(events: Events) -> np.ndarray:
    """When the host launched each device event, int64 ns; ABSENT where no launch was recorded.

    Readers that know launches put them in the column `launch_ns`.
    """
    return (
        whole_numbers(events["launch_ns"])
        if "launch_ns" in events
        else np.full(len(events), ABSENT)
    )


def has_launches(events: Events) -> bool:
    """Whether the launch of any of these events was recorded."""
    return bool((launch_times(events) != ABSENT).any())


def names_matching(events: Events, pattern: str) -> np.ndarray:
    """Mask of the events whose name matches the regular expression as a whole.

    Looks at each distinct name once: a trace has few names and very many events.
    """
    match = re.compile(pattern).fullmatch
    return of_each_name(events, lambda name: match(name) is not None, bool)


def of_each_name(events: Events, find: Callable[[str], Any], dtype: type) -> np.ndarray:
    """The result of `find` for the name of each event, as this dtype; for an event without a name,
    None in this dtype.
    """
    names = categorical_of(events["name"])
    used = used_codes(names.codes, len(names.categories))
    values: np.ndarray = np.full(len(names.categories) + 1, None, dtype)
    values[used] = [find(str(name)) for name in np.asarray(names.categories, object)[used]]
    return values[names.codes]


def percent(part: Any, whole: Any) -> Any:
    """100 part / whole; 0 where the whole is 0."""
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    return np.divide(100 * part, whole, out=np.zeros_like(part + whole), where=whole != 0)


def four_digits(value: float) -> str:
    """A number for a sentence: four significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def join(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all tables one after the other, with the origin in `attrs` that covers them all.

    Different origins are listed, separated by semicolons. Raises ValueError if there is no table,
    if tables with rows have different columns, and if only some of the tables say where they come
    from.
    """
    tables = list(tables)
    if not tables:
        raise ValueError("there is no table to join")
    # Tables without rows would only widen the types of the others.
    filled = [table for table in tables if len(table)] or tables[:1]
    if any(set(table.columns) != set(filled[0].columns) for table in filled):
        raise ValueError("the tables to join have different columns")
    joined = pd.concat(filled, ignore_index=True)
    joined.attrs = {}
    if len({"origin" in table.attrs for table in tables}) > 1:
        raise ValueError("some tables to join do not say where their numbers come from")
    origins = list(
        dict.fromkeys(table.attrs["origin"] for table in tables if "origin" in table.attrs)
    )
    if origins:
        joined.attrs["origin"] = origins[0] if len(origins) == 1 else "; ".join(map(str, origins))
    return joined


def each(profiles: Profile | Iterable[Profile]) -> Iterable[Profile]:
    """One profile or several, as an iterable; a generator is left to make them one at a time."""
    return [profiles] if isinstance(profiles, Profile) else profiles


OWNER = {"rank": "Int32", "process": "Int64"}
"""Columns that say whose host events a row is about. process is <NA> where the rank alone
distinguishes them.
"""


def processes_apart(annotations: Events, marks: Events) -> np.ndarray:
    """The column `process` of OWNER for each annotation, int64. marks -- the annotations that steps
    begin with.

    It is ABSENT unless several processes without a rank have such marks: a process that marks no
    steps, such as a loader's worker, belongs to the run of the process that does.
    """
    marking = np.unique(whole_numbers(of_rank(marks, None)["process"]))
    if (marking != ABSENT).sum() < 2:
        return np.full(len(annotations), ABSENT)
    return np.where(equal(annotations["rank"], None), whole_numbers(annotations["process"]), ABSENT)


def events_of_process(events: Events, owner: Mapping[str, Any]) -> Events:
    """The rows of one owner, a mapping with the keys of OWNER: those of its process if that is
    known, else those of its rank.
    """
    own = of_rank(events, owner["rank"])
    if pd.isna(owner["process"]):
        return own
    return rows(own, equal(own["process"], owner["process"]))


def owners_of(table: Events) -> list[dict[str, Any]]:
    """The owners in a table that has their columns, in the order of its rows."""
    columns = [whole_numbers(table[column]).tolist() for column in OWNER]
    owners = dict.fromkeys(zip(*columns, strict=True))
    return [
        {
            column: pd.NA if number == ABSENT else number
            for column, number in zip(OWNER, owner, strict=True)
        }
        for owner in owners
    ]


def owner_of(place: Mapping[str, Any], events: Events, marked: Events) -> dict[str, Any]:
    """The owner of a device's events. place -- its rank and device; marked -- the host's steps.

    Raises ValueError where several processes without a rank mark steps and the events are not all
    of one process.
    """
    rank = place["rank"]
    if (whole_numbers(of_rank(marked, rank)["process"]) == ABSENT).all():
        return {"rank": rank, "process": pd.NA}
    processes = np.unique(whole_numbers(events["process"]))
    if len(processes) > 1 or processes[0] == ABSENT:
        raise ValueError(
            f"several processes without a rank mark steps, and whose work device {place['device']}"
            " did is not clear: read the files of one process at a time, or make the profiler"
            " write ranks into their names"
        )
    return {"rank": rank, "process": int(processes[0])}


def longest_overlap(idle: Intervals, host: Events, least: float) -> np.ndarray:
    """For each gap the name of the host event that overlaps it longest, the shortest such event on
    a tie; None where no event covers this share of the gap.
    """
    names = np.full(len(idle), None, dtype=object)
    start, end = start_and_end(host)
    event, gap = overlapping(start, end, idle.starts, idle.ends)
    # An event without a duration inside of a gap overlaps it by nothing.
    lasting = end[event] > start[event]
    event, gap = event[lasting], gap[lasting]
    shared = np.minimum(end[event], idle.ends[gap]) - np.maximum(start[event], idle.starts[gap])
    enough = shared >= least * (idle.ends - idle.starts)[gap]
    event, gap, shared = event[enough], gap[enough], shared[enough]
    # By gap, and the best event of each gap first.
    order = np.lexsort((end[event] - start[event], -shared, gap))
    gap, event = gap[order], event[order]
    best = np.concatenate(([True], gap[1:] != gap[:-1])) if len(gap) else np.zeros(0, dtype=bool)
    names[gap[best]] = categorical_of(host["name"])[event[best]].tolist()
    return names
