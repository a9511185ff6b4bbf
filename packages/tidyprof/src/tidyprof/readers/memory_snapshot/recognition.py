"""Recognition of memory snapshots from PyTorch's allocator."""

from __future__ import annotations

from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing, is_pickle

PATTERNS = ("*.pickle*", "*.pkl*", "*rank*/*.pickle*", "*rank*/*.pkl*")
"""Patterns for the names of snapshots in a folder. torch's default name is
`dump_snapshot.pickle`.
"""

_MARKS = (b"segments", b"device_traces")


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file that starts with `head` is a snapshot, or if a folder contains a
    snapshot.
    """
    if path.is_dir():
        return any(
            is_snapshot(file)
            for pattern in PATTERNS
            for file in path.glob(pattern)
            if file.is_file()
        )
    return _is_snapshot(head)


def is_snapshot(path: Path) -> bool:
    """Return True if the file is a memory snapshot."""
    return _is_snapshot(head_or_nothing(path, HEAD_BYTES))


def _is_snapshot(head: bytes) -> bool:
    return is_pickle(head) and any(mark in head for mark in _MARKS)
