"""Connects events on a device with the call that launched them and the operator that asked for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidyprof.readers.torch.events import ABSENT, CodeTables
from tidyprof.tables.kind_codes import KIND_CODE, ON_DEVICE, is_launching


@dataclass(frozen=True)
class LinkCounts:
    """How well the file connects what ran with what launched it.

    unlaunched -- events on a device whose launch is not in the file.
    shared     -- launch calls with the correlation id of an earlier or enclosing one, which is used.
    """

    unlaunched: int
    shared: int


def link(columns: dict[str, np.ndarray], tables: CodeTables) -> LinkCounts:
    """Add `launch`, `launch_thread` and `operator` to columns of one file; complete `bytes`, `grid`, `block`.

    launch, launch_thread -- start (ns) and thread of the runtime or driver call with the correlation id
                             of an event on a device, ABSENT where the file has none.
    operator              -- code of the operator's name for device and runtime rows, else -1.
    """
    on_device = ON_DEVICE[columns["kind"]]
    calls = _calls(columns, tables)
    shared = _first_of_each(columns, "correlation", calls)
    source = _match(columns, "correlation", np.flatnonzero(on_device), shared.rows)
    columns["launch"] = _taken(columns["start"], source)
    columns["launch_thread"] = _taken(columns["thread"], source)
    for name, absent in (("bytes", ABSENT), ("grid", tables.lists[b""]), ("block", tables.lists[b""])):
        missing = (columns[name] == absent) & (source >= 0)
        columns[name][missing] = columns[name][source[missing]]
        columns[name][~on_device] = absent
    columns["operator"] = _operators(columns, on_device)
    return LinkCounts(int((source[on_device] < 0).sum()), shared.repeated)


@dataclass(frozen=True)
class _Distinct:
    rows: np.ndarray
    repeated: int


def _calls(columns: dict[str, np.ndarray], tables: CodeTables) -> np.ndarray:
    """Rows of calls that can launch: the runtime's and the driver's, not synchronisation records."""
    launching = np.array([is_launching(category) for category in tables.categories], bool)
    if not launching.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(launching[columns["category"]] & (columns["kind"] == KIND_CODE["runtime"]))


def _first_of_each(columns: dict[str, np.ndarray], identifier: str, rows: np.ndarray) -> _Distinct:
    """Of rows with the same rank and identifier the first, of these the longest; sorted by rank and identifier.

    The HIP runtime calls itself: hipMemsetAsync and a call within it can share a start and a correlation id.
    """
    rows = rows[columns[identifier][rows] != ABSENT]
    rank, number = columns["rank"][rows], columns[identifier][rows]
    order = np.lexsort((-columns["duration"][rows], columns["start"][rows], number, rank))
    rows, rank, number = rows[order], rank[order], number[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rank[1:] != rank[:-1]) | (number[1:] != number[:-1])
    return _Distinct(rows[first], int((~first).sum()))


def _match(columns: dict[str, np.ndarray], identifier: str, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """For every row of the table the candidate with the same rank and identifier, or -1.

    Only `rows` are looked up. Candidates are sorted by rank and identifier and distinct in them.
    """
    found = np.full(len(columns["start"]), -1, np.int64)
    numbers, ranks = columns[identifier], columns["rank"]
    for rank in np.unique(ranks[candidates]):
        own = candidates[ranks[candidates] == rank]
        wanted = rows[ranks[rows] == rank]
        place = np.minimum(np.searchsorted(numbers[own], numbers[wanted]), len(own) - 1)
        same = numbers[own[place]] == numbers[wanted]
        found[wanted[same]] = own[place[same]]
    return found


def _taken(values: np.ndarray, source: np.ndarray) -> np.ndarray:
    return np.where(source >= 0, values[source], ABSENT) if len(values) else values.copy()


def _operators(columns: dict[str, np.ndarray], on_device: np.ndarray) -> np.ndarray:
    """Code of the name of the operator that owns the External id of a device or runtime row, else -1.

    Older profilers wrote the correlation id as External id where there was no operator, which then names
    an unrelated one. So the operator must enclose the launch on its thread; where the launch is
    not in the file, the two identifiers must differ.
    """
    operators = _first_of_each(columns, "external", np.flatnonzero(columns["kind"] == KIND_CODE["operator"])).rows
    rows = np.flatnonzero(on_device | (columns["kind"] == KIND_CODE["runtime"]))
    owner = _match(columns, "external", rows, operators)
    rows = np.flatnonzero(owner >= 0)
    owner = owner[rows]
    called = np.where(on_device[rows], columns["launch"][rows], columns["start"][rows])
    thread = np.where(on_device[rows], columns["launch_thread"][rows], columns["thread"][rows])
    begin = columns["start"][owner]
    encloses = (begin <= called) & (called <= begin + columns["duration"][owner]) & (thread == columns["thread"][owner])
    plausible = (called == ABSENT) & (columns["external"][rows] != columns["correlation"][rows])
    found = np.full(len(columns["start"]), -1, np.int32)
    proven = encloses | plausible
    found[rows[proven]] = columns["name"][owner[proven]]
    return found
