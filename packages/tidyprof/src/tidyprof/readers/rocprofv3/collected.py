"""Combined contents of all files of one process, for rocprofv3, rocprofv2 and rocprof 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.readers.columns import ColumnTable
from tidyprof.readers.csv_rows import Rows
from tidyprof.readers.rocprofv3.recognition import OutputFile
from tidyprof.readers.rocprofv3.rows import counters_of, records_of
from tidyprof.readers.rocprofv3.statistics import read_statistics
from tidyprof.tables.codes import ABSENT, KIND_CODE, ON_DEVICE, Codes, by_code
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.damage import cut_hip_overlaps, left_out
from tidyprof.tables.launches import link
from tidyprof.tables.profiles import Part, profile_of
from tidyprof.tables.records import Records, joined

BARRIER = "BARRIER"
"""Category of packets that rocprof 1 lists among the kernels, although these packets do no work."""

_LAUNCHING = ("HIP", "HSA")
"""Prefixes of the domains with calls that can launch work."""

_ONLY_STATISTICS = (
    "the files contain only statistics. Totals are in meta['stats'], but single events are unknown."
    " Likely cause: the tables of single events weren't recorded, copied or kept."
)


@dataclass
class Collected(Part):
    """The contents of all files of one process. `path` is the folder and the common prefix of the
    file names.

    - process: number of the process, or None if it is unknown
    - events: the events of each file
    - stats: tables with the columns STATISTICS_COLUMNS, by subject
    - agents: list with a dictionary per CPU and GPU
    - dropped: number of counter values that were left out for each reason
    """

    process: int | None = None
    events: list[Records] = field(default_factory=list)
    stats: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    agents: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def has_records(self) -> bool:
        """True if the process has any records, even if they are damaged."""
        return any(records.total for records in self.events) or bool(self.counters or self.stats)

    def add_events(self, rows: Rows, path: Path, table: ColumnTable, texts: Codes) -> None:
        """Add the events in the rows of a file. Raises ProfileReadError if the file is damaged."""
        if {"agent", "source_agent"} & rows.columns.keys():
            self.facts["device_numbering"] = "index" if rows.counts_gpus else "agent"
        self.warnings += rows.warnings
        self.events.append(records_of(rows, path, table, texts))

    def add_counters(self, rows: Rows, path: Path, texts: Codes) -> None:
        """Add the counters in the rows of a file. Raises ProfileReadError if the file is
        damaged.
        """
        counters, dropped, warnings = counters_of(rows, path, texts)
        self.counters.append(counters)
        self.dropped += dropped
        self.warnings += [*warnings, *rows.warnings]

    def add_statistics(self, file: OutputFile, table: ColumnTable, maximum_bytes: int) -> None:
        """Add a table of statistics. Raises ProfileReadError if the file is damaged."""
        statistics, warnings = read_statistics(file.path, file.header, table, maximum_bytes)
        self.warnings += warnings
        self.stats.setdefault(file.subject, []).append(statistics)

    def warn_without_kernels(self, name: str, no_kernels: str) -> None:
        """Add a warning if nothing ran or was sampled on a device, and counters don't show why."""
        wanted = ON_DEVICE | (np.arange(len(ON_DEVICE)) == KIND_CODE["sample"])
        kinds = [records["kind"] for records in self.events if len(records)]
        if not kinds and self.stats and not self.counters:
            self.warnings.append(f"{name}: {_ONLY_STATISTICS}")
        elif kinds and not any(wanted[kind].any() for kind in kinds):
            self.warnings.append(f"{name}: {no_kernels}")

    def settle_process(self) -> None:
        """Set the process number from the records. Raises ProfileReadError if the records contain
        several process numbers.
        """
        columns = [pd.Series(records.get("process"), dtype="Int64") for records in self.events]
        columns += [table["process"] for table in self.counters if "process" in table]
        found = {int(number) for column in columns for number in column.dropna().unique()}
        named = sorted(found - {ABSENT})
        if len(named) > 1:
            raise ProfileReadError(
                self.path,
                f"the files of one run contain {len(named)} different process numbers, such as"
                f" {named[0]} and {named[1]}",
                "several processes or runs used the same --output-file name and overwrote each"
                " other's files",
                "record again with %pid% in the name, or read each file separately",
            )
        self.process = named[0] if named else self.process
        if self.process is None:
            return
        for records in self.events:
            records["process"] = np.full(len(records), self.process, np.int64)
        self.counters = [table.assign(process=self.process) for table in self.counters]

    def finished(self, texts: Codes) -> Collected:
        """Return the process with all events in `records`. Device work is linked to its calls here,
        because correlation IDs are unique within a process.
        """
        records = self.records = joined(self.events)
        records.dropped = records.dropped + self.dropped
        records["correlation_id"] = records.get("correlation_id")
        is_launching = (text.upper().startswith(_LAUNCHING) for text in texts)
        of_library = by_code(is_launching, records.get("source_category"), False)
        is_call = of_library & (records["kind"] == KIND_CODE["runtime"])
        link(records, is_call)
        self.processes = [] if self.process is None else [self.process]
        self.warnings += left_out(self.path, +Counter({**records.not_kept, BARRIER: 0}))
        self.warnings += cut_hip_overlaps(self.path, records)
        return self


def combined(
    path: Path, processes: Sequence[Collected], texts: Codes, tool: str, origin: Origin | None
) -> Profile:
    """Return the profile of all processes. Raises ProfileReadError if two files contain the same
    events.
    """
    _refuse_copies(path, processes)
    meta = _common_meta(processes) | {"tool": tool}
    return profile_of([process.finished(texts) for process in processes], texts, meta, origin)


def _refuse_copies(path: Path, processes: Iterable[Collected]) -> None:
    """Raise ProfileReadError if two files contain the same events, because these events would count
    twice.
    """
    # Compare only sums, because comparing all events would take as long as reading them.
    seen: dict[tuple[int, ...], Path] = {}
    for process in processes:
        for records in (one for one in process.events if len(one)):
            sums = (int(records[name].sum()) for name in ("start_ns", "duration_ns", "kind"))
            key = (len(records), *sums)
            if key in seen:
                raise ProfileReadError(
                    path,
                    f"the files of {str(seen[key])!r} and {str(process.path)!r} contain the same"
                    " events",
                    "a file was copied into the folder",
                    "remove the copy, or read only one of the files",
                )
            seen[key] = process.path


def _common_meta(processes: Sequence[Collected]) -> dict[str, Any]:
    """Return the entries of `Profile.meta` that describe all processes: the machine and the
    statistics.
    """
    meta: dict[str, Any] = {}
    agents: list[dict[str, Any]] = []
    of_subject: dict[str, list[pd.DataFrame]] = {}
    for process in processes:
        # Dicts aren't hashable, but there are only a few.
        agents += [agent for agent in process.agents if agent not in agents]
        for subject, tables in process.stats.items():
            for table in tables:
                table["rank"] = pd.array([process.rank] * len(table), "Int32")
                table["process"] = pd.array([process.process] * len(table), "Int64")
                of_subject.setdefault(subject, []).append(table)
    if agents:
        meta["agents"] = agents
    gpus = (agent for agent in agents if agent.get("type") == "GPU")
    names = [gpu.get("product_name") or gpu.get("name") for gpu in gpus]
    if any(names):
        meta["gpu"] = ", ".join(dict.fromkeys(filter(None, names)))
    if of_subject:
        meta["stats"] = {
            subject: pd.concat(tables, ignore_index=True)
            for subject, tables in sorted(of_subject.items())
        }
    return meta
