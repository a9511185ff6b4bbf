"""Recognition of rocpd databases."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing, holds_table

MARKING_TABLE = "rocpd_kernel_dispatch"
"""A table that every rocpd database has, but no other database."""

PATTERNS = tuple(
    f"{folder}*.db{compression}" for folder in ("", "[!.]*/") for compression in ("", ".gz", ".zst")
)
"""Patterns for the names of databases in a folder. By default, rocprofv3 writes
OUT/HOST/PID_results.db. Hidden folders are skipped because they may contain files that are still
being written.
"""


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file is a rocpd database, or if a folder contains a rocpd database. `head`
    contains the first uncompressed bytes of the file.
    """
    if path.is_dir():
        return any(
            is_rocpd(file) for pattern in PATTERNS for file in path.glob(pattern) if file.is_file()
        )
    return holds_table(head, MARKING_TABLE)


def is_rocpd(file: Path) -> bool:
    """Return True if a file is a rocpd database. The file can have any name and any supported
    compression.
    """
    return recognizes(file, head_or_nothing(file, HEAD_BYTES))
