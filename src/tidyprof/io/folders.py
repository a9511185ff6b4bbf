"""What lies in a folder under a recording's name and is no file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_DATA_NAME = re.compile(
    r"\.(csv|json|txt|log|db|rpd|pftrace|perfetto-trace|proto|pickle|pkl|pt)(\.gz|\.zst)?$", re.IGNORECASE
)


def no_files(folders: Iterable[Path]) -> dict[Path, str]:
    """Entries of these folders that are named as files of data and are none -> what they are instead."""
    entries = (entry for folder in folders for entry in sorted(folder.iterdir()) if _DATA_NAME.search(entry.name))
    return {entry: _kind(entry) for entry in entries if entry.name[0] != "." and not entry.is_file()}


def _kind(entry: Path) -> str:
    if entry.is_dir():
        return "a folder in the place of a file"
    # What does not exist behind a link is no entry that can be looked at.
    return "a pipe, socket or device" if entry.exists() else "a link that leads nowhere"
