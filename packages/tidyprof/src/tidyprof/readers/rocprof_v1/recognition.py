"""Recognition of files from rocprof 1 and rocprofv2."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import SQLITE_MAGIC, head_or_nothing
from tidyprof.readers.columns import HEAD_BYTES, column_table, header_of
from tidyprof.readers.rocprofv3.recognition import OutputFile, grouped_files

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


def _candidates(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if _NAME.search(file.name) and file.is_file()]


def find_runs(path: Path) -> tuple[list[list[OutputFile]], dict[Path, str]]:
    """Return the files at a path, grouped by run. Also return the unsupported files next to them,
    and explain why they are unsupported.

    Raises ProfileReadError if there is no file.
    """
    candidates = _candidates(path) if path.is_dir() else [path]
    runs, others = grouped_files(
        path,
        candidates,
        output_file,
        "rocprof 1",
        lambda head: NOT_READ if is_trace(head) else FOREIGN,
    )
    if not runs:
        raise ProfileReadError(
            path,
            NOT_READ if others else "there are no results from rocprof",
            "the tables are in other files, or the run ended before rocprof wrote its results",
            "pass the folder with results.csv or results.stats.csv, or record again with rocprofv3"
            " --runtime-trace",
        )
    return list(runs.values()), others
