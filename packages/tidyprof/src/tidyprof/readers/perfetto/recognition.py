"""Recognition of Perfetto traces."""

from __future__ import annotations

import re
from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing

_TRACE_NAME = re.compile(r"\.(pftrace|perfetto-trace|proto|pb)(\.gz|\.zst)?$", re.IGNORECASE)
_FIRST_TAG = b"\n"
"""First byte of every trace, because a trace is a sequence of packets (field 1, type 2 of
`Trace`).
"""


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file that starts with `head` is a Perfetto trace, or if a folder contains a
    Perfetto trace.
    """
    return bool(trace_files(path)) if path.is_dir() else _is_trace(head)


def trace_files(folder: Path) -> list[Path]:
    """Return the traces that `sorted_files` finds."""
    return sorted_files(folder)[0]


def sorted_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Find Perfetto traces by name and contents in a folder and up to two levels below the folder.
    Also return the files that have a trace's name but aren't traces.

    An empty or unreadable file counts as a trace, because it may be the trace of a rank. Hidden
    folders are skipped.
    """
    places = (f"{'[!.]*/' * depth}*" for depth in range(3))
    named = sorted(
        {file for place in places for file in folder.glob(place) if _TRACE_NAME.search(file.name)}
    )
    heads = {file: head_or_nothing(file, HEAD_BYTES) for file in named if file.is_file()}
    traces = [file for file, head in heads.items() if not head or _is_trace(head)]
    return traces, [file for file in heads if file not in traces]


def _is_trace(head: bytes) -> bool:
    if not head.startswith(_FIRST_TAG):
        return False
    # Imported here because other files are recognized without Perfetto's message classes.
    from tidyprof.readers.perfetto.packets import looks_like_trace

    return looks_like_trace(head)
