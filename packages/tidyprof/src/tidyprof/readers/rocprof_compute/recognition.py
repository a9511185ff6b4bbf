"""Recognition of folders and files from rocprof-compute."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing, holds_table
from tidyprof.readers.columns import column_table, header_of
from tidyprof.readers.rocprof_v1.recognition import is_of_rocprofv2

COUNTER_FILE = "pmc_perf.csv"
"""File with the counters of all program runs. Since ROCm 10.2, this file is compressed, and its
name ends in .gz.
"""

RUN_FILES = re.compile(r"results_.*\.csv(\.gz)?")
"""Names of files with the counters of one run each, with one row per counter. `profile` has written
these files since ROCm 7.13 and compressed them since ROCm 10.1. `analyze` joins them.
"""

MARKER_TABLE = "compute_workload"


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if the path is a workload folder, a counter file or an analysis database."""
    if path.is_dir():
        return bool(workload_folders(path))
    return holds_table(head, MARKER_TABLE) or _begins_counters(path, head)


def workload_folders(folder: Path) -> list[Path]:
    """Return the folder itself if it contains counter files. Otherwise, return the folders with
    counter files up to two levels below it.
    """
    if counter_files(folder):
        return [folder]
    below = {one for place in ("[!.]*", "[!.]*/[!.]*") for one in folder.glob(place)}
    return sorted(one for one in below if one.is_dir() and counter_files(one))


def counter_files(folder: Path) -> list[Path]:
    """Return the counter file for all program runs. If there is no such file, return the files for
    single runs.
    """
    files = [file for file in sorted(folder.glob("*")) if file.is_file()]
    if joined := [file for file in files if file.name in (COUNTER_FILE, f"{COUNTER_FILE}.gz")]:
        return joined[:1]
    runs = [file for file in files if RUN_FILES.fullmatch(file.name)]
    return runs if runs and _begins_counters(runs[0], head_or_nothing(runs[0], HEAD_BYTES)) else []


def _begins_counters(path: Path, head: bytes) -> bool:
    header = header_of(head)
    is_known = column_table("rocprof_compute").contents_of(header) is not None
    return is_known and not is_of_rocprofv2(path, header)
