"""One process of a rocpd database as blocks of events, with what it says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.sqlite import open_database
from tidyprof.readers.rocpd.events import (
    read_allocations,
    read_calls,
    read_copies,
    read_events,
    read_kernels,
    read_samples,
)
from tidyprof.readers.rocpd.tables import Machine, ProcessTables, process_suffixes, read_machine
from tidyprof.tables.codes import ABSENT, KIND_CODE, ON_DEVICE, Codes, first_equal, mapped, nullable, taken
from tidyprof.tables.contract import MARK, stated_origin
from tidyprof.tables.launches import link
from tidyprof.tables.profiles import Part
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
    """Read every process in one file; raises ProfileReadError where it is no sound rocpd database."""
    with open_database(path, maximum_bytes) as database:
        suffixes = process_suffixes(database)
        found = [ProcessTables(database, suffix) for suffix in suffixes]
        versions = [tables.require() for tables in found]
        processes = [_read(tables, version, texts) for tables, version in zip(found, versions, strict=True)]
    if not any(process.part.records.total for process in processes):
        raise ProfileReadError(
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
    samples, sample_times = read_samples(tables, machine, events, texts, values["event_id"].unique())
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
    part = Part(
        path,
        records,
        [counters],
        facts,
        rank=machine.rank,
        processes=list(machine.processes.values()),
        shared_launches=launches.shared,
        warnings=_warnings(path, kernels, copies) + tables.doubts(),
    )
    return RocpdProcess(part, str(stated.get("guid", "")), len(kernels) + len(copies))


def _note_launching_thread(records: Records) -> None:
    """The thread that the file states of work on a device is the one that launched it, unless a call says more."""
    on_device = ON_DEVICE[records["kind"]]
    records["launch_thread"] = np.where(on_device, records["thread"], ABSENT)
    records["thread"] = np.where(on_device, ABSENT, records["thread"])


def _counter_values(tables: ProcessTables) -> pd.DataFrame:
    """Values of counters by event: added up over the instances of the hardware block, as rocpd's own view does."""
    if not tables.has("pmc_event", "event_id", "pmc_id", "value"):
        return pd.DataFrame({"event_id": [], "pmc_id": [], "value": []})
    # Rows with a sample_id (schema 3.0.3) are periodic samples of the hardware, which that view leaves out, too.
    found = tables.integers("pmc_event", ("event_id", "pmc_id"), ("sample_id",))
    table = pd.DataFrame(found | {"value": tables.database.reals(tables.name("pmc_event"), "value")})
    if "sample_id" in found:
        table = table[found["sample_id"] == ABSENT]
    table = table[np.isfinite(table["value"])]
    return table.groupby(["event_id", "pmc_id"], sort=False, as_index=False)["value"].sum()


def _counters(
    tables: ProcessTables,
    machine: Machine,
    values: pd.DataFrame,
    kernels: Records,
    calls: Records,
    sample_times: np.ndarray,
    texts: Codes,
) -> pd.DataFrame:
    """Samples of counters: of a dispatch at its start, of a call at its start, else at the time of the sample."""
    if not len(values):
        return pd.DataFrame()
    described = {row[0]: row[1:] for row in tables.rows("info_pmc", "id", "name", "units", "agent_id")}
    event = values["event_id"].to_numpy(np.int64)
    kernel, call = first_equal(kernels["event_id"], event), first_equal(calls["event_id"], event)
    time = taken(sample_times[1], first_equal(sample_times[0], event))
    time = np.where(call >= 0, taken(calls["start_ns"], call), time)
    time = np.where(kernel >= 0, taken(kernels["start_ns"], kernel), time)
    pmc = [described.get(number, (None, None, None)) for number in values["pmc_id"].tolist()]
    agent = mapped(np.array([ABSENT if row[2] is None else row[2] for row in pmc], np.int64), machine.devices)
    labels = [*texts, None]
    table = pd.DataFrame(
        {
            "time_ns": time,
            "device": nullable(np.where(kernel >= 0, taken(kernels["device"], kernel), agent), "Int32"),
            "name": [row[0] for row in pmc],
            "value": values["value"],
            "unit": [row[1] or None for row in pmc],
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
        f"{path.name}: {what}. Likely cause: kernels were not asked for (--kernel-trace or --runtime-trace), the "
        "program did not use a GPU, or another profiler got its records."
    ]
