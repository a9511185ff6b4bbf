"""Build one Profile from the parts of several files or processes. The Profile contains the ranks,
the tables, and information about the data that wasn't read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tidyprof.errors import NOTHING, NothingRecordedError, ProfileReadError
from tidyprof.names.short_names import short_name
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    KINDS,
    NO_TEXT,
    ON_DEVICE,
    categorical,
    counted,
    nullable,
    used_codes,
)
from tidyprof.tables.contract import (
    COUNTER_COLUMNS,
    COUNTER_DTYPES,
    EVENT_COLUMNS,
    FURTHER_COLUMNS,
    MARK,
    Origin,
    Profile,
    categorical_of,
    empty_counters,
)
from tidyprof.tables.damage import damage_warnings
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import Records, joined, no_records, nothing

_File = TypeVar("_File")
_Content = TypeVar("_Content")

_RANKS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # AMD's example trainer: trace_{epoch}_{step}_{rank}.json
        r"^trace_\d+_\d+_(\d{1,9})\.",
        r"(?:^|[^a-z])rank[-_.=\[(]?(\d{1,9})(?!\d)",
        # SGLang: {time}-TP-{rank}-DP-..-EP-..-DECODE.trace.json.gz (scheduler_profiler_mixin.py in
        # https://github.com/sgl-project/sglang). If the name contains pipeline stages (PP-),
        # several ranks have the same number.
        r"(?:^|\d-)TP-(\d{1,9})(?=[-._])(?!.*-PP-\d)",
    )
)


def rank_in_name(path: Path, root: Path | None = None) -> int | None:
    """Return the rank from a file's name, or from the nearest folder with a rank in its name.
    Folders are searched up to `root`.

    The accepted forms are `rank2`, `rank_2`, `rank-2`, `rank.2` and `rank[2]`. The word must not
    start in the middle of another word, so `frank2` isn't a rank.
    """
    folders = path.parents if root is not None else ()
    names = [path.name, *(folder.name for folder in folders if folder.is_relative_to(root))]
    found = (pattern.search(name) for name in names for pattern in _RANKS)
    return next((int(match[1]) for match in found if match), None)


def refuse_mixed_ranks(folder: Path, extents: Sequence[Extent]) -> None:
    """Raise ProfileReadError if one of several files in a folder has no rank, or if two files of
    the same rank or of the same run of a profiler overlap in time.
    """
    unknown = [within(folder, one.path) for one in extents if None in one.ranks]
    if unknown and len(extents) > 1:
        raise ProfileReadError(
            folder,
            f"{len(extents)} files, including {len(unknown)} without a rank (such as"
            f" {unknown[0]!r})",
            "the files come from separate runs, or they don't contain the rank",
            "read each file separately, or add rank0, rank1, ... to the file names",
        )
    refuse_overlap(
        folder,
        [(f"rank {rank}", *one.span, one.path) for one in extents for rank in one.ranks],
    )


def within(folder: Path, file: Path) -> str:
    """Return the path of a file relative to a folder. If the file is outside of the folder, return
    its name.
    """
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else file.name


def refuse_overlap(folder: Path, spans: Iterable[tuple[str, int, int, Path]]) -> None:
    """Raise ProfileReadError if files in a folder cover the same rank or process.

    Files that follow each other within one day are allowed.

    - spans: a label for what each file covers (such as `rank 0`), the file's start and end in
      nanoseconds, and the file.
    """
    for (what, _, end, file), (next_what, start, _, next_file) in pairwise(sorted(spans)):
        if what == next_what and not 0 <= start - end <= A_DAY_NS:
            raise ProfileReadError(
                folder,
                f"{within(folder, file)!r} and {within(folder, next_file)!r} both cover {what} at"
                " the same time, or are more than a day apart",
                "the folder contains a copy of a file, or files of several runs or machines",
                "keep only one run in the folder and only one copy of each file, and put rank0,"
                " rank1, ... into the file names",
            )


A_DAY_NS = 24 * 3600 * 10**9
"""Maximum time between files of one job, in nanoseconds. If the files are further apart, one clock
counts from the start of a machine and the other clock counts from 1970.
"""

_SHOWN = 8


ABOUT_RUN = re.compile(r"run(_rank\d+)?\.json")
"""Files that `tidyprof run` writes next to its traces."""


def ignored_lines(meta: Mapping[str, Any]) -> list[str]:
    """Return a line about `ignored_files` in `Profile.meta`, which names the first files.

    If no files were ignored, the list is empty. The line doesn't mention a model's marker because
    the marker is part of the origin. The line also omits the files in which `tidyprof run`
    describes a run, because these files aren't profiles.
    """
    names = {file: Path(file).name for file in meta.get("ignored_files", {})}
    listed = [
        f"{name} ({meta['ignored_files'][file]})"
        for file, name in names.items()
        if not name.endswith(f"{MARK}.json") and not ABOUT_RUN.fullmatch(name)
    ]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return [f"not read: {', '.join(listed[:_SHOWN])}{more}"] if listed else []


def warning_lines(meta: Mapping[str, Any]) -> list[str]:
    """Return the lines that a command prints before its results. The lines contain warnings and the
    files that weren't read.
    """
    return [*meta.get("warnings", []), *ignored_lines(meta)]


_KINDS_DTYPE = pd.CategoricalDtype(KINDS)


def event_table(records: Records, texts: Sequence[str]) -> pd.DataFrame:
    """Return the event table, sorted by start. An enclosing event comes before its inner events.

    The columns are `EVENT_COLUMNS` and the available `FURTHER_COLUMNS`.

    - texts: the strings for the codes in the string columns.

    The function removes all columns from the records.
    """
    # Drop each column after its conversion, so that a large file isn't in memory twice.
    columns, records.columns = records.columns, {}
    starts = columns["start_ns"]
    keys = (columns["depth"], starts) if "depth" in columns else (starts,)
    order = np.lexsort(keys) if len(keys) > 1 or (starts[1:] < starts[:-1]).any() else slice(None)
    on_device = ON_DEVICE[columns["kind"]]
    labels = _shortened(texts, used_codes(columns["name"][on_device], len(texts)))
    if "parent" in columns:
        columns["parent"] = _moved(columns["parent"], order)
    columns["short_name"] = columns["name"]
    frame: dict[str, Any] = {}
    for name, dtype in _dtypes(columns).items():
        values = columns.pop(name) if name in columns and name != "name" else columns.get(name)
        values = nothing(name, len(starts)) if values is None else values[order]
        if name == "kind":
            frame[name] = pd.Categorical.from_codes(values, dtype=_KINDS_DTYPE)
        elif dtype == "category":
            frame[name] = categorical(values, labels if name == "short_name" else texts)
        else:
            frame[name] = values if dtype == "int64" else nullable(values, dtype)
    return pd.DataFrame(frame, copy=False)


def counter_table(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the samples sorted by time.

    The columns are `COUNTER_DTYPES` and any `COUNTER_COLUMNS` that a part contains. If the samples
    belong to kernels, the table contains all `COUNTER_COLUMNS`.
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return empty_counters()
    present = {name for part in parts for name in part.columns} | set(COUNTER_DTYPES)
    dtypes = {
        name: dtype
        for name, dtype in COUNTER_COLUMNS.items()
        if name in present or "kernel" in present
    }
    table = pd.concat(parts).reindex(columns=list(dtypes))
    return table.sort_values("time_ns", kind="stable", ignore_index=True).astype(dtypes)


def _dtypes(columns: dict[str, np.ndarray]) -> dict[str, str]:
    """Return the columns of the table. `FURTHER_COLUMNS` are included only if at least one of their
    values is known.
    """
    stated = {
        name: dtype
        for name, dtype in FURTHER_COLUMNS.items()
        if name in columns and (columns[name] != (NO_TEXT if dtype == "category" else ABSENT)).any()
    }
    return EVENT_COLUMNS | stated


def _shortened(texts: Sequence[str], used: np.ndarray) -> list[str]:
    """Return the strings, with shortened names for device work. Names of host events are readable
    without shortening.
    """
    result = list(texts)
    for code in used.tolist():
        result[code] = short_name(texts[code])
    return result


def _moved(rows: np.ndarray, order: np.ndarray | slice) -> np.ndarray:
    """Update row numbers after the rows were sorted in this order."""
    if isinstance(order, slice):
        return rows
    new_row = np.empty(len(order), np.int64)
    new_row[order] = np.arange(len(order))
    return np.where(rows == ABSENT, ABSENT, new_row[np.maximum(rows, 0)])


@dataclass
class Part:
    """The content of one file, or of one process in it.

    - path: the file that messages name.
    - records: the part's events, linked with their launches. All parts use the same string codes.
    - counters: the tables of samples, with columns from `COUNTER_COLUMNS`.
    - facts: the entries for `Profile.meta`. An entry is kept only if all parts have the same value.
    - rank: the rank, or None if it is unknown or the records themselves contain it.
    - files: the files that were read. None means only `path`.
    - ignored: the reason for each file that wasn't read.
    - processes: the process numbers, including processes without events.
    - total: the number of events in the file, if the file has more events than the records.
    - by_category: the number of events in the file for each category.
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
    warnings: list[str] = field(default_factory=list)

    def ranks(self) -> set[int | None]:
        """Return the ranks of the events, with None for an unknown rank."""
        if "rank" not in self.records or not len(self.records):
            return {self.rank}
        return {
            None if rank == ABSENT else rank for rank in pd.unique(self.records["rank"]).tolist()
        }

    def extent(self) -> Extent:
        """Return the ranks and times of the part's events."""
        return extent_of(
            self.path,
            self.ranks(),
            *(self.records[name] for name in ("kind", "start_ns", "duration_ns")),
        )


def read_recorded(
    files: Iterable[_File], read: Callable[[_File], _Content]
) -> tuple[list[_Content], dict[Path, str]]:
    """Return the results of `read` for all files that contain data, and a reason for each empty
    file.

    If all files are empty, raise the first NothingRecordedError.
    """
    found, empty = [], []
    for file in files:
        try:
            found.append(read(file))
        except NothingRecordedError as error:
            empty.append(error)
    if empty and not found:
        raise empty[0]
    return found, {Path(error.path): NOTHING for error in empty}


def selected_rank(path: Path, parts: Sequence[Part], rank: int | None) -> list[Part]:
    """Return the parts, reduced to the events of `rank`.

    If the parts contain no ranks, all events get this rank. Raises ProfileReadError if the files
    contain only other ranks.
    """
    if rank is None:
        return list(parts)
    known = {stated for part in parts for stated in part.ranks() if stated is not None}
    if known:
        if rank not in known:
            raise ProfileReadError(
                path,
                f"no rank {rank}, only {', '.join(map(str, sorted(known)))}",
                "you passed the wrong rank, or that rank wasn't recorded",
                "leave out the rank to read all of them",
            )
        parts = [part for part in parts if rank in part.ranks()]
    for part in parts:
        if known and "rank" in part.records:
            part.records.keep(part.records["rank"] == rank)
        part.records.columns.pop("rank", None)
        part.rank = rank
    return list(parts)


def profile_of(
    parts: Sequence[Part],
    texts: Iterable[str],
    meta: dict[str, Any] | None = None,
    origin: Origin | None = None,
) -> Profile:
    """Combine all parts into one profile.

    - meta: additional entries for the format. This function adds the common entries.
    """
    texts, meta = list(texts), meta or {}
    stated = common_facts([part.facts for part in parts if part.facts])
    # `meta` comes first so that its entries are in front, and again last so that they override
    # others.
    facts = meta | stated | _sources(parts) | _counts(parts, texts) | meta
    facts["warnings"] = [
        warning for part in parts for warning in (*part.warnings, *_instant_kernels(part))
    ]
    facts["warnings"] += suspicions(part.extent() for part in parts)
    facts["warnings"] += damage_warnings(facts["repairs"], facts["events_total"])
    if origin is not None:
        facts["origin"] = origin
    for part in parts:
        if part.rank is not None:
            part.records["rank"] = np.full(len(part.records), part.rank, np.int64)
            part.counters = [table.assign(rank=part.rank) for table in part.counters]
    counters = counter_table([table for part in parts for table in part.counters])
    facts["warnings"] += impossible_zeros(counters)
    records = joined([part.records for part in parts])
    device = records.get("device")[ON_DEVICE[records["kind"]]]
    if 0 < (without := int((device == ABSENT).sum())) < len(device):
        facts["warnings"].append(
            f"{without:,} of {len(device):,} device events don't name their device. Tables per"
            " device leave out these events."
        )
    return Profile(event_table(records, texts), counters, facts)


def _instant_kernels(part: Part) -> list[str]:
    """Return a warning if kernels have no duration."""
    kind, duration = part.records["kind"], part.records["duration_ns"]
    lasting = duration[(kind == KIND_CODE["kernel"]) | (kind == KIND_CODE["collective"])]
    instant = int((lasting == 0).sum())
    if not instant:
        return []
    return [
        f"{part.path.name}: {instant:,} of {len(lasting):,} kernels last 0 ns because their times"
        " weren't recorded."
    ]


_NEVER_ZERO = re.compile(
    r"(SQ_(WAVES|WAVE_CYCLES|CYCLES|BUSY_CYCLES|BUSY_CU_CYCLES)|GRBM_(COUNT|GUI_ACTIVE))(_sum|_avr)?"
    r"|Wavefronts"
)
"""Counters that can't be 0 if the kernel ran."""


def impossible_zeros(counters: pd.DataFrame) -> list[str]:
    """Return a warning if the value of a kernel counter is 0 although it can't be 0."""
    if "kernel" not in counters:
        return []
    names = [name for name in counters["name"].cat.categories if _NEVER_ZERO.fullmatch(name)]
    zeros = counters["name"][counters["name"].isin(names) & (counters["value"] == 0)]
    if not len(zeros):
        return []
    return [
        f"{len(zeros):,} values of {', '.join(sorted(set(zeros)))} are 0, although this is"
        " impossible for a kernel that ran. The other counters may also be wrong. Likely cause:"
        " this ROCm release doesn't support these counters on this GPU."
    ]


def common_facts(stated: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries that have the same value in all of these mappings."""
    first = stated[0] if stated else {}
    return {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in stated)
    }


def _sources(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the entries of `Profile.meta` about files, ranks and processes."""
    files = [file for part in parts for file in ([part.path] if part.files is None else part.files)]
    entries: dict[str, Any] = {"files": list(dict.fromkeys(map(str, files)))}
    ignored = {str(file): reason for part in parts for file, reason in part.ignored.items()}
    if ignored:
        entries["ignored_files"] = ignored
    ranks = sorted({rank for part in parts for rank in part.ranks() if rank is not None})
    if ranks:
        entries |= {"ranks": ranks} if len(ranks) > 1 else {"rank": ranks[0]}
    processes: set[int] = set()
    for part in parts:
        processes |= {*part.processes, *pd.unique(part.records.get("process")).tolist()}
    processes -= {ABSENT}
    return entries | ({"processes": sorted(processes)} if processes else {})


def _counts(parts: Sequence[Part], texts: list[str]) -> dict[str, Any]:
    """Return the entries of `Profile.meta` about the number of events in each category and about
    dropped events.
    """
    not_kept = sum((part.records.not_kept for part in parts), Counter())
    dropped = sum((part.records.dropped for part in parts), Counter())
    # If a reader didn't count the file's events, its records contain all events.
    categories = (
        counted(part.records.get("source_category"), texts) + part.records.not_kept
        if part.by_category is None
        else part.by_category
        for part in parts
    )
    return {
        "events_total": sum(
            part.records.total if part.total is None else part.total for part in parts
        ),
        "events_by_category": dict(sorted(sum(categories, Counter()).items())),
        "not_kept": dict(sorted(not_kept.items())),
        "repairs": {f"dropped events {reason}": count for reason, count in dropped.items()},
    }


@dataclass(frozen=True)
class Extent:
    """Facts about one file or process, for comparison with the other files of a run.

    - ranks: the ranks of the events, with None for an unknown rank.
    - span: the first start and the last end of the events in nanoseconds, or (0, 0) if there are no
      events.
    - device: the first start and the last end of the device events, or None if there are no device
      events.
    - world_size: the number of ranks in the run, if known.
    - warnings: the warnings about the file itself.
    """

    path: Path
    ranks: frozenset[int | None]
    span: tuple[int, int]
    device: tuple[int, int] | None
    world_size: int | None = None
    warnings: tuple[str, ...] = ()


def extent_of(
    path: Path,
    ranks: Iterable[int | None],
    kind: np.ndarray,
    start_ns: np.ndarray,
    duration_ns: np.ndarray,
) -> Extent:
    """Return the extent of the events with these kinds (positions in `KINDS`) and times."""
    on_device, end = ON_DEVICE[kind], start_ns + duration_ns
    return Extent(
        path,
        frozenset(ranks),
        _span(start_ns, end) or (0, 0),
        _span(start_ns[on_device], end[on_device]),
    )


def _span(start: np.ndarray, end: np.ndarray) -> tuple[int, int] | None:
    return (int(start.min()), int(end.max())) if len(start) else None


def extent_of_profile(profile: Profile) -> Extent:
    """Return the extent of a profile that was read from one file of a run."""
    events, meta = profile.events, profile.meta
    ranks = [None if pd.isna(rank) else int(rank) for rank in events["rank"].unique()]
    start, duration = (events[column].to_numpy(np.int64) for column in ("start_ns", "duration_ns"))
    kind = categorical_of(events["kind"]).codes
    extent = extent_of(Path(meta["files"][0]), ranks or [meta.get("rank")], kind, start, duration)
    warnings = tuple(meta.get("warnings", ()))
    return replace(extent, world_size=meta.get("world_size"), warnings=warnings)


def suspicions(extents: Iterable[Extent]) -> list[str]:
    """Return a warning if the ranks of a run didn't use their devices at the same time."""
    # Files of one rank may follow each other. Each file without a rank counts separately.
    rows = [
        (str(extent.ranks - {None} or number), *extent.device)
        for number, extent in enumerate(extents)
        if extent.device
    ]
    spans = pd.DataFrame(rows, columns=["owner", "start", "end"]).groupby("owner")
    if len(Intervals.union(spans["start"].min(), spans["end"].max())) < 2:
        return []
    return [
        "not all processes overlap in time. Either the processes come from separate runs, or the"
        " clocks of their nodes differ (times count from the start of each node)."
    ]
