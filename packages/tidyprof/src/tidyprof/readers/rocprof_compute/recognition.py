"""Recognition of folders and files from rocprof-compute."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing, holds_table
from tidyprof.readers.rocprof_v1.recognition import is_of_rocprofv2
from tidyprof.readers.rocprofv3.columns import header_of

COUNTER_FILE = "pmc_perf.csv"
"""File with the counters of all program runs. Since ROCm 10.2, this file is compressed, and its
name ends in .gz.
"""

RUN_FILES = ("results_*.csv", "results_*.csv.gz")
"""Files with the counters of one run each, with one row per counter. `profile` has written these
files since ROCm 7.13 and compressed them since ROCm 10.1. `analyze` joins them.
"""

MARKER_TABLE = "compute_workload"

SEPARATE_RUNS = "pmc_perf_*.csv"
"""Files with the counters of single runs, with one column per counter. They come from the CSV back
end in ROCm 7.13 to 10.0.
"""

_COUNTER_HEADER = re.compile(rb'\A(?:\xef\xbb\xbf)?[^\n]{0,600}?\bDispatch_ID"?,', re.DOTALL)


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if the path is a workload folder, a counter file or an analysis database."""
    if path.is_dir():
        return bool(workload_folders(path)) or any(path.glob(SEPARATE_RUNS))
    return holds_table(head, MARKER_TABLE) or _begins_counters(path, head)


def workload_folders(folder: Path) -> list[Path]:
    """Return the folder itself if it contains counter files. Otherwise, return the folders with
    counter files up to two levels below it.
    """
    if counter_files(folder):
        return [folder]
    names = (COUNTER_FILE, f"{COUNTER_FILE}.gz", *RUN_FILES)
    found = {
        file.parent
        for place in ("[!.]*", "[!.]*/[!.]*")
        for name in names
        for file in folder.glob(f"{place}/{name}")
    }
    return sorted(place for place in found if counter_files(place))


def counter_files(folder: Path) -> list[Path]:
    """Return the counter file for all program runs. If there is no such file, return the files for
    single runs.
    """
    joined = [
        file for file in (folder / COUNTER_FILE, folder / f"{COUNTER_FILE}.gz") if file.is_file()
    ]
    if joined:
        return joined[:1]
    runs = sorted(file for pattern in RUN_FILES for file in folder.glob(pattern) if file.is_file())
    return runs if runs and _begins_counters(runs[0], head_or_nothing(runs[0], HEAD_BYTES)) else []


def _begins_counters(path: Path, head: bytes) -> bool:
    return (
        bool(_COUNTER_HEADER.match(head))
        and b"Kernel_Name" in head
        and not is_of_rocprofv2(path, header_of(head) or ())
    )
