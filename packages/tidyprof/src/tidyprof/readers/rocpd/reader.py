"""Reader for rocpd databases. These are SQLite files (`*_results.db`) from rocprofv3 and
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
    """The data of one process.

    - run: identifier (GUID) of the profiler run
    - device_events: number of events on GPUs
    """

    part: Part
    run: str
    device_events: int


def read_processes(path: Path, texts: Codes, maximum_bytes: int) -> list[RocpdProcess]:
    """Read the data of every process in one file."""
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
            "the database has no events",
            "the program ended before it did anything, or no kind of event was selected",
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
    doubts = tables.doubts()  # must precede the search for tables that refer to events
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
    """Move the thread of device work to `launch_thread`. If the launching call is known, `link`
    later replaces this value.
    """
    on_device = ON_DEVICE[records["kind"]]
    records["launch_thread"] = np.where(on_device, records["thread"], ABSENT)
    records["thread"] = np.where(on_device, ABSENT, records["thread"])


def _counter_values(tables: ProcessTables) -> pd.DataFrame:
    """Return counter values per event. As in rocpd's own view, each value is the sum over all
    instances of a hardware block.
    """
    if not tables.has("pmc_event", "event_id", "pmc_id", "value"):
        return pd.DataFrame({"event_id": [], "pmc_id": [], "value": []})
    # Rows with a sample_id (schema 3.0.3) are periodic hardware samples. rocpd's view also leaves
    # them out.
    found = tables.integers("pmc_event", ("event_id", "pmc_id"), ("sample_id",))
    table = pd.DataFrame(
        found | {"value": tables.database.reals(tables.name("pmc_event"), "value")}
    )
    if "sample_id" in found:
        table = table[found["sample_id"] == ABSENT]
    table = table[np.isfinite(table["value"])]
    return table.groupby(["event_id", "pmc_id"], sort=False, as_index=False)["value"].sum()


class _Pmc(NamedTuple):
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
    """Return counter samples.

    The timestamp of a sample is the start time of the dispatch or call. Without a dispatch or call,
    it is the time in the database.
    """
    if not len(values):
        return pd.DataFrame()
    described = {
        number: _Pmc(name, unit, agent)
        for number, name, unit, agent in tables.rows("info_pmc", "id", "name", "units", "agent_id")
    }
    event = values["event_id"].to_numpy(np.int64)
    kernel, call = first_equal(kernels["event_id"], event), first_equal(calls["event_id"], event)
    # Later lines replace the time by a more reliable one.
    time = taken(sample_times[1], first_equal(sample_times[0], event))
    time = np.where(call >= 0, taken(calls["start_ns"], call), time)
    time = np.where(kernel >= 0, taken(kernels["start_ns"], kernel), time)
    pmc = [described.get(number, _Pmc()) for number in values["pmc_id"].tolist()]
    agents = [ABSENT if one.agent is None else one.agent for one in pmc]
    agent = mapped(np.array(agents, np.int64), machine.devices)
    # The last label is for counters without a kernel (code -1).
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
    what = "copies but no kernels" if len(copies) else "no GPU events"
    return [
        f"{path.name}: the database has {what}. Likely cause: kernels were not recorded because"
        " --kernel-trace or --runtime-trace was missing, the program didn't use a GPU, or another"
        " profiler received the records."
    ]


@guarded
def read_rocpd(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a rocpd database (schema version 3), with or without its views.

    - path: path to a .db file, or to a folder with one file per process. The folder may contain a
      subfolder for each host.
    - rank: see `tidyprof.read`.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    The rank comes from the process's environment in the database. If the environment contains no
    rank, the rank comes from the name of the file or folder.

    The times in `events` are in nanoseconds on the node's monotonic clock. These columns of
    `tables.contract` have a special meaning:

    - device: number of the GPU among the node's GPUs
    - source_category: category in the file, such as `KERNEL_DISPATCH` or `HIP_RUNTIME_API_EXT`
    - correlation_id: the tool's own ID (`stack_id`), which is unique within a process
    - grid: number of work-items
    - source_device: source of a copy, or `<NA>` if the source is the host
    - destination_device: target of a copy, or `<NA>` if the target is the host
    - memory_device: device of an allocation (kind `runtime`, with names such as `ALLOC` and `FREE`)

    For copies, `device` is the target GPU, or the source if the target is the host. A roctx range
    is an annotation that is named after its message. Calls that start and end in the same
    nanosecond become samples. These samples are named after their category, because the file
    contains no other name.

    `counters` contains hardware counters, summed over the instances of a block, and the samples
    from rocprofiler-systems.

    `meta` contains the common entries and these, if known:

    - agents: the GPUs
    - gpu_arch: GPU architecture
    - clock: name of the clock
    - device_numbering: always `index`

    Raises ProfileReadError if a file can't be read.
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
        # Helper processes, such as data loader workers, don't use a GPU.
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
                f"the folder contains the same profile {count} times ({names})",
                "a file was copied into the folder",
                "keep each file once",
            )
