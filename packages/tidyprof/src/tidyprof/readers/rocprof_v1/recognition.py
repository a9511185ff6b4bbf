"""Recognition of files from rocprof 1 and rocprofv2."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tidyprof.errors import EMPTY, FOREIGN, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import SQLITE_MAGIC, ByteStream, head_or_nothing
from tidyprof.io.sqlite import open_database, quoted
from tidyprof.readers.rocprofv3.columns import header_of

HEAD_BYTES = 2**16
"""Number of uncompressed bytes at the start of a file that are enough to recognize its format."""

STATISTICS_SUBJECTS = {
    "stats": "kernel",
    "hip_stats": "hip_api",
    "hsa_stats": "hsa_api",
    "copy_stats": "memory_copy",
    "roctx_stats": "marker_api",
}
"""Subjects of statistics tables in rocprofv3's terms, by the last part of the table's name."""

_STATISTICS = {"name", "calls", "totaldurationns", "averagens", "percentage"}
_OF_ROCPROFV2 = {"Dispatch_ID", "Queue_ID", "PID", "TID", "Kernel_Name", "Start_Timestamp"}
_NAME = re.compile(r"\.csv(\.gz|\.zst)?$", re.IGNORECASE)
_TRACE_NAME = re.compile(r"\.(json|db)(\.gz|\.zst)?$", re.IGNORECASE)
_JSON_START = re.compile(rb'\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}')
NOT_READ = "tidyprof reads only the tables from rocprof 1, not its traces"
"""Reason for leaving out results.json and results.db."""


@dataclass(frozen=True)
class V1File:
    """A file from rocprof 1 or rocprofv2.

    - role: `kernels` or `statistics`
    - prefix: folder and common prefix of the names of a run's files
    """

    path: Path
    role: str
    prefix: Path
    header: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The subject of a statistics table."""
        return STATISTICS_SUBJECTS.get(_NAME.sub("", self.path.name).rpartition(".")[2], "other")


def v1_file(path: Path, head: bytes) -> V1File | None:
    """Return the file that starts with `head`. Return None if it doesn't come from rocprof."""
    stem = _NAME.sub("", path.name)
    header = header_of(head) or []
    names = {name.lower() for name in header}
    if {"index", "kernelname"} <= names or is_of_rocprofv2(path, header):
        return V1File(path, "kernels", path.parent / stem, tuple(header))
    if names == _STATISTICS:
        run, _, subject = stem.rpartition(".")
        return V1File(
            path,
            "statistics",
            path.parent / (run if subject in STATISTICS_SUBJECTS else stem),
            tuple(header),
        )
    return None


def is_of_rocprofv2(path: Path, header: Collection[str]) -> bool:
    """Return True if a CSV file with this header comes from rocprofv2. Files from rocprof-compute
    have similar columns, but they are next to a sysinfo.csv file.
    """
    is_similar = path.name.startswith("pmc_perf") or (path.parent / "sysinfo.csv").exists()
    return {*header} >= _OF_ROCPROFV2 and not is_similar


def is_trace(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a database or JSON trace from rocprof. The
    times in these files are named `BeginNs`.
    """
    if head.startswith(SQLITE_MAGIC):
        return b'"BeginNs" INTEGER' in head or b"CREATE TABLE KERN " in head
    return bool(_JSON_START.match(head)) or (
        head.lstrip().startswith(b"{") and b'"traceEvents"' in head and b'"BeginNs"' in head
    )


def _is_empty(trace: Path) -> bool:
    head = head_or_nothing(trace, HEAD_BYTES)
    if not head.startswith(SQLITE_MAGIC):
        return b'"BeginNs"' not in head
    with open_database(trace) as database:
        return not any(
            database.rows(f"SELECT 1 FROM {quoted(table)} LIMIT 1") for table in database.tables
        )


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if `path` is a rocprof file that starts with `head`, or a folder that contains a
    rocprof file. Unsupported rocprof files also count.
    """
    if not path.is_dir():
        return v1_file(path, head) is not None or is_trace(head)
    return any(recognizes(file, head_or_nothing(file, HEAD_BYTES)) for file in _candidates(path))


def _candidates(folder: Path) -> list[Path]:
    named = (
        file
        for file in sorted(folder.iterdir())
        if _NAME.search(file.name) or _TRACE_NAME.search(file.name)
    )
    return [file for file in named if file.is_file()]


def find_runs(path: Path) -> tuple[list[list[V1File]], dict[Path, str]]:
    """Return the files at a path, grouped by run. Also return the unsupported files next to them,
    and explain why they are unsupported.

    - path: path to a file, to a folder, or to a folder plus the common prefix of the file names.

    Raises ProfileReadError if there is no file.
    """
    if path.is_dir():
        candidates = _candidates(path)
    elif path.exists() or not path.parent.is_dir():
        candidates = [path]
    else:
        candidates = [
            file for file in _candidates(path.parent) if file.name.startswith(f"{path.name}.")
        ] or [path]
    runs: dict[Path, list[V1File]] = {}
    others: dict[Path, str] = {}
    for file in candidates:
        head = ByteStream(file).head(HEAD_BYTES)
        known = v1_file(file, head)
        if known is not None:
            runs.setdefault(known.prefix, []).append(known)
        elif is_trace(head):
            others[file] = NOT_READ
        elif file == path:
            raise _foreign(file)
        elif _NAME.search(file.name):
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
    tables = [
        file
        for file in _candidates(trace.parent)
        if v1_file(file, head_or_nothing(file, HEAD_BYTES))
    ]
    start = _TRACE_NAME.sub("", trace.name)
    tables.sort(key=lambda file: (not file.name.startswith(start), len(file.name)))
    again = "record again with rocprofv3 --runtime-trace"
    if _is_empty(trace):
        cause = "the program launched no kernels, or it ended before rocprof wrote its results"
        return NothingRecordedError(trace, "rocprof 1 recorded no kernel", cause, again)
    return ProfileReadError(
        trace,
        NOT_READ,
        (
            "the tables are next to the trace"
            if tables
            else "the tables weren't copied, or --stats was not set"
        ),
        (
            f"pass the table {tables[0].name} or its folder; to get single calls, {again}"
            if tables
            else again
        ),
    )


def _foreign(path: Path) -> ProfileReadError:
    head = ByteStream(path).head(24)
    if not head.strip():
        return ProfileReadError(path, *EMPTY)
    return ProfileReadError(
        path,
        f"the file isn't rocprof 1 output (it starts with {head!r})",
        "another tool wrote the file, or its beginning is damaged",
        "pass results.csv or a *.stats.csv file from rocprof instead of its database or JSON file",
    )
