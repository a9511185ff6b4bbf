"""Reader for rocpd databases: the SQLite files (`*_results.db`) of rocprofv3 and
rocprofiler-systems in ROCm 7.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from tidyprof.errors import FOREIGN, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.io.sqlite import database_files, open_database
from tidyprof.readers.rocpd.events import (
    read_allocations,
    read_calls,
    read_copies,
    read_events,
    read_kernels,
    read_samples,
)
from tidyprof.readers.rocpd.recognition import PATTERNS, is_rocpd
from tidyprof.readers.rocpd.tables import Machine, ProcessTables, process_suffixes, read_machine
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    ON_DEVICE,
    Codes,
    first_equal,
    mapped,
    nullable,
    taken,
)
from tidyprof.tables.contract import MARK, Origin, Profile, stated_origin
from tidyprof.tables.damage import cut_hip_overlaps
from tidyprof.tables.launches import link
from tidyprof.tables.profiles import (
    Part,
    profile_of,
    rank_in_name,
    read_recorded,
    refuse_mixed_ranks,
    selected_rank,
)
from tidyprof.tables.records import Records, joined


@dataclass
class RocpdProcess:
    """What one process recorded.

    run           -- the identifier (GUID) of its recording.
    device_events -- how many of its events ran on GPUs.
    """

    part: Part
    run: str
    device_events: int


def read_processes(path: Path, texts: Codes, maximum_bytes: int) -> list[RocpdProcess]:
    """Read every process in one file; raises ProfileReadError where it is no sound rocpd
    database.
    """
    with open_database(path, maximum_bytes) as database:
        suffixes = process_suffixes(database)
        found = [ProcessTables(database, suffix) for suffix in suffixes]
        versions = [tables.require() for tables in found]
        processes = [
            _read(tables, version, texts) for tables, version in zip(found, versions, strict=True)
        ]
    if not any(process.part.records.total for process in processes):
        raise NothingRecordedError(
            path,
            "no event of any kind in it",
            "the profiled program ended before it did anything, or nothing was asked for",
            "record with rocprofv3 --runtime-trace",
        )
    return processes


def _read(tables: ProcessTables, version: str, texts: Codes) -> RocpdProcess:
    machine = read_machine(tables)
    events = read_events(tables, texts)
    calls = read_calls(tables, machine, events, texts)
    kernels = read_kernels(tables, machine, events, texts)
    copies = read_copies(tables, machine, events, texts)
    allocations = read_allocations(tables, machine, events, texts)
    values = _counter_values(tables)
    samples, sample_times = read_samples(
        tables, machine, events, texts, values["event_id"].unique()
    )
    path = tables.database.path
    stated = dict(tables.rows("metadata", "tag", "value"))
    facts = {"tool": "rocpd", "tool_version": f"schema version {version}"} | machine.facts
    if origin := stated_origin(stated.get(MARK)):
        facts["origin"] = origin
    counters = _counters(tables, machine, values, kernels, calls, sample_times, texts)
    records = joined([kernels, copies, calls, allocations, samples])
    is_call = np.zeros(len(records), bool)
    first = len(kernels) + len(copies)
    is_call[first : first + len(calls)] = calls["kind"] == KIND_CODE["runtime"]
    _note_launching_thread(records)
    launches = link(records, is_call)
    overlaps = cut_hip_overlaps(path, records)
    doubts = tables.doubts()  # before tables of any name are looked at for what refers to events
    part = Part(
        path,
        records,
        [counters],
        facts,
        rank=machine.rank,
        processes=list(machine.processes.values()),
        shared_launches=launches.shared,
        warnings=[
            *tables.warnings_of_losses(),
            *_warnings(path, kernels, copies),
            *overlaps,
            *doubts,
        ],
    )
    return RocpdProcess(part, str(stated.get("guid", "")), len(kernels) + len(copies))


def _note_launching_thread(records: Records) -> None:
    """Take the thread that the file states for work on a device as the launching thread; `link`
    replaces it where a call is known.
    """
    on_device = ON_DEVICE[records["kind"]]
    records["launch_thread"] = np.where(on_device, records["thread"], ABSENT)
    records["thread"] = np.where(on_device, ABSENT, records["thread"])


def _counter_values(tables: ProcessTables) -> pd.DataFrame:
    """Values of counters by event, added up over the instances of the hardware block, as a view of
    rocpd does.
    """
    if not tables.has("pmc_event", "event_id", "pmc_id", "value"):
        return pd.DataFrame({"event_id": [], "pmc_id": [], "value": []})
    # Rows with a sample_id (schema 3.0.3) are periodic samples of the hardware, which that view
    # leaves out, too.
    found = tables.integers("pmc_event", ("event_id", "pmc_id"), ("sample_id",))
    table = pd.DataFrame(
        found | {"value": tables.database.reals(tables.name("pmc_event"), "value")}
    )
    if "sample_id" in found:
        table = table[found["sample_id"] == ABSENT]
    table = table[np.isfinite(table["value"])]
    return table.groupby(["event_id", "pmc_id"], sort=False, as_index=False)["value"].sum()


class _Pmc(NamedTuple):
    """A counter as rocpd_info_pmc describes it; agent is the identifier of its agent."""

    name: str | None = None
    unit: str | None = None
    agent: int | None = None


def _counters(
    tables: ProcessTables,
    machine: Machine,
    values: pd.DataFrame,
    kernels: Records,
    calls: Records,
    sample_times: np.ndarray,
    texts: Codes,
) -> pd.DataFrame:
    """Samples of counters: those of a dispatch or a call at its start, others at the time of the
    sample.
    """
    if not len(values):
        return pd.DataFrame()
    described = {
        number: _Pmc(name, unit, agent)
        for number, name, unit, agent in tables.rows("info_pmc", "id", "name", "units", "agent_id")
    }
    event = values["event_id"].to_numpy(np.int64)
    kernel, call = first_equal(kernels["event_id"], event), first_equal(calls["event_id"], event)
    # From the least to the most certain time of the event.
    time = taken(sample_times[1], first_equal(sample_times[0], event))
    time = np.where(call >= 0, taken(calls["start_ns"], call), time)
    time = np.where(kernel >= 0, taken(kernels["start_ns"], kernel), time)
    pmc = [described.get(number, _Pmc()) for number in values["pmc_id"].tolist()]
    agents = [ABSENT if one.agent is None else one.agent for one in pmc]
    agent = mapped(np.array(agents, np.int64), machine.devices)
    # The last label answers the code -1 of counters without a kernel.
    labels = [*texts, None]
    table = pd.DataFrame(
        {
            "time_ns": time,
            "device": nullable(
                np.where(kernel >= 0, taken(kernels["device"], kernel), agent), "Int32"
            ),
            "name": [one.name for one in pmc],
            "value": values["value"],
            "unit": [one.unit or None for one in pmc],
            "dispatch_id": nullable(taken(kernels.get("dispatch_id"), kernel), "Int64"),
            "correlation_id": nullable(taken(kernels["correlation_id"], kernel), "Int64"),
            "kernel": [labels[code] for code in taken(kernels["name"], kernel, -1).tolist()],
            "duration_ns": nullable(taken(kernels["duration_ns"], kernel), "Int64"),
        }
    )
    return table[(time != ABSENT) & table["name"].notna()]


def _warnings(path: Path, kernels: Records, copies: Records) -> list[str]:
    if len(kernels):
        return []
    what = "copies but no kernel" if len(copies) else "no event on a GPU"
    return [
        f"{path.name}: {what}. Likely cause: kernels were not asked for (--kernel-trace or"
        " --runtime-trace), the program did not use a GPU, or another profiler got its records."
    ]


@guarded
def read_rocpd(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a rocpd database, schema version 3, with or without its views.

    path -- a .db file, or a folder with one file per process (also one level below, in a folder per
            host).
    rank, origin, maximum_bytes -- as of `tidyprof.read`.

    The rank is the one in the process's environment, which the database holds, or else in the name
    of the file or of its folder. `events` (times in ns of the node's monotonic clock) has the
    columns of `tables.contract`. Here
      device           counts the GPUs of the node
      source_category  category in the file (`KERNEL_DISPATCH`, `HIP_RUNTIME_API_EXT`, ...)
      correlation_id   the tool's own (`stack_id`), unique within a process
      grid             counts work-items
      source_device, destination_device  of copies, <NA> for the host; `device` is the target or
        else the source
      memory_device    of allocations (kind `runtime`, named `ALLOC`, `FREE`, ...)
    Ranges of roctx are annotations named by their text. Calls that began and ended in the same
    nanosecond are samples, for which the file keeps no name but that of their category.

    `counters` has hardware counters, added up over the instances of a block, and the samples that
    rocprofiler-systems takes.

    `meta` has, besides the common entries and where stated: `agents` (the GPUs), `gpu_arch`,
    `clock`, `device_numbering` (`index`).

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    files, ignored = database_files(path, is_rocpd, PATTERNS, "rocpd databases")
    texts = Codes()
    of_files, nothing = read_recorded(
        files, lambda file: read_processes(file, texts, maximum_bytes)
    )
    read = [process for processes in of_files for process in processes]
    _refuse_same_run(path, read)
    for process in read:
        if process.part.rank is None:
            process.part.rank = rank_in_name(process.part.path, path)
    on_gpu = [process for process in read if process.device_events]
    if len(read) > 1:
        refuse_mixed_ranks(
            path, [(process.part.path.name, process.part.rank) for process in on_gpu]
        )
        # Helper processes, such as those that load data, use no GPU.
        for process in read:
            process.part.warnings = (
                process.part.warnings if process.device_events or not on_gpu else []
            )
    parts = selected_rank(path, [process.part for process in read], rank)
    parts[0].ignored = nothing | dict.fromkeys(ignored, FOREIGN)
    meta = {"clock": "monotonic clock of the node", "device_numbering": "index"}
    return profile_of(parts, texts, meta, origin)


def _refuse_same_run(path: Path, processes: list[RocpdProcess]) -> None:
    for run, count in Counter(process.run for process in processes if process.run).items():
        if count > 1:
            names = ", ".join(
                repr(process.part.path.name) for process in processes if process.run == run
            )
            raise ProfileReadError(
                path,
                f"the same recording {count} times ({names})",
                "a copy of a file in the same folder",
                "keep each file once",
            )
