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
from tidyprof.tables.codes import ABSENT, KIND_CODE, ON_DEVICE, Codes, by_code, mapped
from tidyprof.tables.damage import cut_hip_overlaps, left_out
from tidyprof.tables.launches import link
from tidyprof.tables.profiles import Part
from tidyprof.tables.records import Records, joined

BARRIER = "BARRIER"
"""Category of packets that rocprof 1 lists among the kernels, although these packets do no work."""

_LAUNCHING = ("HIP", "HSA")
"""Prefixes of the domains with calls that can launch work."""


@dataclass
class Collected:
    """The contents of all files of one process.

    - name: folder and common prefix of the file names, used in messages
    - rank: number of the rank, or None if it is unknown
    - process: number of the process, or None if it is unknown
    - stats: tables with the columns STATISTICS_COLUMNS, by subject
    - agents: list with a dictionary per CPU and GPU
    - facts: additional entries for `Profile.meta`
    - numbering: meaning of the numbers in `device`, which `read_rocprofv3` explains
    - dropped: number of counter values that were left out for each reason
    """

    name: Path
    events: list[Records] = field(default_factory=list)
    counters: list[pd.DataFrame] = field(default_factory=list)
    rank: int | None = None
    process: int | None = None
    files: list[Path] = field(default_factory=list)
    ignored: dict[Path, str] = field(default_factory=dict)
    stats: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    agents: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    numbering: str | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)

    @property
    def has_device_work(self) -> bool:
        """True if anything ran or was sampled on a device."""
        wanted = ON_DEVICE | (np.arange(len(ON_DEVICE)) == KIND_CODE["sample"])
        return any(wanted[records["kind"]].any() for records in self.events)

    @property
    def has_records(self) -> bool:
        """True if the process has any records, even if they are damaged."""
        return any(records.total for records in self.events) or bool(self.counters or self.stats)

    def settle_process(self) -> None:
        """Set the process number from the records. Raises ProfileReadError if the records contain
        several process numbers.
        """
        tables = [records.columns for records in self.events] + self.counters
        columns = [table["process"] for table in tables if "process" in table]
        numbers = {number for column in columns for number in np.asarray(pd.unique(column))}
        named = sorted({int(one) for one in numbers if not pd.isna(one) and one != ABSENT})
        # In files that rocpd merged, the guid identifies the process of each row.
        if any({"guid", "process"} <= set(records.columns) for records in self.events):
            return
        if len(named) > 1:
            raise ProfileReadError(
                self.name,
                f"the files of one run contain {len(named)} different process numbers, such as"
                f" {named[0]} and {named[1]}",
                "several processes or runs used the same --output-file name and overwrote each"
                " other's files",
                "record again with %pid% in the name, or read each file separately",
            )
        self.process = named[0] if named else self.process
        if self.process is None:
            return
        for table in (table for tables in self.stats.values() for table in tables):
            table["process"] = table["process"].fillna(self.process)
        for records in self.events:
            records["process"] = np.full(len(records), self.process, np.int64)
        self.counters = [table.assign(process=self.process) for table in self.counters]

    def part(self, texts: Codes) -> Part:
        """Return the process as a part of a profile. Device work is linked to its calls here,
        because correlation IDs are unique within a process.
        """
        records = joined(self.events)
        records.dropped = records.dropped + self.dropped
        group = _processes_of_guids(records) if "guid" in records else None
        records.columns.setdefault("correlation_id", np.full(len(records), ABSENT, np.int64))
        category = records.get("source_category")
        of_library = by_code(
            (text.upper().startswith(_LAUNCHING) for text in texts), category, False
        )
        is_call = of_library & (records["kind"] == KIND_CODE["runtime"])
        launches = link(records, is_call, group)
        unread = Counter({**records.not_kept, BARRIER: 0})
        warnings = [
            *self.warnings,
            *left_out(self.name, +unread),
            *cut_hip_overlaps(self.name, records),
        ]
        return Part(
            path=self.name,
            records=records,
            counters=self.counters,
            facts=self.facts,
            rank=self.rank,
            files=self.files,
            ignored=self.ignored,
            processes=[] if self.process is None else [self.process],
            shared_launches=launches.shared,
            warnings=warnings,
        )


def _processes_of_guids(records: Records) -> np.ndarray:
    """Return the GUIDs of the rows in a file that rocpd merged. In such files, a GUID identifies
    each row's process, and correlation IDs are unique within a GUID.

    Kernels have no process number, so the function copies it from other rows with the same GUID.
    """
    guid, process = records["guid"], records.get("process")
    known = (guid != ABSENT) & (process != ABSENT)
    pairs = pd.DataFrame({"guid": guid[known], "process": process[known]}).drop_duplicates()
    pairs = pairs.drop_duplicates("guid", keep=False)
    of_guid = dict(zip(pairs["guid"].tolist(), pairs["process"].tolist(), strict=True))
    records["process"] = np.where(process == ABSENT, mapped(guid, of_guid), process)
    return guid


def refuse_copies(path: Path, processes: Iterable[Collected]) -> None:
    """Raise ProfileReadError if two files contain the same events, because these events would count
    twice.
    """
    # Compare only summaries, because comparing all events would take as long as reading them.
    seen: dict[tuple[Any, ...], Path] = {}
    for process in processes:
        for records in process.events:
            if not len(records):
                continue
            start, duration = records["start_ns"], records["duration_ns"]
            category = records["source_category"][0]
            key = (len(start), category, start.min(), start.max(), start[0], int(duration.sum()))
            if key in seen:
                raise ProfileReadError(
                    path,
                    f"the files of {str(seen[key])!r} and {str(process.name)!r} contain the same"
                    " events",
                    "a file was copied into the folder",
                    "remove the copy, or read only one of the files",
                )
            seen[key] = process.name


def common_meta(processes: Sequence[Collected]) -> dict[str, Any]:
    """Return the entries of `Profile.meta` that describe all processes: the machine, the recorded
    time and the statistics.
    """
    meta: dict[str, Any] = {}
    agents = [agent for process in processes for agent in process.agents]
    # Dicts aren't hashable, but there are only a few.
    distinct = [agent for number, agent in enumerate(agents) if agent not in agents[:number]]
    if distinct:
        meta["agents"] = distinct
    names = gpu_names(distinct)
    if names:
        meta["gpu"] = ", ".join(names)
    numbering = {process.numbering for process in processes if process.numbering}
    if len(numbering) == 1:
        meta["device_numbering"] = numbering.pop()
    windows = [
        process.facts["record_window_ns"]
        for process in processes
        if "record_window_ns" in process.facts
    ]
    if windows:
        meta["record_window_ns"] = (
            min(start for start, _ in windows),
            max(end for _, end in windows),
        )
    stats: dict[str, list[pd.DataFrame]] = {}
    for process in processes:
        for subject, tables in process.stats.items():
            stats.setdefault(subject, []).extend(tables)
    if stats:
        meta["stats"] = {
            subject: pd.concat(parts, ignore_index=True) for subject, parts in sorted(stats.items())
        }
    return meta


def gpu_names(agents: Sequence[dict[str, Any]]) -> list[str]:
    """Return the distinct GPU names. If there is no product name, return the architecture, such as
    gfx942.
    """
    names = [
        agent.get("product_name") or agent.get("name")
        for agent in agents
        if agent.get("type") == "GPU"
    ]
    return list(dict.fromkeys(name for name in names if name))
