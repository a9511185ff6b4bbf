"""Reader for output from rocprof-sys (ROCm Systems Profiler) and its predecessor, omnitrace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from tidyprof.errors import CUT_SHORT, SEVERAL_NUMBERS, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, MAXIMUM_BYTES, ByteStream, in_texts, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.perfetto.decoder import text
from tidyprof.readers.perfetto.reader import (
    merged_facts,
    process_spans,
    read_traces,
    refuse_repeated,
)
from tidyprof.readers.perfetto.recognition import trace_files
from tidyprof.readers.rocprof_sys.recognition import (
    TableFile,
    content_of,
    files_of_folder,
    runs_below,
    table_file,
)
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

_Run = tuple[list[Path], list[TableFile], list[Path]]
"""The traces, the tables and the metadata files of a run."""

_SUFFIX = re.compile(r"-([0-9]{1,9})\.[^.]+(\.gz|\.zst)?$")


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
    Without a trace, these tables are empty. The number in a file name is the process number. If no
    process in the file has that number, the number is the rank, as in an MPI job.

    `meta` contains the entries of `read_perfetto` and these, if known:

    - tool_version: version of rocprof-sys
    - rocm: version of ROCm
    - cpu: model of the CPU
    - launched: date and time of the launch
    - ignored_files: tables with several numbers per label, such as counter vectors
    - settings: value of each environment variable that was set to configure the tool
    - table_descriptions: the tool's descriptions of its tables
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

    The tables come from JSON files. If there are no JSON files, the tables come from text files,
    which round to six decimal places and truncate long labels.

    Raises ProfileReadError if a file can't be read.
    """
    path, texts = Path(path), Codes()
    trace_paths, table_files, metadata = _find(path)
    traces = read_traces(path, trace_paths, texts, maximum_bytes)
    for trace in traces:
        trace.rank = _rank_of_trace(trace)
    refuse_repeated(path, traces)
    tables = [
        _placed(table, traces) for file in table_files for table in read_tables(file, maximum_bytes)
    ]
    read_files = {part.path for part in tables}
    facts = common_facts([_facts(file, maximum_bytes) for file in metadata])
    left_out = {file.path: SEVERAL_NUMBERS for file in table_files if file.path not in read_files}
    beside = Part(path, files=metadata, ignored=left_out)
    parts = selected_rank(path, [*traces, *tables], rank)
    tables = [part for part in parts if isinstance(part, _TablePart)]
    traces = [part for part in parts if not isinstance(part, _TablePart)]
    meta = merged_facts(traces) | {"tool": "rocprof-sys"} | facts | _meta_of_tables(tables)
    return profile_of([*parts, beside], map(text, texts), meta, origin)


@dataclass
class _TablePart(Part):
    table: Table | None = None


def _find(path: Path) -> _Run:
    if not path.is_dir():
        return _single(path)
    if any(run := _run_in(path)):
        return run
    runs = runs_below(path)
    if not runs:
        raise ProfileReadError(
            path,
            "the folder contains no trace or table from rocprof-sys",
            "the profiler wrote to another folder, or the run ended before it wrote any files",
            "pass the output folder that rocprof-sys prints (rocprofsys-PROGRAM-output/DATE_TIME)",
        )
    if len(runs) > 1:
        raise ProfileReadError(
            path,
            f"the folder contains {len(runs)} runs"
            f" ({', '.join(repr(run.name) for run in runs[:3])}{', ...' if len(runs) > 3 else ''})",
            "rocprof-sys creates a separate folder for each run",
            f"pass one of these folders, such as the latest one, {runs[-1].name!r}",
        )
    return _run_in(runs[0])


def _single(path: Path) -> _Run:
    head = ByteStream(path).head(HEAD_BYTES)
    if table := table_file(path, head):
        return [], [table], []
    if content_of(head) == "metadata":
        raise ProfileReadError(
            path,
            "the file describes a rocprof-sys run, but it contains no trace or table",
            "the measurements are in other files in the same folder",
            "pass the folder",
        )
    return [path], [], []


def _run_in(folder: Path) -> _Run:
    tables, metadata = files_of_folder(folder)
    traces = [file for file in trace_files(folder) if file.parent == folder]
    return (traces, tables, metadata) if traces or tables else ([], [], [])


def _rank_of_trace(trace: Part) -> int | None:
    """Return the rank in the file name. The number at the end of the name can be the rank if no
    process in the file has that number.
    """
    suffix = _SUFFIX.search(trace.path.name)
    number = int(suffix[1]) if suffix else None
    processes = {*process_spans(trace), *trace.processes}
    return number if number is not None and processes and number not in processes else trace.rank


def _placed(table: Table, traces: Sequence[Part]) -> _TablePart:
    number, process, path = table.file.suffix, table.process, table.file.path
    rank = rank_in_name(path)
    # The number in the file name is the process, or the rank in an MPI job. Compare it with the
    # table's process, with MPI data, and with the ranks of traces.
    if process is not None:
        rank = number if number not in (None, process) else rank
    elif table.is_mpi or number in {trace.rank for trace in traces} - {None}:
        rank = number
    else:
        process = number
    doubts = list(table.warnings)
    totals = table.rows.get("total_ns", table.rows.get("total"))
    if len(table.rows) and not totals.any():
        doubts.append(
            f"{path.name}: the sums of all {len(table.rows)} labels are 0. The metric was not"
            " measured in this run."
        )
    processes = [] if process is None else [process]
    return _TablePart(path, rank=rank, processes=processes, warnings=doubts, table=table)


def _meta_of_tables(tables: Sequence[_TablePart]) -> dict[str, Any]:
    of_metrics: dict[str, list[pd.DataFrame]] = {}
    for part in tables:
        rows = part.table.rows.copy()
        rows.insert(0, "rank", pd.array([part.rank] * len(rows), "Int32"))
        rows.insert(1, "process", pd.array([next(iter(part.processes), None)] * len(rows), "Int64"))
        earlier = of_metrics.setdefault(part.table.metric, [])
        # A parent is a row number, which starts with 0 in each file.
        rows["parent"] += sum(map(len, earlier))
        earlier.append(rows)
    return {
        "table_descriptions": {part.table.metric: part.table.description for part in tables},
        "tables": {
            metric: pd.concat(parts, ignore_index=True)
            for metric, parts in sorted(of_metrics.items())
        },
    }


class _Metadata(msgspec.Struct):
    info: dict[str, Any] = {}
    settings: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    metadata: _Metadata


def _facts(path: Path, maximum_bytes: int) -> dict[str, Any]:
    try:
        (name, tool), *_ = msgspec.json.decode(
            read_bytes(path, maximum_bytes, in_texts), type=dict[str, _Tool]
        ).items()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProfileReadError(
            path,
            f"the file isn't rocprof-sys metadata in JSON ({' '.join(str(error).split())[:100]})",
            *CUT_SHORT,
        ) from None
    info = {
        key: value for key, value in tool.metadata.info.items() if isinstance(value, str) and value
    }
    facts: dict[str, Any] = {"tool": "omnitrace"} if name == "omnitrace" else {}
    for key, names in _FACTS.items():
        stated = next((info[name] for name in names if name in info), None)
        if stated:
            facts[key] = stated
    if "LAUNCH_DATE" in info:
        facts["launched"] = " ".join(
            info[name] for name in ("LAUNCH_DATE", "LAUNCH_TIME") if name in info
        )
    settings = {
        key: entry.get("value")
        for key, entry in tool.metadata.settings.items()
        if isinstance(entry, dict) and entry.get("updated", "default") != "default"
    }
    return facts | ({"settings": settings} if settings else {})
