"""Reader for output from rocprof-sys (ROCm Systems Profiler) and omnitrace, its predecessor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from tidyprof.errors import CUT_SHORT, SEVERAL_NUMBERS, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, MAXIMUM_BYTES, ByteStream, in_texts, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.perfetto.reader import (
    merged_facts,
    process_spans,
    read_traces,
    refuse_repeated,
)
from tidyprof.readers.perfetto.recognition import trace_files
from tidyprof.readers.perfetto.sequences import text
from tidyprof.readers.rocprof_sys.recognition import (
    TableFile,
    content_of,
    files_of_folder,
    runs_below,
    table_file,
)
from tidyprof.readers.rocprof_sys.timemory_tables import Table, frame, read_tables
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import Part, common_facts, profile_of, rank_in_name, selected_rank

_FACTS = {
    "tool_version": ("ROCPROFSYS_VERSION", "OMNITRACE_VERSION"),
    "rocm": ("ROCPROFSYS_ROCM_VERSION", "OMNITRACE_ROCM_VERSION", "OMNITRACE_HIP_VERSION"),
    "cpu": ("CPU_MODEL",),
}
"""Entries of `Profile.meta` -> their names in metadata files."""

_SUFFIX = re.compile(r"-([0-9]{1,9})\.[^.]+(\.gz|\.zst)?$")


@guarded
def read_rocprof_sys(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    progress: bool | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read the Perfetto traces and profile tables from rocprof-sys.

    path          -- an output folder (`rocprofsys-python3-output/2025-08-09_14.03`), the folder
                     above it if it contains only one run, or a single trace or table.
    rank          -- read only this rank. If nothing contains a rank, assign this one.
    origin        -- where the profile comes from; unknown if None.
    progress, maximum_bytes -- see `read_perfetto`.

    `events` and `counters` are the tables of `read_perfetto` for all processes. Without a trace,
    they are empty. The number in a file name is the process. If it isn't a process in the file, it
    is the rank, as in an MPI job.

    `meta` has the entries of `read_perfetto` and these, if known:
      - tool_version, rocm, cpu
      - launched: day and time
      - ignored_files: tables with several numbers per label, such as counter vectors
      - settings: environment variable -> value, for all settings that were set
      - table_descriptions: the tool's descriptions
      - tables: metric (`wall_clock`, `sampling_wall_clock`, `sampling_percent`, `trip_count`, ...)
        -> DataFrame

    A table has one row per label and place in the call tree, in file order, so callees follow their
    caller. Its columns:
      - rank, process: Int32, Int64
      - thread: Int64, the tool's own thread number, which starts with 0
      - label: function, region or kernel
      - depth: Int32; the outermost is 0. Always 0 in flat profiles and `sampling_percent`
      - parent: Int64, row label of the caller
      - count: Int64, number of calls; for samples, number of frames
      - total_ns, min_ns, max_ns, self_ns: Int64. total_ns includes callees. self_ns excludes
        callees on the same thread
      - mean_ns, std_ns: Float64
      - self_percent: Float64, self time as a share of the total

    Metrics that aren't times have total, mean, min, max, std and self (Float64), and unit instead.

    Tables come from JSON files. If these are missing, tables come from text files, which round to
    six decimals and cut long labels.

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    run, texts = _find(path), Codes()
    traces = read_traces(path, run.traces, texts, progress, maximum_bytes)
    for trace in traces:
        trace.rank = _rank_of_trace(trace)
    refuse_repeated(path, traces)
    tables = [
        _placed(table, traces) for file in run.tables for table in read_tables(file, maximum_bytes)
    ]
    read_files = {part.table.file for part in tables}
    facts = common_facts([_facts(file, maximum_bytes) for file in run.metadata])
    left_out = {file.path: SEVERAL_NUMBERS for file in run.tables if file not in read_files}
    beside = Part(path, files=run.metadata, ignored=left_out)
    parts = selected_rank(path, [*traces, *tables], rank)
    tables = [part for part in parts if isinstance(part, _TablePart)]
    traces = [part for part in parts if not isinstance(part, _TablePart)]
    meta = merged_facts(traces) | {"tool": "rocprof-sys"} | facts | _meta_of_tables(tables)
    return profile_of([*parts, beside], map(text, texts), meta, origin)


@dataclass
class _Run:
    traces: list[Path] = field(default_factory=list)
    tables: list[TableFile] = field(default_factory=list)
    metadata: list[Path] = field(default_factory=list)


@dataclass
class _TablePart(Part):
    table: Table | None = None


def _find(path: Path) -> _Run:
    if not path.is_dir():
        return _single(path)
    runs = [path] if _run_in(path) else runs_below(path)
    if not runs:
        raise ProfileReadError(
            path,
            "the folder has no trace or table from rocprof-sys",
            "the profiler wrote to another folder, or the run ended before it wrote",
            "pass the folder that rocprof-sys prints when it ends (rocprofsys-<program>-output/<day"
            " and time>)",
        )
    if len(runs) > 1:
        raise ProfileReadError(
            path,
            f"the folder contains {len(runs)} runs"
            f" ({', '.join(repr(run.name) for run in runs[:3])}{', ...' if len(runs) > 3 else ''})",
            "rocprof-sys creates a separate folder for each run",
            f"pass one of these folders; the latest by name is {runs[-1].name!r}",
        )
    return _run_in(runs[0]) or _Run()


def _single(path: Path) -> _Run:
    head = ByteStream(path).head(HEAD_BYTES)
    table = table_file(path, head)
    if table:
        return _Run(tables=[table])
    if content_of(head) == "metadata":
        raise ProfileReadError(
            path,
            "the file describes a rocprof-sys run but contains no trace or table",
            "the measurements are in other files in the same folder",
            "pass the folder",
        )
    return _Run(traces=[path])


def _run_in(folder: Path) -> _Run | None:
    tables, metadata = files_of_folder(folder)
    traces = [file for file in trace_files(folder) if file.parent == folder]
    return _Run(traces, tables, metadata) if traces or tables else None


def _rank_of_trace(trace: Part) -> int | None:
    """Return the rank in the file name. It can be the number at the end if no process in the file
    has that number.
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
    doubts = []
    if table.cut:
        doubts.append(
            f"{path.name}: {table.cut} of {len(table.rows)} labels are cut short, as in all text"
            " tables. Next step: pass the folder with the JSON table, which has complete labels."
        )
    if table.rows and not any(row.total for row in table.rows):
        doubts.append(
            f"{path.name}: all sums are zero for the {len(table.rows)} labels, so the metric was"
            " not measured in this run."
        )
    processes = [] if process is None else [process]
    return _TablePart(path, rank=rank, processes=processes, warnings=doubts, table=table)


def _meta_of_tables(tables: Sequence[_TablePart]) -> dict[str, Any]:
    of_metrics: dict[str, list[pd.DataFrame]] = {}
    for part in tables:
        rows = frame(part.table)
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
