"""Recognition of files from rocprof 1 and rocprofv2."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from tidyprof.errors import FOREIGN, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import SQLITE_MAGIC, ByteStream, head_or_nothing
from tidyprof.io.sqlite import open_database, quoted
from tidyprof.readers.rocprofv3.columns import column_table, header_of
from tidyprof.readers.rocprofv3.recognition import HEAD_BYTES, OutputFile, foreign

STATISTICS_SUBJECTS = {
    "stats": "kernel",
    "hip_stats": "hip_api",
    "hsa_stats": "hsa_api",
    "copy_stats": "memory_copy",
    "roctx_stats": "marker_api",
}
"""Subjects of statistics tables in rocprofv3's terms, by the last part of the table's name."""

OF_ROCPROFV2 = {"Dispatch_ID", "Queue_ID", "PID", "TID", "Kernel_Name", "Start_Timestamp"}
_NAME = re.compile(r"\.(csv|json|db)(\.gz|\.zst)?$", re.IGNORECASE)
_JSON_START = re.compile(rb'\s*\{\s*"traceEvents"\s*:\s*(\[\s*\{\s*\}|.*"BeginNs")', re.DOTALL)
NOT_READ = "tidyprof reads only the tables from rocprof 1, not its traces"
"""Reason for leaving out results.json and results.db."""


def output_file(path: Path, head: bytes) -> OutputFile | None:
    """Return the file that starts with `head`. Return None if it doesn't come from rocprof. The
    prefix of a file is the folder and the common prefix of the names of a run's files.
    """
    header = header_of(head)
    contents = column_table("rocprof_v1").contents_of(header)
    # Files from rocprof-compute have similar columns.
    if contents is None or ("Dispatch_ID" in header and not is_of_rocprofv2(path, header)):
        return None
    stem = _NAME.sub("", path.name)
    run, _, last = stem.rpartition(".")
    subject = STATISTICS_SUBJECTS.get(last, "other")
    is_named = contents == "statistics" and last in STATISTICS_SUBJECTS
    return OutputFile(path, contents, header, path.parent / (run if is_named else stem), subject)


def is_of_rocprofv2(path: Path, header: Collection[str]) -> bool:
    """Return True if a CSV file with this header comes from rocprofv2. Files from rocprof-compute
    have similar columns, but they are next to a sysinfo.csv file.
    """
    is_similar = path.name.startswith("pmc_perf") or (path.parent / "sysinfo.csv").exists()
    return {*header} >= OF_ROCPROFV2 and not is_similar


def is_trace(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a database or JSON trace from rocprof. The
    times in these files are named `BeginNs`.
    """
    if head.startswith(SQLITE_MAGIC):
        return b'"BeginNs" INTEGER' in head or b"CREATE TABLE KERN " in head
    return bool(_JSON_START.match(head))


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if `path` is a rocprof file that starts with `head`, or a folder that contains a
    rocprof file. Unsupported rocprof files also count.
    """
    if not path.is_dir():
        return output_file(path, head) is not None or is_trace(head)
    return any(recognizes(file, head_or_nothing(file, HEAD_BYTES)) for file in _candidates(path))


def _candidates(folder: Path, start: str = "") -> list[Path]:
    named = (file for file in sorted(folder.iterdir()) if file.name.startswith(start))
    return [file for file in named if _NAME.search(file.name) and file.is_file()]


def find_runs(path: Path) -> tuple[list[list[OutputFile]], dict[Path, str]]:
    """Return the files at a path, grouped by run. Also return the unsupported files next to them,
    and explain why they are unsupported.

    - path: path to a file, to a folder, or to a folder plus the common prefix of the file names.

    Raises ProfileReadError if there is no file.
    """
    candidates = [path]
    if path.is_dir():
        candidates = _candidates(path)
    elif not path.exists() and path.parent.is_dir():
        candidates = _candidates(path.parent, f"{path.name}.") or candidates
    runs: dict[Path, list[OutputFile]] = {}
    others: dict[Path, str] = {}
    for file in candidates:
        head = ByteStream(file).head(HEAD_BYTES)
        known = output_file(file, head)
        if known is not None:
            runs.setdefault(known.prefix, []).append(known)
        elif is_trace(head):
            others[file] = NOT_READ
        elif file == path:
            raise foreign(file, head, "rocprof 1", "pass results.csv or a *.stats.csv file")
        elif ".csv" in file.name.lower():
            others[file] = FOREIGN
    traces = [file for file, reason in others.items() if reason == NOT_READ]
    if not runs and traces:
        raise _not_read(traces[0])
    if not runs:
        raise ProfileReadError(
            path,
            f"none of the {len(candidates)} files in the folder contains results from rocprof",
            "this is the wrong folder, or the run ended before rocprof wrote its results",
            "pass the folder with results.csv or results.stats.csv",
        )
    return list(runs.values()), others


def _not_read(trace: Path) -> ProfileReadError:
    """Return the error for a trace. If there are tables next to the trace, the error names one of
    them, preferably a kernel table.
    """
    again = "record again with rocprofv3 --runtime-trace"
    if _is_empty(trace):
        cause = "the program launched no kernels, or it ended before rocprof wrote its results"
        return NothingRecordedError(trace, "rocprof 1 recorded no kernel", cause, again)
    start = _NAME.sub("", trace.name)
    tables = [
        file
        for file in _candidates(trace.parent)
        if output_file(file, head_or_nothing(file, HEAD_BYTES))
    ]
    tables.sort(key=lambda file: (not file.name.startswith(start), len(file.name)))
    if not tables:
        cause = "the tables weren't copied, or --stats was not set"
        return ProfileReadError(trace, NOT_READ, cause, again)
    return ProfileReadError(
        trace,
        NOT_READ,
        "the tables are next to the trace",
        f"pass the table {tables[0].name} or its folder; to get single calls, {again}",
    )


def _is_empty(trace: Path) -> bool:
    head = head_or_nothing(trace, HEAD_BYTES)
    if not head.startswith(SQLITE_MAGIC):
        return b'"BeginNs"' not in head
    with open_database(trace) as database:
        return not any(
            database.rows(f"SELECT 1 FROM {quoted(table)} LIMIT 1") for table in database.tables
        )
