"""Recognition of rocmProfileData files."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import holds_table, is_in_folder

PATTERNS = tuple(
    f"{folder}*.rpd{compression}"
    for folder in ("", "*rank*/")
    for compression in ("", ".gz", ".zst")
)


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file that starts with `head` has this format, or if a folder contains such a
    file.
    """
    return is_in_folder(path, PATTERNS, is_rpd) if path.is_dir() else is_rpd(head)


def is_rpd(head: bytes) -> bool:
    """Return True if a file that starts with `head` is from rocmProfileData."""
    return holds_table(head, "rocpd_api_ops")
