"""Recognition of memory snapshots from PyTorch's allocator."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import is_in_folder, is_pickle

PATTERNS = ("*.pickle*", "*.pkl*", "*rank*/*.pickle*", "*rank*/*.pkl*")
"""Patterns for the names of snapshots in a folder. torch's default name is
`dump_snapshot.pickle`.
"""

_MARKS = (b"segments", b"device_traces")


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file that starts with `head` is a snapshot, or if a folder contains a
    snapshot.
    """
    return is_in_folder(path, PATTERNS, is_snapshot) if path.is_dir() else is_snapshot(head)


def is_snapshot(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a memory snapshot."""
    return is_pickle(head) and any(mark in head for mark in _MARKS)
