"""One Profile of what a reader found in several files or processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.tables.building import counter_table, event_table
from tidyprof.tables.codes import ABSENT, counted
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.extents import Extent, extent_of, suspicions
from tidyprof.tables.launches import unlaunched
from tidyprof.tables.ranks import refuse_unknown_rank
from tidyprof.tables.records import Records, joined, no_records


@dataclass
class Part:
    """What a reader found in one file, or in one process of it.

    path     -- where it lies, for messages.
    records  -- its events, linked with their launches; codes of texts that all parts share.
    counters -- tables of samples in columns of COUNTER_COLUMNS.
    facts    -- entries of `Profile.meta`; those that all parts state alike are kept.
    rank     -- None if unknown, or if the records themselves say it.
    files    -- files that were read, `path` if None; ignored -- those that were not, and why.
    processes -- numbers of processes that may have no event.
    total, by_category -- events in the file, if it had more than became records.
    shared_launches    -- calls with the correlation id of another call.
    """

    path: Path
    records: Records = field(default_factory=no_records)
    counters: list[pd.DataFrame] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    rank: int | None = None
    files: list[Path] | None = None
    ignored: dict[Path, str] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)
    total: int | None = None
    by_category: Counter[str] | None = None
    shared_launches: int = 0
    warnings: list[str] = field(default_factory=list)

    def ranks(self) -> set[int | None]:
        """The ranks of its events; None stands for one that is not known."""
        if "rank" not in self.records or not len(self.records):
            return {self.rank}
        return {None if rank == ABSENT else rank for rank in pd.unique(self.records["rank"]).tolist()}

    def extent(self) -> Extent:
        """Where its events lie."""
        return extent_of(self.ranks(), *(self.records[name] for name in ("kind", "start_ns", "duration_ns")))


def selected_rank(path: Path, parts: Sequence[Part], rank: int | None) -> list[Part]:
    """Only the events of `rank`; where no part states a rank, all of them get it. Raises ProfileReadError."""
    if rank is None:
        return list(parts)
    known = {own for part in parts for own in part.ranks() if own is not None}
    if known:
        refuse_unknown_rank(path, known, rank)
        parts = [part for part in parts if rank in part.ranks()]
    for part in parts:
        if known and "rank" in part.records:
            part.records.keep(part.records["rank"] == rank)
        part.records.columns.pop("rank", None)
        part.rank = rank
    return list(parts)


def profile_of(
    parts: Sequence[Part], texts: Iterable[str], meta: dict[str, Any] | None = None, origin: Origin | None = None
) -> Profile:
    """One profile of all parts; `meta` has what the format adds, first, and the common entries are made here."""
    texts, meta = list(texts), meta or {}
    stated = common_facts([part.facts for part in parts if part.facts])
    facts = meta | stated | _places(parts) | _counts(parts, texts) | meta
    facts["warnings"] = [warning for part in parts for warning in part.warnings]
    facts["warnings"] += suspicions(part.extent() for part in parts)
    if origin is not None:
        facts["origin"] = origin
    for part in parts:
        if part.rank is not None:
            part.records["rank"] = np.full(len(part.records), part.rank, np.int64)
            part.counters = [table.assign(rank=part.rank) for table in part.counters]
    counters = counter_table([table for part in parts for table in part.counters])
    return Profile(event_table(joined([part.records for part in parts]), texts), counters, facts)


def common_facts(stated: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all of these state alike."""
    first = stated[0] if stated else {}
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in stated)}


def _places(parts: Sequence[Part]) -> dict[str, Any]:
    """Files, ranks and processes."""
    files = [file for part in parts for file in ([part.path] if part.files is None else part.files)]
    found: dict[str, Any] = {"files": list(dict.fromkeys(map(str, files)))}
    ignored = {str(file): reason for part in parts for file, reason in part.ignored.items()}
    if ignored:
        found["ignored_files"] = ignored
    ranks = sorted({rank for part in parts for rank in part.ranks() if rank is not None})
    if ranks:
        found |= {"ranks": ranks} if len(ranks) > 1 else {"rank": ranks[0]}
    known = {number for part in parts for number in [*part.processes, *pd.unique(part.records.get("process")).tolist()]}
    known -= {ABSENT}
    return found | ({"processes": sorted(known)} if known else {})


def _counts(parts: Sequence[Part], texts: list[str]) -> dict[str, Any]:
    """How many events there were, of which category, and what became of them."""
    not_kept = sum((part.records.not_kept for part in parts), Counter())
    dropped = sum((part.records.dropped for part in parts), Counter())
    categories = (
        counted(part.records.get("source_category"), texts) + part.records.not_kept
        if part.by_category is None
        else part.by_category
        for part in parts
    )
    return {
        "events_total": sum(part.records.total if part.total is None else part.total for part in parts),
        "events_by_category": dict(sorted(sum(categories, Counter()).items())),
        "not_kept": dict(sorted(not_kept.items())),
        "device_events_without_launch": sum(unlaunched(part.records) for part in parts),
        "shared_launch_records": sum(part.shared_launches for part in parts),
        "repairs": {f"dropped events {reason}": count for reason, count in dropped.items()},
    }
