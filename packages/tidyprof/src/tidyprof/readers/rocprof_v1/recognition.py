"""Which files rocprof 1 and rocprofv2 wrote, and their contents."""

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
"""Uncompressed bytes at the start of a file that tell what it holds."""

STATISTICS_SUBJECTS = {
    "stats": "kernel",
    "hip_stats": "hip_api",
    "hsa_stats": "hsa_api",
    "copy_stats": "memory_copy",
    "roctx_stats": "marker_api",
}
"""Last part of the name of a table of statistics -> its subject, in rocprofv3's words."""

_STATISTICS = {"name", "calls", "totaldurationns", "averagens", "percentage"}
_OF_ROCPROFV2 = {"Dispatch_ID", "Queue_ID", "PID", "TID", "Kernel_Name", "Start_Timestamp"}
_NAME = re.compile(r"\.csv(\.gz|\.zst)?$", re.IGNORECASE)
_TRACE_NAME = re.compile(r"\.(json|db)(\.gz|\.zst)?$", re.IGNORECASE)
_JSON_START = re.compile(rb'\s*\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}')
NOT_READ = "rocprof 1's trace, of which only the tables are read"
"""Why results.json and results.db are left out."""


@dataclass(frozen=True)
class V1File:
    """One file.

    role   -- `kernels` (of rocprof 1 or rocprofv2) or `statistics`.
    prefix -- folder and start of the name, which all files of a run share.
    """

    path: Path
    role: str
    prefix: Path
    header: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The subject of a table of statistics."""
        return STATISTICS_SUBJECTS.get(_NAME.sub("", self.path.name).rpartition(".")[2], "other")


def v1_file(path: Path, head: bytes) -> V1File | None:
    """The file that starts with `head`, None if rocprof did not write it."""
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
    """Return True if rocprofv2 wrote a CSV file with this header. rocprof-compute keeps similar
    columns in its own files, which have sysinfo.csv next to them.
    """
    is_similar = path.name.startswith("pmc_perf") or (path.parent / "sysinfo.csv").exists()
    return {*header} >= _OF_ROCPROFV2 and not is_similar


def is_trace(head: bytes) -> bool:
    """Whether a file that starts with `head` is rocprof's database or its JSON, whose times are
    named `BeginNs`, if there are any.
    """
    if head.startswith(SQLITE_MAGIC):
        return b'"BeginNs" INTEGER' in head or b"CREATE TABLE KERN " in head
    return bool(_JSON_START.match(head)) or (
        head.lstrip().startswith(b"{") and b'"traceEvents"' in head and b'"BeginNs"' in head
    )


def _is_empty(trace: Path) -> bool:
    """Return True if nothing was recorded in a trace."""
    head = head_or_nothing(trace, HEAD_BYTES)
    if not head.startswith(SQLITE_MAGIC):
        return b'"BeginNs"' not in head
    with open_database(trace) as database:
        return not any(
            database.rows(f"SELECT 1 FROM {quoted(table)} LIMIT 1") for table in database.tables
        )


def recognizes(path: Path, head: bytes) -> bool:
    """Whether `path` is a file of rocprof that starts with `head`, read or not, or a folder that
    holds one.
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
    """The files at a path, run by run, and the files beside them that are not read -> why.

    path is a file, a folder, or a folder and the start of the file names. Raises ProfileReadError
    if there is no file.
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
            f"{len(candidates)} files in the folder, none of them with results of rocprof",
            "the folder is another one, or the run ended before rocprof wrote",
            "pass the folder with results.csv or results.stats.csv",
        )
    return list(runs.values()), others


def _not_read(trace: Path) -> ProfileReadError:
    """The error about a trace. It names a table beside it, that of kernels if there is one."""
    tables = [
        file
        for file in _candidates(trace.parent)
        if v1_file(file, head_or_nothing(file, HEAD_BYTES))
    ]
    start = _TRACE_NAME.sub("", trace.name)
    tables.sort(key=lambda file: (not file.name.startswith(start), len(file.name)))
    again = "record again with rocprofv3 --runtime-trace"
    if _is_empty(trace):
        cause = "the program launched none, or ended before rocprof wrote"
        return NothingRecordedError(trace, "rocprof 1 recorded no kernel", cause, again)
    return ProfileReadError(
        trace,
        NOT_READ,
        (
            "its tables lie beside it"
            if tables
            else "its tables were left behind, or --stats was not asked for"
        ),
        (
            f"pass {tables[0].name} beside it, or their folder; for single calls {again}"
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
        f"no output of rocprof 1 (starts with {head!r})",
        "another tool wrote it, or it is damaged at its start",
        "pass results.csv or a *.stats.csv of rocprof; its database and its JSON are not read",
    )
