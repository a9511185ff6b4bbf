"""Reader for the output of rocprof-sys (ROCm Systems Profiler) and of omnitrace, its
predecessor.
"""

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
"""Entries of `Profile.meta` -> the names that metadata files have for them."""

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
    """Read what rocprof-sys wrote: its Perfetto traces, and its profiles as tables.

    path          -- an output folder (`rocprofsys-python3-output/2025-08-09_14.03`, or the folder
                     above it if it holds one run), or a single trace or table.
    rank          -- read only this rank; where nothing states one, the rank that the files have.
    origin        -- where the recording comes from; not stated if None.
    progress, maximum_bytes -- as in `read_perfetto`.

    `events` and `counters` are those of `read_perfetto`, of all processes; without a trace they are
    empty. A file's number is the process, and the rank if it is not the number of the process in
    the file, as in a job of MPI.

    `meta` has, besides the entries of `read_perfetto` and where stated: `tool_version`, `rocm`,
    `cpu`, `launched` (day and time), `ignored_files` (tables with several numbers for one label,
    such as vectors of hardware counters), `settings` (those that were set, by the name of their
    environment variable), `table_descriptions` (in the tool's words) and `tables`: metric
    (`wall_clock`, `sampling_wall_clock`, `sampling_percent`, `trip_count`, ...) -> DataFrame with
    one row per label and place in the call tree, in the order of the file (what is called right
    below its caller), in these columns:
      rank, process    Int32, Int64
      thread           Int64, thread as the tool counts them from 0, not the system's number
      label            function, region or kernel
      depth            Int32, 0 outermost; always 0 in flat profiles and in `sampling_percent`
      parent           Int64, row label of the caller
      count            Int64, how often it was called, or for samples in how many frames it was
      total_ns, min_ns, max_ns, self_ns   Int64; mean_ns, std_ns Float64: time. total_ns includes
                       what is called; self_ns does not include what was called on the same thread
      self_percent     Float64, self of total
    and for metrics that are no time total, mean, min, max, std, self (Float64) and unit instead.
    Tables come from JSON, or where it is missing from text, which has six decimals and cuts long
    labels short.

    Raises ProfileReadError, whose one line says what was found and what to do.
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
    """The files of one run of the profiler."""

    traces: list[Path] = field(default_factory=list)
    tables: list[TableFile] = field(default_factory=list)
    metadata: list[Path] = field(default_factory=list)


@dataclass
class _TablePart(Part):
    """A table with its rank and process."""

    table: Table | None = None


def _find(path: Path) -> _Run:
    if not path.is_dir():
        return _single(path)
    runs = [path] if _run_in(path) else runs_below(path)
    if not runs:
        raise ProfileReadError(
            path,
            "a folder without a trace or table of rocprof-sys",
            "the profiler wrote elsewhere, or the run ended before it wrote",
            "pass the folder that rocprof-sys names when it ends (rocprofsys-<program>-output/<day"
            " and time>)",
        )
    if len(runs) > 1:
        raise ProfileReadError(
            path,
            f"{len(runs)} runs"
            f" ({', '.join(repr(run.name) for run in runs[:3])}{', ...' if len(runs) > 3 else ''})",
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


def _rank_of_trace(trace: Part) -> int | None:
    """The rank that the name states, or the number at the name's end if it is not the number of a
    process in the file.
    """
    suffix = _SUFFIX.search(trace.path.name)
    number = int(suffix[1]) if suffix else None
    processes = {*process_spans(trace), *trace.processes}
    return number if number is not None and processes and number not in processes else trace.rank


def _placed(table: Table, traces: Sequence[Part]) -> _TablePart:
    """The table with its rank and process, and warnings about its content."""
    number, process, path = table.file.suffix, table.process, table.file.path
    rank = rank_in_name(path)
    # The number in the name is the process, or in a job of MPI the rank: what else is known of the
    # process, of MPI or of the traces' ranks decides.
    if process is not None:
        rank = number if number not in (None, process) else rank
    elif table.is_mpi or number in {trace.rank for trace in traces} - {None}:
        rank = number
    else:
        process = number
    doubts = []
    if table.cut:
        doubts.append(
            f"{path.name}: {table.cut} of {len(table.rows)} labels are cut short, as in all tables"
            " in text; the JSON beside it would have them whole."
        )
    if table.rows and not any(row.total for row in table.rows):
        doubts.append(
            f"{path.name}: {len(table.rows)} labels were counted, but all sums are zero: the metric"
            " was not measured in this run."
        )
    processes = [] if process is None else [process]
    return _TablePart(path, rank=rank, processes=processes, warnings=doubts, table=table)


def _meta_of_tables(tables: Sequence[_TablePart]) -> dict[str, Any]:
    """One table per metric for all ranks and processes, the rows of one file after those of
    another.
    """
    of_metrics: dict[str, list[pd.DataFrame]] = {}
    for part in tables:
        rows = frame(part.table)
        rows.insert(0, "rank", pd.array([part.rank] * len(rows), "Int32"))
        rows.insert(1, "process", pd.array([next(iter(part.processes), None)] * len(rows), "Int64"))
        earlier = of_metrics.setdefault(part.table.metric, [])
        # A parent is the number of a row, counted from 0 in each file.
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
    """Entries of `Profile.meta` that a metadata file states."""
    try:
        (name, tool), *_ = msgspec.json.decode(
            read_bytes(path, maximum_bytes, in_texts), type=dict[str, _Tool]
        ).items()
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProfileReadError(
            path,
            f"no metadata of rocprof-sys in JSON ({' '.join(str(error).split())[:100]})",
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
