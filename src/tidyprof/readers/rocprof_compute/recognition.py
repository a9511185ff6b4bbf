"""Whether a folder or file is what rocprof-compute writes."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.sqlite_header import holds_table

COUNTER_FILE = "pmc_perf.csv"

MARKER_TABLE = "compute_workload"
"""A table that only this kind of database has."""

SEPARATE_RUNS = "pmc_perf_*.csv"

_COUNTER_HEADER = re.compile(rb'\A(?:\xef\xbb\xbf)?[^\n]{0,600}?\bDispatch_ID"?,', re.DOTALL)


def recognises(path: Path, head: bytes) -> bool:
    """Whether a path is a workload folder, its pmc_perf.csv, or an analysis database."""
    if path.is_dir():
        return bool(workload_folders(path)) or any(path.glob(SEPARATE_RUNS))
    return holds_table(head, MARKER_TABLE) or (bool(_COUNTER_HEADER.match(head)) and b"Kernel_Name" in head)


def workload_folders(folder: Path) -> list[Path]:
    """Folders with a pmc_perf.csv: this one, or those up to two levels below it."""
    if (folder / COUNTER_FILE).is_file():
        return [folder]
    return sorted(
        file.parent for pattern in ("*", "*/*") for file in folder.glob(f"{pattern}/{COUNTER_FILE}") if file.is_file()
    )
