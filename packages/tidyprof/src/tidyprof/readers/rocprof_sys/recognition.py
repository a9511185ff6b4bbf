"""Recognition of the files that rocprof-sys writes next to its Perfetto trace."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.byte_stream import head_or_nothing

_HEAD_BYTES = 2**16
_NAME = re.compile(r"\.(json|txt)(\.gz|\.zst)?$", re.IGNORECASE)
_CONTENTS = {
    "table": re.compile(rb'\s*\{\s*"timemory"\s*:'),
    "metadata": re.compile(
        rb'\s*\{\s*"(?:rocprofiler-systems|omnitrace|rocprofsys)"\s*:\s*\{\s*"metadata"\s*:'
    ),
    "text": re.compile(rb"\|-+\|\r?\n(?:\|[^\n]*\n){1,8}?\|\s*LABEL\s*\|\s*COUNT\s*\|"),
}


def content_of(head: bytes) -> str | None:
    """Return the type of a file that starts with `head`: `table` for a table in JSON, `text` for a
    table in text, `metadata`, or None for other files.
    """
    return next((name for name, start in _CONTENTS.items() if start.match(head)), None)


def files_of_folder(folder: Path) -> dict[Path, str]:
    """Return the files in a folder that rocprof-sys wrote, and their types."""
    named = (path for path in sorted(folder.iterdir()) if _NAME.search(path.name))
    found = {
        path: content_of(head_or_nothing(path, _HEAD_BYTES)) for path in named if path.is_file()
    }
    return {path: content for path, content in found.items() if content}


def runs_below(folder: Path) -> list[Path]:
    """Return the subfolders that contain a run."""
    return sorted(
        below for below in folder.glob("[!.]*") if below.is_dir() and files_of_folder(below)
    )


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file that starts with `head` is from rocprof-sys, or if a folder contains a
    run.
    """
    if not path.is_dir():
        return content_of(head) is not None
    return bool(files_of_folder(path) or runs_below(path))
