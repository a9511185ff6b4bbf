"""One or more processes that a ROCm profiler recorded, put together into one table and one `meta`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tidyprof.io.csv_files import counted
from tidyprof.io.errors import ProfileReadError
from tidyprof.tables.contract import DEVICE_KINDS, KINDS
from tidyprof.tables.device_records import impossible_times, with_devices, with_kinds, with_launches, without_damage

if TYPE_CHECKING:
    import polars as pl


@dataclass
class ProcessRecords:
    """What the files of one process hold.

    name      -- where they lie, for messages.
    events    -- frames as `device_records` describes them, with kinds and devices.
    counters  -- frames with a row per dispatch and counter.
    rank, process -- None where unknown.
    stats     -- subject -> table in STATISTICS_COLUMNS.
    agents    -- a dict per CPU and GPU.
    facts     -- further entries of `Profile.meta`.
    numbering -- what `device` counts, see `read_rocprofv3`.
    dropped   -- reason -> records left out; not_kept -- domain -> records that are no events.
    """

    name: Path
    events: list[pl.DataFrame] = field(default_factory=list)
    counters: list[pl.DataFrame] = field(default_factory=list)
    rank: int | None = None
    process: int | None = None
    files: list[Path] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)
    stats: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    agents: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    numbering: str | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    not_kept: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)

    def add_events(
        self, path: Path, records: pl.DataFrame, kind_of_domain: Callable[[str], str | None], cut: int = 0
    ) -> None:
        """Take over records of `path` that become events; `cut` more of them ended early.

        Raises ProfileReadError if too many cannot be used.
        """
        records, not_kept = with_kinds(records, kind_of_domain)
        self.not_kept += not_kept
        is_sampled = "exec_mask" in records.columns
        records, dropped = without_damage(records, path, impossible_times(), cut=cut, one_per_dispatch=not is_sampled)
        self.dropped += dropped
        duration = (records["end"] - records["start"]).alias("duration")
        records = records.drop("end").with_columns(duration)
        self.events.append(with_devices(records))

    def add_counters(self, path: Path, records: pl.DataFrame, cut: int = 0) -> None:
        """Take over counters of dispatches; a value that is no number is damage, like an impossible time.

        Raises ProfileReadError if too many cannot be used.
        """
        import polars as pl

        is_number = pl.col("value").is_finite().fill_null(False)
        reasons = {"whose value is no number": ~is_number | pl.col("counter").is_null()}
        if {"start", "end"} <= set(records.columns):
            reasons |= impossible_times()
        records, dropped = without_damage(records, path, reasons, cut=cut, one_per_dispatch=False)
        self.dropped += dropped
        if "start" not in records.columns:
            records = records.with_columns(pl.lit(0, pl.Int64).alias("start"))
            self.warnings.append(f"{path.name}: no times, as in ROCm 6.2 and before, so time_ns is 0 in the counters.")
        if "end" in records.columns:
            records = records.with_columns((pl.col("end") - pl.col("start")).alias("duration")).drop("end")
        self.counters.append(records)

    def settle_process(self) -> None:
        """Take the number of the process from its records. Raises ProfileReadError if they name several."""
        import polars as pl

        frames = [frame for frame in self.events + self.counters if "process" in frame.columns]
        merged = [frame for frame in frames if "guid" in frame.columns]
        if merged:
            return
        found = sorted({number for frame in frames for number in frame["process"].drop_nulls().unique()})
        if len(found) > 1:
            raise ProfileReadError(
                self.name,
                f"files of one name are about {len(found)} processes ({found[0]} and {found[1]})",
                "several processes or runs wrote to one --output-file name and overwrote each other",
                "record with %pid% in the name, or read the files one by one",
            )
        if found:
            self.process = found[0]
            for table in (table for tables in self.stats.values() for table in tables):
                table["process"] = table["process"].fillna(self.process)
        process = pl.lit(self.process, pl.Int64).alias("process")
        self.events = [frame.with_columns(process) for frame in self.events]
        self.counters = [frame.with_columns(process) for frame in self.counters]


class Run:
    """The records of one or more processes as one.

    events   -- a polars frame for `event_table`.
    counters -- frames for `counter_table`.
    meta     -- entries of `Profile.meta`.
    """

    def __init__(self, path: Path, processes: Sequence[ProcessRecords]) -> None:
        self._path = path
        self._processes = processes
        for process in processes:
            process.settle_process()
        self._refuse_copies()
        self.counters = [self._placed(process, frame) for process in processes for frame in process.counters]
        self.events, self._launches = with_launches(self._all_events())
        self.meta = self._meta()

    def _all_events(self) -> pl.DataFrame:
        """All events with their rank and, as `unit`, within what their correlation ids are unique."""
        import polars as pl

        frames = []
        for number, process in enumerate(self._processes):
            frames += [
                self._placed(process, frame).with_columns(pl.lit(number, pl.Int64).alias("unit"))
                for frame in process.events
            ]
            process.events.clear()
        return _with_processes_of_guids(pl.concat([_no_events(), *frames], how="diagonal_relaxed"))

    def _placed(self, process: ProcessRecords, frame: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        return frame.with_columns(pl.lit(process.rank, pl.Int32).alias("rank"))

    def _refuse_copies(self) -> None:
        """The same events in two files would count twice."""
        seen: dict[tuple[Any, ...], Path] = {}
        for process in self._processes:
            for frame in process.events:
                if not len(frame):
                    continue
                start, duration = frame["start"], frame["duration"]
                key = (len(frame), frame["category"][0], start.min(), start.max(), start[0], int(duration.sum()))
                if key in seen:
                    raise ProfileReadError(
                        self._path,
                        f"the files of {str(seen[key])!r} and {str(process.name)!r} hold the same events",
                        "a copy of a file in the same folder",
                        "remove the copy, or read one of them",
                    )
                seen[key] = process.name

    def _meta(self) -> dict[str, Any]:
        processes = self._processes
        meta = _common([process.facts for process in processes])
        meta["files"] = [str(file) for process in processes for file in process.files]
        ignored = [str(file) for process in processes for file in process.ignored]
        if ignored:
            meta["ignored_files"] = ignored
        ranks = sorted({process.rank for process in processes if process.rank is not None})
        if ranks:
            meta |= {"ranks": ranks} if len(ranks) > 1 else {"rank": ranks[0]}
        numbers = set(self.events["process"].drop_nulls().unique())
        numbers |= {process.process for process in processes if process.process is not None}
        if numbers:
            meta["processes"] = sorted(numbers)
        meta |= self._machine()
        stats = _tables([process.stats for process in processes])
        if stats:
            meta["stats"] = stats
        meta |= self._counts()
        return meta

    def _machine(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        agents = [agent for process in self._processes for agent in process.agents]
        distinct = [agent for place, agent in enumerate(agents) if agent not in agents[:place]]
        if distinct:
            found["agents"] = distinct
        names = gpu_names(distinct)
        if names:
            found["gpu"] = ", ".join(names)
        numbering = sorted({process.numbering for process in self._processes if process.numbering})
        if len(numbering) == 1:
            found["device_numbering"] = numbering[0]
        facts = [process.facts for process in self._processes]
        windows = [known["record_window_ns"] for known in facts if "record_window_ns" in known]
        if windows:
            found["record_window_ns"] = (min(start for start, _ in windows), max(end for _, end in windows))
        return found

    def _counts(self) -> dict[str, Any]:
        not_kept = sum((process.not_kept for process in self._processes), Counter())
        kept = counted(self.events["category"])
        dropped = sum((process.dropped for process in self._processes), Counter())
        return {
            "events_total": len(self.events) + not_kept.total() + dropped.total(),
            "events_by_category": dict(sorted((kept + not_kept).items())),
            "not_kept": dict(sorted(not_kept.items())),
            "device_events_without_launch": self._launches.unlaunched,
            "shared_launch_records": self._launches.shared,
            "repairs": {f"dropped records {reason}": count for reason, count in dropped.items()},
            "warnings": [warning for process in self._processes for warning in process.warnings] + self._suspicions(),
        }

    def _suspicions(self) -> list[str]:
        """What makes an otherwise sound run doubtful, whatever the format."""
        import polars as pl

        found = []
        is_kernel = pl.col("kind").is_in(["kernel", "collective"])
        kernels, instant = self.events.select(
            is_kernel.sum().alias("kernels"), (is_kernel & (pl.col("duration") == 0)).sum().alias("instant")
        ).row(0)
        if instant:
            found.append(f"{instant} of {kernels} kernels last 0 ns: their times were not recorded.")
        if self.events["unit"].min() == self.events["unit"].max():
            return found
        spans = self.events.filter(pl.col("kind").is_in(DEVICE_KINDS)).group_by("unit")
        spans = spans.agg(pl.col("start").min(), end=(pl.col("start") + pl.col("duration")).max()).sort("start")
        if len(spans) > 1 and (spans["start"][1:] >= spans["end"].cum_max()[:-1]).any():
            found.append(
                "not all processes overlap in time: they are separate runs, or of nodes whose clocks differ "
                "(times count from the start of each node)."
            )
        return found


def gpu_names(agents: Sequence[dict[str, Any]]) -> list[str]:
    """Distinct names of the GPUs; the architecture (gfx942) where there is no product name."""
    names = [agent.get("product_name") or agent.get("name") for agent in agents if agent.get("type") == "GPU"]
    return list(dict.fromkeys(name for name in names if name))


def _no_events() -> pl.DataFrame:
    """The columns that are always there."""
    import polars as pl

    integers = ("start", "duration", "process", "correlation_id", "unit")
    types = dict.fromkeys(integers, pl.Int64) | dict.fromkeys(("category", "name"), pl.Categorical)
    return pl.DataFrame(schema={**types, "kind": pl.Enum(KINDS)})


def _with_processes_of_guids(events: pl.DataFrame) -> pl.DataFrame:
    """Files that rocpd merged say which process a row belongs to by its guid; kernels have no other mark of it."""
    import polars as pl

    if "guid" not in events.columns:
        return events
    marked = events.filter(pl.col("guid").is_not_null() & pl.col("process").is_not_null())
    known = marked.group_by("unit", "guid").agg(pl.col("process").unique())
    known = known.filter(pl.col("process").list.len() == 1).with_columns(pl.col("process").list.first().alias("own"))
    events = events.join(known.select("unit", "guid", "own"), on=["unit", "guid"], how="left", maintain_order="left")
    unit = pl.struct("unit", "guid").rank("dense").cast(pl.Int64)
    return events.with_columns(pl.coalesce("process", "own").alias("process"), unit.alias("unit")).drop("own", "guid")


def _common(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all processes that state anything state alike."""
    stated = [entries for entries in facts if entries]
    first = stated[0] if stated else {}
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in stated)}


def _tables(stats: Sequence[dict[str, list[pd.DataFrame]]]) -> dict[str, pd.DataFrame]:
    """The tables of all processes, one per subject."""
    found: dict[str, list[pd.DataFrame]] = {}
    for tables in stats:
        for subject, parts in tables.items():
            found.setdefault(subject, []).extend(parts)
    return {subject: pd.concat(parts, ignore_index=True) for subject, parts in sorted(found.items())}
