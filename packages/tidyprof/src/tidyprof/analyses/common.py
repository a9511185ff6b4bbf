"""Helper functions that the analyses share.

The helpers select rows, group events by device, format a result and join several results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from tidyprof.package_data import table_of
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
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.launches import launching_calls
from tidyprof.tables.records import PlainColumns, PlainEvents

Events: TypeAlias = "pd.DataFrame | PlainEvents"
"""A table of events, or the same events as plain arrays."""

HOST_KINDS = ("runtime", "operator", "annotation")
"""Kinds of events that show the activity of a host thread."""

PLACE = {"rank": "Int32", "device": "Int32"}
"""Columns that identify a row's GPU. The values are `<NA>` if the file doesn't name the GPU."""


COLUMNS: Mapping[str, Mapping[str, str]] = table_of("analyses/columns.toml")
"""The columns and dtypes of each table that an analysis returns."""


def result(
    rows: pd.DataFrame | Sequence[Mapping[str, Any]] | Mapping[str, Any],
    columns: str | Mapping[str, str],
    profile: Profile,
) -> pd.DataFrame:
    """Return a table with exactly these columns and dtypes. The table's `attrs` contain the
    profile's origin.

    - rows: a table, a sequence with one mapping per row, or one mapping of columns. The values of a
      column are a list, or int64 numbers with `ABSENT` for missing values.
    - columns: a name in `COLUMNS`, or the dtype of each column.
    """
    dtypes = COLUMNS[columns] if isinstance(columns, str) else columns
    if not isinstance(rows, (pd.DataFrame, Mapping)):
        rows = {name: [row.get(name) for row in rows] for name in dtypes}
    # Convert column by column: pandas takes ten times as long to create a table from records or to
    # convert the dtypes of a whole table.
    table = pd.DataFrame({name: _column(rows[name], dtype) for name, dtype in dtypes.items()})
    table.attrs["origin"] = profile.origin
    return table


def _column(values: Any, dtype: str) -> Any:
    if isinstance(values, pd.Series):
        values = values.array
        return values if str(values.dtype) == dtype else values.astype(dtype)
    if isinstance(values, np.ndarray) and dtype.startswith("Int"):
        return nullable(values.copy(), dtype)
    # These dtypes can't hold missing values, so a numpy array is enough.
    is_plain = dtype in ("int64", "float64", "bool")
    return np.array(values, dtype) if is_plain else pd.array(values, dtype)


def repeated(values: Mapping[str, Any], count: int) -> dict[str, np.ndarray]:
    """Return columns for `result` that contain each of these integers `count` times.

    None and `<NA>` become `ABSENT`.
    """
    return {
        name: np.full(count, ABSENT if pd.isna(value) else value) for name, value in values.items()
    }


Kinds = str | Iterable[str]
"""One or more kinds of events."""


def kind_names(kinds: Kinds) -> list[str]:
    """Return the kinds as a list.

    Raises ValueError for a kind that isn't in `contract.KINDS`.
    """
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    for name in names:
        if name not in KINDS:
            raise ValueError(f"unknown kind {name!r}; known kinds are {', '.join(KINDS)}")
    return names


def host_events(profile: Profile, kinds: Kinds = HOST_KINDS) -> pd.DataFrame:
    """Return the events on host threads.

    Ranges that a profiler projected onto a device are left out.
    """
    names = tuple(kind_names(kinds))

    def select() -> pd.DataFrame:
        events = profile.of_kind(names)
        return rows(events, events["device"].isna().to_numpy())

    return profile.once(("host", names), select)


def event_arrays(profile: Profile) -> PlainColumns:
    """Return the columns of all events as plain arrays."""
    return profile.once("columns", lambda: PlainColumns(profile.events))


def plain_events(profile: Profile, kinds: Kinds) -> PlainEvents:
    """Return the events of one or more kinds as plain arrays."""
    names, columns = tuple(kind_names(kinds)), event_arrays(profile)
    return profile.once(
        ("plain", names),
        lambda: PlainEvents(columns, np.flatnonzero(is_one_of(columns["kind"], names))),
    )


def plain_host_events(profile: Profile, kinds: Kinds = HOST_KINDS) -> PlainEvents:
    """Return the result of `host_events` as plain arrays."""
    names = tuple(kind_names(kinds))

    def select() -> PlainEvents:
        events = plain_events(profile, names)
        return rows(events, equal(events["device"], None))

    return profile.once(("plain host", names), select)


def by_device(
    profile: Profile, kinds: Kinds = DEVICE_KINDS
) -> Iterator[tuple[dict[str, Any], PlainEvents]]:
    """Yield the place of each GPU (its rank and device) and the GPU's events of these kinds. The
    GPUs are sorted by rank and device.

    If no event of a rank has a device, all of the rank's events belong to one GPU. Otherwise,
    events without a device are left out because their GPU is unknown.

    The events have a column `launched_ns`, which contains the time when the launching call
    returned. If no launching call is known, the value is `ABSENT`.
    """
    events, columns = plain_events(profile, kinds), event_arrays(profile)
    if "launched_ns" not in columns:
        device_rows, calls = launches_of(profile)
        columns["launched_ns"] = np.full(len(profile.events), ABSENT)
        columns["launched_ns"][device_rows] = (columns["start_ns"] + columns["duration_ns"])[calls]
    for rank in ranks_of(events):
        own = of_rank(events, rank)
        devices = _distinct(own["device"])
        for device in [one for one in devices if one is not None] or devices:
            yield {"rank": rank, "device": device}, rows(own, equal(own["device"], device))


def ranks_of(events: Events) -> list[int | None]:
    """Return the sorted ranks of a table. None stands for rows without a rank and comes last."""
    return _distinct(whole_numbers(events["rank"]))


def _distinct(values: np.ndarray) -> list[int | None]:
    """Return the sorted distinct numbers. `ABSENT` becomes None, which comes last."""
    numbers = np.unique(values).tolist()
    return [*numbers[1:], None] if numbers[:1] == [ABSENT] else numbers


def launches_of(profile: Profile) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `launching_calls` for the profile's events."""
    return profile.once("launches", lambda: launching_calls(event_arrays(profile)))


def of_rank(events: Events, rank: Any) -> Events:
    """Return the events of one rank. If all events belong to this rank, the result is the table
    itself.

    If the rank is None or `<NA>`, return the events without a rank.
    """
    return rows(events, equal(events["rank"], rank))


def equal(column: pd.Series | np.ndarray, number: Any) -> np.ndarray:
    """Return a mask of the rows with this number in a column of integers.

    None and `<NA>` match missing values.
    """
    return whole_numbers(column) == (ABSENT if pd.isna(number) else number)


def start_and_end(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the end of each event in nanoseconds, as int64 arrays."""
    start = whole_numbers(events["start_ns"])
    return start, start + whole_numbers(events["duration_ns"])


def occupied(events: Events, chosen: np.ndarray | slice = slice(None)) -> Intervals:
    """Return the set of times when at least one of the events runs.

    - chosen: a mask of the events to include.
    """
    start, end = start_and_end(events)
    return Intervals.union(start[chosen], end[chosen])


def launch_times(events: Events) -> np.ndarray:
    """Return the time when the host launched each device event, in int64 nanoseconds.

    If the file contains no launch for an event, the time is `ABSENT`. Readers store launch times in
    the column `launch_ns`.
    """
    return (
        whole_numbers(events["launch_ns"])
        if "launch_ns" in events
        else np.full(len(events), ABSENT)
    )


def has_launches(events: Events) -> bool:
    """Return True if the file contains a launch for at least one of these events."""
    return bool((launch_times(events) != ABSENT).any())


def names_matching(events: Events, pattern: str) -> np.ndarray:
    """Return a mask of the events for which the regular expression matches the whole name.

    Each distinct name is checked only once, because a trace contains many events but few distinct
    names.
    """
    match = re.compile(pattern).fullmatch
    return of_each_name(events, lambda name: match(name) is not None, bool)


def of_each_name(events: Events, find: Callable[[str], Any], dtype: type) -> np.ndarray:
    """Apply `find` to the name of each event, and return the results with this dtype.

    For an event without a name, the result is None, converted to the same dtype.
    """
    names = categorical_of(events["name"])
    used = used_codes(names.codes, len(names.categories))
    values: np.ndarray = np.full(len(names.categories) + 1, None, dtype)
    values[used] = [find(str(name)) for name in np.asarray(names.categories, object)[used]]
    return values[names.codes]


def percent(part: Any, whole: Any) -> Any:
    """Return 100 * part / whole, or 0 if the whole is 0."""
    part, whole = np.asarray(part, dtype=float), np.asarray(whole, dtype=float)
    return np.divide(100 * part, whole, out=np.zeros_like(part + whole), where=whole != 0)


def four_digits(value: float) -> str:
    """Format a number with four significant digits for use in a sentence.

    A number of 1,000 or more keeps all digits before the decimal point.
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def join(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return one table that contains the rows of all tables in order. The table's `attrs` contain
    the combined origin, in which semicolons separate different origins.

    Raises ValueError if there are no tables, or if tables with rows have different columns.
    """
    tables = list(tables)
    if not tables:
        raise ValueError("there are no tables to join")
    # Leave out tables without rows, which would only widen the dtypes of the others.
    filled = [table for table in tables if len(table)] or tables[:1]
    if any(set(table.columns) != set(filled[0].columns) for table in filled):
        raise ValueError("the tables to join have different columns")
    joined = pd.concat(filled, ignore_index=True)
    origins = list(dict.fromkeys(table.attrs.get("origin") for table in tables))
    joined.attrs = {"origin": origins[0] if len(origins) == 1 else "; ".join(map(str, origins))}
    return joined


def each(profiles: Profile | Iterable[Profile]) -> Iterable[Profile]:
    """Return one or more profiles as an iterable.

    This function doesn't read an iterable, so a generator still creates its profiles one at a time.
    """
    return [profiles] if isinstance(profiles, Profile) else profiles
