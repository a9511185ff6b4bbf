"""Recognition of rocmProfileData files."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing, holds_table

PATTERNS = tuple(
    f"{folder}*.rpd{compression}"
    for folder in ("", "*rank*/")
    for compression in ("", ".gz", ".zst")
)


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file is an rpd file, or if a folder contains an rpd file. `head` contains
    the first uncompressed bytes of the file.
    """
    if path.is_dir():
        return any(
            is_rpd(file) for pattern in PATTERNS for file in path.glob(pattern) if file.is_file()
        )
    return holds_table(head, "rocpd_api_ops")


def is_rpd(file: Path) -> bool:
    """Return True if a file is from rocmProfileData. The file can have any name and any supported
    compression.
    """
    return recognizes(file, head_or_nothing(file, HEAD_BYTES))
