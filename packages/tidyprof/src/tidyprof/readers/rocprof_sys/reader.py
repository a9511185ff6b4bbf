"""Reader for output from rocprof-sys (ROCm Systems Profiler) and its predecessor, omnitrace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from tidyprof.errors import CUT_SHORT, SEVERAL_NUMBERS, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, MAXIMUM_BYTES, ByteStream, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.perfetto.decoder import text
from tidyprof.readers.perfetto.reader import (
    data_loss,
    read_traces,
    refuse_repeated,
)
from tidyprof.readers.perfetto.recognition import trace_files
from tidyprof.readers.rocprof_sys.recognition import content_of, files_of_folder, runs_below
from tidyprof.readers.rocprof_sys.timemory_tables import Table, read_tables
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import Part, common_facts, profile_of, rank_in_name, selected_rank

_FACTS = {
    "tool_version": ("ROCPROFSYS_VERSION", "OMNITRACE_VERSION"),
    "rocm": ("ROCPROFSYS_ROCM_VERSION", "OMNITRACE_ROCM_VERSION", "OMNITRACE_HIP_VERSION"),
    "cpu": ("CPU_MODEL",),
}
"""Names of the `Profile.meta` entries in rocprof-sys's metadata files."""


@guarded
def read_rocprof_sys(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read the Perfetto traces and profile tables from rocprof-sys.

    - path: path to an output folder, such as `rocprofsys-python3-output/2025-08-09_14.03`. The path
      can also be a single trace or table, or a parent folder that contains only one run.
    - rank: the only rank to read. If the files and their names contain no rank, this rank is
      assigned.
    - origin: origin of the profile, or None if it is unknown.
    - maximum_bytes: see `read_perfetto`.

    `events` and `counters` contain the same tables as in `read_perfetto`, for all processes.
    Without a trace, these tables are empty. The rank is in a file name such as `rank0-...`.

    `meta` contains the entries of `read_perfetto` and these, if known:

    - tool_version: version of rocprof-sys
    - rocm: version of ROCm
    - cpu: model of the CPU
    - ignored_files: tables with several numbers per label, such as counter vectors
    - tables: DataFrame for each metric, such as `wall_clock`, `sampling_wall_clock`,
      `sampling_percent` or `trip_count`

    A table has one row per label and position in the call tree. The rows are in file order, so
    callees come after their caller. These are the columns:

    - rank: number of the rank (Int32)
    - process: number of the process (Int64)
    - thread: the tool's own thread number, starting with 0 (Int64)
    - label: name of the function, region or kernel
    - depth: depth in the call tree (Int32). The outermost call has depth 0. In flat profiles and in
      `sampling_percent`, the depth is always 0.
    - parent: row label of the caller (Int64)
    - count: number of calls, or of frames for samples (Int64)
    - total_ns: total time, including callees (Int64)
    - min_ns: shortest time of a call (Int64)
    - max_ns: longest time of a call (Int64)
    - self_ns: total time, excluding callees on the same thread (Int64)
    - mean_ns: mean time of a call (Float64)
    - std_ns: standard deviation of the times (Float64)
    - self_percent: self time as a share of the total (Float64)

    For metrics that aren't times, the columns for times are replaced by unit and by total, mean,
    min, max, std and self (Float64).

    Tables in text aren't read, because they truncate long labels.

    Raises ProfileReadError if a file can't be read.
    """
    path, texts = Path(path), Codes()
    files: dict[str, list[Path]] = defaultdict(list)
    for file, content in _find(path).items():
        files[content].append(file)
    traces = read_traces(path, files["trace"], texts, maximum_bytes)
    refuse_repeated(path, traces)
    tables = [
        _TablePart(
            file,
            rank=rank_in_name(file),
            processes=[] if table.process is None else [table.process],
            table=table,
        )
        for file in files["table"]
        for table in read_tables(file, maximum_bytes)
    ]
    facts = common_facts([_facts(file, maximum_bytes) for file in files["metadata"]])
    read = {part.path for part in tables}
    left_out = {file: SEVERAL_NUMBERS for file in files["table"] if file not in read}
    beside = Part(path, files=files["metadata"], ignored=left_out)
    parts = selected_rank(path, [*traces, *tables], rank)
    tables = [part for part in parts if isinstance(part, _TablePart)]
    traces = [part for part in parts if not isinstance(part, _TablePart)]
    meta = data_loss(traces) | {"tool": "rocprof-sys"} | facts | {"tables": _tables_of(tables)}
    return profile_of([*parts, beside], map(text, texts), meta, origin)


@dataclass
class _TablePart(Part):
    table: Table | None = None


def _find(path: Path) -> dict[Path, str]:
    """Return the files of a run and their types. The type of a trace is `trace`."""
    if not path.is_dir():
        content = content_of(ByteStream(path).head(HEAD_BYTES)) or "trace"
        if content in ("trace", "table"):
            return {path: content}
        raise ProfileReadError(
            path,
            f"the file contains only {'metadata' if content == 'metadata' else 'a table in text'}",
            "rocprof-sys wrote the measurements to other files in the same folder",
            "pass the folder, or one of its traces or JSON tables",
        )
    if found := _run_in(path):
        return found
    runs = runs_below(path)
    if len(runs) == 1 and (found := _run_in(runs[0])):
        return found
    raise ProfileReadError(
        path,
        f"the folder contains {len(runs)} runs instead of one with a trace or a JSON table",
        "rocprof-sys creates a separate folder for each run, and the run may have ended early",
        "pass the output folder that rocprof-sys prints (rocprofsys-PROGRAM-output/DATE_TIME)",
    )


def _run_in(folder: Path) -> dict[Path, str]:
    found = files_of_folder(folder)
    found |= {file: "trace" for file in trace_files(folder) if file.parent == folder}
    return found if {"trace", "table"} & {*found.values()} else {}


def _tables_of(parts: Sequence[_TablePart]) -> dict[str, pd.DataFrame]:
    of_metrics: dict[str, list[pd.DataFrame]] = {}
    for part in parts:
        rows = part.table.rows.copy()
        rows.insert(0, "rank", pd.array([part.rank] * len(rows), "Int32"))
        rows.insert(1, "process", pd.array([part.table.process] * len(rows), "Int64"))
        earlier = of_metrics.setdefault(part.table.metric, [])
        # A parent is a row number, which starts with 0 in each file.
        rows["parent"] += sum(map(len, earlier))
        earlier.append(rows)
    return {
        metric: pd.concat(tables, ignore_index=True)
        for metric, tables in sorted(of_metrics.items())
    }


class _Metadata(msgspec.Struct):
    info: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    metadata: _Metadata


def _facts(path: Path, maximum_bytes: int) -> dict[str, str]:
    try:
        (name, tool), *_ = msgspec.json.decode(
            read_bytes(path, maximum_bytes), type=dict[str, _Tool]
        ).items()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProfileReadError(
            path,
            f"the file isn't rocprof-sys metadata in JSON ({' '.join(str(error).split())[:100]})",
            *CUT_SHORT,
        ) from None
    info = {key: value for key, value in tool.metadata.info.items() if isinstance(value, str)}
    facts = {
        fact: info[key] for fact, keys in _FACTS.items() for key in keys[::-1] if info.get(key)
    }
    return {"tool": "omnitrace"} | facts if name == "omnitrace" else facts
