"""Who waits for whom, from the raw starts and ends of collectives on several ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from tidyprof_tests.triage.raw import Side, Truth
from tidyprof_tests.triage.raw_files import Event
from tidyprof_tests.triage.raw_time import COLLECTIVE, Axis, named

OWN_PARTS = (
    "compute",
    "exposed_copy",
    "blocked_host",
    "allocation",
    "data_wait",
    "compiling",
    "between",
    "silent",
    "stalled",
)
Entry = tuple[int, int]


@dataclass
class Costs:
    """Of one rank, in ns: its time from the first to the last event, what it did in it, and its
    collectives.
    """

    total: int
    computation: int
    idle: int
    compared: int = 0
    last: int = 0
    wait: int = 0
    transfer: int = 0
    caused: int = 0


def costs(truth: Truth) -> dict[Any, Costs]:
    """Those of each rank, collectives matched by step, name and order."""
    return dict(_costs(truth))


@cache
def _costs(truth: Truth) -> dict[Any, Costs]:
    found = {side.rank.number: _time(truth, side) for side in truth.sides}
    for entries in _matched(truth):
        last = max(start for start, _ in entries.values())
        latest = [number for number, (start, _) in entries.items() if start == last]
        waits = {
            number: last - start if end >= last else 0 for number, (start, end) in entries.items()
        }
        for number, (start, end) in entries.items():
            own = found[number]
            own.compared += 1
            own.wait += waits[number]
            own.transfer += end - start - waits[number]
            if latest == [number]:
                own.last += 1
                own.caused += sum(waits.values())
    return found


def _time(truth: Truth, side: Side) -> Costs:
    if truth.on_host:
        rows = side.rows
        total, computing = (
            sum(row.length for row in rows),
            sum(row.parts["compute"] for row in rows),
        )
        talking = sum(row.parts["exposed_communication"] for row in rows)
        return Costs(total, computing, total - computing - talking)
    axis = Axis(side.work.events)
    computing = axis.cover(one for one in side.work.events if one.kind in ("kernel", "fill"))
    total, busy = int(axis.cuts[-1] - axis.cuts[0]), axis.length(axis.cover(side.work.events))
    return Costs(total, axis.length(computing), total - busy)


def _matched(truth: Truth) -> list[dict[Any, Entry]]:
    """Collectives that all ranks ran equally often under one name in a step."""
    by_key: dict[tuple, dict[Any, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for side in truth.sides:
        for name, asked, event in _entries(truth, side):
            step = next(
                (
                    number
                    for number, begin, end in side.host
                    if asked is not None and begin <= asked < end
                ),
                None,
            )
            by_key[step, name][side.rank.number].append((event.start, event.end))
    matched = []
    for ranks in by_key.values():
        if len(ranks) == len(truth.sides) and len({len(own) for own in ranks.values()}) == 1:
            matched += [
                dict(zip(ranks, entries, strict=True))
                for entries in zip(*ranks.values(), strict=True)
            ]
    return matched


def _entries(truth: Truth, side: Side) -> list[tuple]:
    """Name, launch and event of each collective, in the order of the program."""
    pairs = [*zip(side.work.events, side.work.calls, strict=True)] if side.work else []
    own = [
        (one.collective or one.name, call and call.start, one)
        for one, call in pairs
        if one.kind == "collective"
    ]
    if own:
        return sorted(own, key=lambda entry: entry[1]) if all(entry[1] for entry in own) else own
    ranges = named([*side.rank.ranges, *side.rank.operators], COLLECTIVE)
    entered = [(one, _entering(one, pairs)) for one in sorted(ranges, key=lambda one: one.start)]
    return [
        (one.name.partition(":")[2], one.start, one._replace(start=start)) for one, start in entered
    ]


def _entering(collective: Event, pairs: list[tuple[Event, Event | None]]) -> int:
    """When a rank is ready: tensors on a device are ready once it has done what was asked for
    before.
    """
    before = [event.end for event, call in pairs if call and call.start < collective.start]
    return min(max([collective.start, *before]), collective.end)


def compared(truth: Truth) -> bool:
    """Whether there are several ranks, with collectives that can be compared."""
    return len(truth.sides) > 1 and any(one.compared for one in costs(truth).values())


def blamed(truth: Truth) -> Any:
    """The rank that caused most of all waiting."""
    found = costs(truth)
    return max(found, key=lambda number: found[number].caused)


def excess(truth: Truth, number: int) -> tuple[float, str]:
    """How much more of its time than the others' median a rank spends on OWN_PARTS, and on which of
    them most.
    """
    shares: dict[Any, dict[str, float]] = {}
    for side in truth.sides:
        total = sum(row.length for row in side.rows)
        shares[side.rank.number] = {
            name: sum(row.parts.get(name, 0) for row in side.rows) / total for name in OWN_PARTS
        }
        if truth.on_host:  # operators that others made longer
            line = sum((row.stolen or 0) - row.parts["taken"] for row in side.rows)
            computed = shares[side.rank.number]["compute"] * total
            shares[side.rank.number]["compute"] = max(computed - max(line, 0), 0) / total
    own = shares.pop(number)
    more = Counter(
        {name: own[name] - median(one[name] for one in shares.values()) for name in OWN_PARTS}
    )
    return sum(more.values()), more.most_common(1)[0][0]


def waiting(truth: Truth) -> float:
    """Share of all ranks' time that is waiting."""
    found = costs(truth).values()
    return sum(one.wait for one in found) / max(sum(one.total for one in found), 1)


def waited_for(truth: Truth, number: int) -> float:
    """Share of the others' time in which they wait."""
    others = [one for rank, one in costs(truth).items() if rank != number]
    return sum(one.wait for one in others) / max(sum(one.total for one in others), 1)


def transferring(truth: Truth, kept: float = 1.0) -> float:
    """Share of the time in collectives that is no waiting; kept -- how much of the recorded waiting
    there is.
    """
    found = costs(truth).values()
    transfer, wait = (sum(getattr(one, name) for one in found) for name in ("transfer", "wait"))
    return transfer / max(transfer + kept * wait, 1)


def pace(truth: Truth) -> float:
    """Launch-bound share of the rank that waits least, over all its steps."""
    found = costs(truth)
    fastest = min(found, key=lambda number: found[number].wait / max(found[number].total, 1))
    rows = [row for side in truth.sides if side.rank.number == fastest for row in side.rows]
    return sum(row.parts["launch_bound"] for row in rows) / sum(row.length for row in rows)
