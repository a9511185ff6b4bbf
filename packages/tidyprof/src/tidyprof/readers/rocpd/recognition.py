"""Whether a file is a rocpd database."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing, holds_table

MARKING_TABLE = "rocpd_kernel_dispatch"
"""A table that every rocpd database has, and no other database."""

PATTERNS = tuple(
    f"{folder}*.db{compression}" for folder in ("", "[!.]*/") for compression in ("", ".gz", ".zst")
)
"""Names of databases in a folder: rocprofv3 writes OUT/HOST/PID_results.db by default. A hidden
folder may hold what is being written now.
"""


def recognizes(path: Path, head: bytes) -> bool:
    """Whether a file that starts with `head` (unpacked) is a rocpd database; of a folder, whether
    it holds one.
    """
    if path.is_dir():
        return any(
            is_rocpd(file) for pattern in PATTERNS for file in path.glob(pattern) if file.is_file()
        )
    return holds_table(head, MARKING_TABLE)


def is_rocpd(file: Path) -> bool:
    """Whether a file is a rocpd database, whatever its name and compression."""
    return recognizes(file, head_or_nothing(file, HEAD_BYTES))
