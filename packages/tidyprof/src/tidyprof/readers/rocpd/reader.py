"""Reader for rocpd databases. These are SQLite files (`*_results.db`) from rocprofv3 and
rocprofiler-systems in ROCm 7.

The SQL files in this folder are the queries, and `schema.toml` lists the tables that they use.
"""

from __future__ import annotations

import re
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tidyprof.errors import NothingRecordedError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.io.sqlite import NAMELESS, Database, open_database
from tidyprof.readers.databases import RUN, Tables, read_databases, samples_of, schema_of
from tidyprof.readers.rocpd.recognition import MARKING_TABLE, PATTERNS, is_rocpd
from tidyprof.tables.codes import (
    ABSENT,
    KIND_CODE,
    NO_TEXT,
    Codes,
    by_code,
    first_equal,
    refined,
    taken,
)
from tidyprof.tables.contract import MARK, Origin, Profile, stated_origin
from tidyprof.tables.damage import cut_hip_overlaps, without_damage
from tidyprof.tables.launches import link
from tidyprof.tables.profiles import (
    Part,
)
from tidyprof.tables.records import Records, joined

SCHEMA = schema_of("rocpd")
KIND_OF_QUERY = {
    "kernels": "kernel",
    "copies": "copy",
    "regions": "runtime",
    "allocations": "runtime",
    "samples": "sample",
}
"""Kind of the events that each query returns. Regions are ranges or calls, based on their category.
"""

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables that contain a process's rank, in order of preference. They are set by
torchrun, Open MPI, PMIx, PMI and Slurm.
"""

_CALL = re.compile(
    r"(?!(rocm_)?marker).*(api|rccl|nccl|ompt|kfd|mpi|allocation|scratch)", re.IGNORECASE
)
_LOST = "rows were deleted or were never written"
_SUFFIX = re.compile(
    rf"{MARKING_TABLE}(|_[0-9a-fA-F]{{8}}(?:_[0-9a-fA-F]{{4}}){{3}}_[0-9a-fA-F]{{12}})"
)


def process_suffixes(database: Database) -> list[str]:
    """Return the suffixes of the table names, one per process in the file. Raises ProfileReadError
    if the file contains no process.
    """
    found = [match[1] for name in database.tables if (match := _SUFFIX.fullmatch(name))]
    if not found:
        database.require(MARKING_TABLE, ())
    return sorted(found)


def _read_file(path: Path, texts: Codes, maximum_bytes: int) -> list[Part]:
    """Read the data of every process in one file."""
    with open_database(path, maximum_bytes) as database:
        suffixes = process_suffixes(database)
        parts = [_read(Tables(database, SCHEMA, suffix), texts) for suffix in suffixes]
    if not any(part.records.total for part in parts):
        raise NothingRecordedError(
            path,
            "the database has no events",
            "the program ended before it did anything, or no kind of event was selected",
            "record with rocprofv3 --runtime-trace",
        )
    return parts


def _read(tables: Tables, texts: Codes) -> Part:
    path, stated = tables.database.path, tables.metadata()
    facts = {"tool": "rocpd", "tool_version": f"schema version {stated['schema_version']}"}
    facts |= _machine(tables) | {RUN: stated.get("guid")}
    if origin := stated_origin(stated.get(MARK)):
        facts["origin"] = origin
    values = tables.columns("counters", texts)
    found = {query: _read_events(tables, query, texts) for query in KIND_OF_QUERY}
    samples = found["samples"]
    moments = {name: samples[name] for name in ("event_id", "start_ns")}
    samples.keep(~np.isin(samples["event_id"], values["event_id"]))
    for records in found.values():
        without_damage(path, records, {NAMELESS: records["name"] == NO_TEXT})
        records["kind"] = refined(records["kind"], records["name"], texts)
    counters, lost = _counters(values, found, moments, texts)
    records = joined([*found.values()])
    records.dropped += lost
    is_call = np.concatenate(
        [
            (part["kind"] == KIND_CODE["runtime"]) & (query == "regions")
            for query, part in found.items()
        ]
    )
    link(records, is_call)
    pids, ranks = _processes(tables)
    return Part(
        path,
        records,
        [counters],
        facts,
        # A merged file can contain several ranks. In that case, the rank is unknown.
        rank=ranks.pop() if len(ranks) == 1 else None,
        processes=pids,
        warnings=[
            *tables.losses(_LOST),
            *_warnings(path, found["kernels"], found["copies"]),
            *cut_hip_overlaps(path, records),
            *tables.doubts(),
        ],
    )


def _read_events(tables: Tables, query: str, texts: Codes) -> Records:
    """Return the events of a query, including damaged ones."""
    columns = tables.columns(query, texts)
    rows = len(columns["start_ns"])
    columns["kind"] = np.full(rows, KIND_CODE[KIND_OF_QUERY[query]], np.int8)
    if query == "regions":
        is_call = by_code(
            [bool(_CALL.match(text)) for text in texts], columns["source_category"], False
        )
        columns["kind"][~is_call] = KIND_CODE["annotation"]
    if query == "kernels":
        symbols = tables.columns("symbols", texts)
        symbol = first_equal(symbols.pop("id"), columns.pop("kernel_id"))
        columns["name"] = taken(symbols.pop("name"), symbol, NO_TEXT)
        columns |= {name: taken(values, symbol) for name, values in symbols.items()}
    if "message_text" in columns:
        message = columns.pop("message_text")
        columns["name"] = np.where(message == NO_TEXT, columns["name"], message)
    return Records(columns)


def _counters(
    values: dict[str, np.ndarray],
    found: dict[str, Records],
    moments: dict[str, np.ndarray],
    texts: Codes,
) -> tuple[pd.DataFrame, Counter[str]]:
    """Return counter samples, and the number of unusable ones.

    The time of a sample is the start of its dispatch or call, or the time in the database.
    """
    event = values["event_id"]
    kernels, regions = found["kernels"], found["regions"]
    kernel = first_equal(kernels["event_id"], event)
    # Later lines replace the time by a more reliable one.
    time = taken(moments["start_ns"], first_equal(moments["event_id"], event))
    for records in (regions, kernels):
        row = first_equal(records["event_id"], event)
        time = np.where(row >= 0, taken(records["start_ns"], row), time)
    of_kernel = {
        name: taken(kernels[name], kernel)
        for name in ("dispatch_id", "correlation_id", "duration_ns")
    }
    of_kernel["kernel"] = taken(kernels["name"], kernel, NO_TEXT)
    device = np.where(kernel >= 0, taken(kernels["device"], kernel), values["device"])
    is_timed = time != ABSENT
    columns = values | of_kernel | {"time_ns": time, "device": device}
    return samples_of({name: column[is_timed] for name, column in columns.items()}, texts)


def _machine(tables: Tables) -> dict[str, Any]:
    """Return the `Profile.meta` entries about the GPUs and the host."""
    gpus = "FROM rocpd_info_agent WHERE type = 'GPU'"
    queries = {
        "gpu": f"SELECT DISTINCT product_name {gpus}",
        "gpu_arch": f"SELECT DISTINCT name {gpus}",
        "host": "SELECT DISTINCT hostname FROM rocpd_info_node",
    }
    found = {
        key: [name for (name,) in tables.database.rows(query)] for key, query in queries.items()
    }
    named = {
        key: ", ".join(name for name in names if isinstance(name, str) and name)
        for key, names in found.items()
    }
    return {key: text for key, text in named.items() if text}


def _processes(tables: Tables) -> tuple[list[int], set[int]]:
    """Return the process numbers, and the ranks in the processes' environments."""
    rows = tables.database.rows("SELECT pid, environment FROM rocpd_info_process")
    ranks = {rank for _, environment in rows if (rank := _rank(environment)) is not None}
    return [pid for pid, _ in rows if isinstance(pid, int)], ranks


def _rank(environment: Any) -> int | None:
    """Return the rank from a process's environment (JSON). Slurm's rank is ignored if Slurm started
    only one process.
    """
    try:
        variables = msgspec.json.decode(environment, type=dict[str, str])
    except (TypeError, msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if variables.get("SLURM_STEP_NUM_TASKS", variables.get("SLURM_NTASKS", "1")) == "1":
        variables.pop("SLURM_PROCID", None)
    stated = (variables[name] for name in RANK_VARIABLES if name in variables)
    return next((int(value) for value in stated if re.fullmatch("[0-9]{1,9}", value)), None)


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

    - gpu_arch: GPU architecture
    - clock: name of the clock
    - device_numbering: always `index`

    Raises ProfileReadError if a file can't be read.
    """
    return read_databases(
        Path(path),
        is_rocpd,
        PATTERNS,
        "rocpd databases",
        lambda file, texts: _read_file(file, texts, maximum_bytes),
        rank,
        {"clock": "monotonic clock of the node", "device_numbering": "index"},
        origin,
    )
