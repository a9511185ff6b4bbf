"""Recognition of rocpd databases."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import holds_table, is_in_folder

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
    """Return True if a file that starts with `head` has this format, or if a folder contains such a
    file.
    """
    return is_in_folder(path, PATTERNS, is_rocpd) if path.is_dir() else is_rocpd(head)


def is_rocpd(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a rocpd database."""
    return holds_table(head, MARKING_TABLE)
