"""Reader for the output of rocprof-sys (ROCm Systems Profiler) and of omnitrace, its predecessor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from tidyprof.io.byte_stream import HEAD_BYTES, MAXIMUM_BYTES, ByteStream
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.perfetto.events import Tables
from tidyprof.readers.perfetto.file import TraceFile
from tidyprof.readers.perfetto.reader import common_meta, rank_in_name, read_traces, refuse_repeated
from tidyprof.readers.perfetto.recognition import trace_files
from tidyprof.readers.perfetto.table import counter_table, empty_events, event_table
from tidyprof.readers.rocprof_sys.timemory_files import TableFile, content_of, files_of_folder, runs_below, table_file
from tidyprof.readers.rocprof_sys.timemory_tables import Table, frame, read_tables
from tidyprof.tables.contract import Origin, Profile, empty_counters
from tidyprof.tables.database_files import selected_rank

_FACTS = {
    "tool_version": ("ROCPROFSYS_VERSION", "OMNITRACE_VERSION"),
    "rocm": ("ROCPROFSYS_ROCM_VERSION", "OMNITRACE_ROCM_VERSION", "OMNITRACE_HIP_VERSION"),
    "cpu": ("CPU_MODEL",),
}
"""Entries of `Profile.meta` and the names that metadata files have for them."""

_SUFFIX = re.compile(r"-([0-9]{1,9})\.[^.]+(\.gz|\.zst)?$")


def read_rocprof_sys(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    progress: bool | None = None,
    annotations: Iterable[str] = (),
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read what rocprof-sys wrote: its Perfetto traces, and its profiles as tables.

    path          -- an output folder (`rocprofsys-python3-output/2025-08-09_14.03`, or the folder above it if it
                     holds one run), or a single trace or table.
    rank          -- read only this rank; where nothing states one, the rank that the files have.
    origin        -- where the recording comes from; not stated if None.
    progress, annotations, maximum_bytes -- as in `read_perfetto`.

    `events` and `counters` are those of `read_perfetto`, of all processes; without a trace they are empty. A file's
    number is the process, and the rank if it is not the number of the process in the file, as in a job of MPI.

    `meta` has, besides the entries of `read_perfetto` and where stated: `tool_version`, `rocm`, `cpu`, `launched`
    (day and time), `ignored_files` (tables with several numbers for one label, such as vectors of hardware counters),
    `settings` (those that were set, by the name of their environment variable),
    `table_descriptions` (in the tool's words) and `tables`: metric (`wall_clock`, `sampling_wall_clock`,
    `sampling_percent`, `trip_count`, ...) -> DataFrame with one row per label and place in the call tree, in the
    order of the file (what is called right below its caller), in these columns:
      rank, process    Int32, Int64
      thread           Int64, thread as the tool counts them from 0, not the system's number
      label            function, region or kernel
      depth            Int32, 0 outermost; always 0 in flat profiles and in `sampling_percent`
      parent           Int64, row label of the caller
      count            Int64, how often it was called, or for samples in how many frames it was
      total_ns, min_ns, max_ns, self_ns   Int64; mean_ns, std_ns Float64: time. total_ns includes what is called;
                       self_ns does not include what was called on the same thread
      self_percent     Float64, self of total
    and for metrics that are no time total, mean, min, max, std, self (Float64) and unit instead. Tables come from
    JSON, or where it is missing from text, which has six decimals and cuts long labels short.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    run = _find(path)
    names = Tables()
    traces = read_traces(run.traces, names, annotations, progress, maximum_bytes)
    for trace in traces:
        trace.rank = _rank_of_trace(trace)
    refuse_repeated(path, traces)
    tables = [_placed(table, traces) for file in run.tables for table in read_tables(file, maximum_bytes)]
    read_files = {part.table.file for part in tables}
    parts = selected_rank(path, [*traces, *tables], rank)
    traces = [part for part in parts if isinstance(part, TraceFile)]
    tables = [part for part in parts if isinstance(part, _PlacedTable)]
    meta = _meta(run, traces, tables, [_facts(file, maximum_bytes) for file in run.metadata])
    ignored = [str(file.path) for file in run.tables if file not in read_files]
    if ignored:
        meta["ignored_files"] = ignored
    if origin is not None:
        meta["origin"] = origin
    if not traces:
        return Profile(empty_events(), empty_counters(), meta)
    counters = counter_table(traces)
    return Profile(event_table(traces, names), counters, meta)


@dataclass
class _Run:
    """The files of one run."""

    traces: list[Path] = field(default_factory=list)
    tables: list[TableFile] = field(default_factory=list)
    metadata: list[Path] = field(default_factory=list)


@dataclass
class _PlacedTable:
    """A table with the rank and process that it is of, None where unknown."""

    table: Table
    rank: int | None
    process: int | None


def _find(path: Path) -> _Run:
    if not path.is_dir():
        return _single(path)
    runs = [path] if _run_in(path) else runs_below(path)
    if not runs:
        raise ProfileReadError(
            path,
            "a folder without a trace or table of rocprof-sys",
            "the profiler wrote elsewhere, or the run ended before it wrote",
            "pass the folder that rocprof-sys names when it ends (rocprofsys-<program>-output/<day and time>)",
        )
    if len(runs) > 1:
        raise ProfileReadError(
            path,
            f"{len(runs)} runs ({', '.join(repr(run.name) for run in runs[:3])}{', ...' if len(runs) > 3 else ''})",
            "each run of rocprof-sys makes a folder of its own",
            f"pass one of them, the latest by name being {runs[-1].name!r}",
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
            "the description of a run of rocprof-sys, without a trace or table",
            "it lies beside the files that hold the measurements",
            "pass the folder",
        )
    return _Run(traces=[path])


def _run_in(folder: Path) -> _Run | None:
    """The run whose files lie right in the folder."""
    tables, metadata = files_of_folder(folder)
    traces = [file for file in trace_files(folder) if file.parent == folder]
    return _Run(traces, tables, metadata) if traces or tables else None


def _rank_of_trace(trace: TraceFile) -> int | None:
    """The rank that the name states, or the number at its end if it is not that of a process in the file."""
    suffix = _SUFFIX.search(trace.path.name)
    number = int(suffix[1]) if suffix else None
    processes = set(trace.spans) | set(trace.facts.get("commands", {}))
    is_rank = number is not None and processes and number not in processes
    return number if is_rank else rank_in_name(trace.path)


def _placed(table: Table, traces: Sequence[TraceFile]) -> _PlacedTable:
    number, process = table.file.suffix, table.process
    named = rank_in_name(table.file.path)
    if process is not None:
        return _PlacedTable(table, number if number not in (None, process) else named, process)
    if table.is_mpi or number in {trace.rank for trace in traces} - {None}:
        return _PlacedTable(table, number, None)
    return _PlacedTable(table, named, number)


def _meta(
    run: _Run, traces: Sequence[TraceFile], tables: Sequence[_PlacedTable], facts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    meta: dict[str, Any] = common_meta(traces) if traces else {"files": [], "repairs": {}, "warnings": []}
    first = facts[0] if facts else {}
    meta |= {"tool": "rocprof-sys"} | {
        key: value for key, value in first.items() if all(other.get(key) == value for other in facts)
    }
    meta["files"] += [str(file) for file in dict.fromkeys(part.table.file.path for part in tables)]
    meta["files"] += [str(file) for file in run.metadata]
    ranks = sorted({part.rank for part in (*traces, *tables) if part.rank is not None})
    if ranks:
        meta |= {"ranks": ranks} if len(ranks) > 1 else {"rank": ranks[0]}
    processes = {part.process for part in tables if part.process is not None}
    meta["processes"] = sorted(processes | set(meta.get("processes", ())))
    meta["table_descriptions"] = {part.table.metric: part.table.description for part in tables}
    meta["tables"] = _frames(tables)
    meta["warnings"] = meta["warnings"] + [
        f"{part.table.file.path.name}: {part.table.cut} of {len(part.table.rows)} labels are cut short, as in all "
        "tables in text; the JSON beside it would have them whole."
        for part in tables
        if part.table.cut
    ]
    meta["warnings"] += [
        f"{part.table.file.path.name}: {len(part.table.rows)} labels were counted, but all sums are zero: the metric "
        "was not measured in this run."
        for part in tables
        if part.table.rows and not any(row.numbers["total"] for row in part.table.rows)
    ]
    return meta


def _frames(tables: Sequence[_PlacedTable]) -> dict[str, pd.DataFrame]:
    """One table per metric of all ranks and processes, the rows of one file after those of another."""
    found: dict[str, list[pd.DataFrame]] = {}
    for part in tables:
        rows = frame(part.table)
        rows.insert(0, "rank", pd.array([part.rank] * len(rows), "Int32"))
        rows.insert(1, "process", pd.array([part.process] * len(rows), "Int64"))
        earlier = found.setdefault(part.table.metric, [])
        rows["parent"] += sum(map(len, earlier))
        earlier.append(rows)
    return {metric: pd.concat(parts, ignore_index=True) for metric, parts in sorted(found.items())}


class _Metadata(msgspec.Struct):
    info: dict[str, Any] = {}
    settings: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    metadata: _Metadata


def _facts(path: Path, maximum_bytes: int) -> dict[str, Any]:
    """Entries of `Profile.meta` that a metadata file states."""
    data = b"".join(ByteStream(path, maximum_bytes).chunks())
    try:
        (name, tool), *_ = msgspec.json.decode(data, type=dict[str, _Tool]).items()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProfileReadError(
            path,
            f"no metadata of rocprof-sys in JSON ({' '.join(str(error).split())[:100]})",
            "the file was cut short or damaged, or the run was killed while it wrote",
            "copy it again from the original, or leave it out",
        ) from None
    info = {key: value for key, value in tool.metadata.info.items() if isinstance(value, str) and value}
    facts: dict[str, Any] = {"tool": "omnitrace"} if name == "omnitrace" else {}
    for key, names in _FACTS.items():
        stated = next((info[name] for name in names if name in info), None)
        if stated:
            facts[key] = stated
    if "LAUNCH_DATE" in info:
        facts["launched"] = " ".join(info[name] for name in ("LAUNCH_DATE", "LAUNCH_TIME") if name in info)
    settings = {
        key: entry.get("value")
        for key, entry in tool.metadata.settings.items()
        if isinstance(entry, dict) and entry.get("updated", "default") != "default"
    }
    return facts | ({"settings": settings} if settings else {})
