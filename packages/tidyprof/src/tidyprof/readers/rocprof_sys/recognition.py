"""The files that rocprof-sys writes beside its Perfetto trace: their contents, and what their names
tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tidyprof.io.byte_stream import head_or_nothing

_HEAD_BYTES = 2**16
_NAME = re.compile(
    r"(?P<metric>.+?)(?:-(?P<suffix>[0-9]{1,9}))?\.(?P<format>json|txt)(?:\.gz|\.zst)?",
    re.IGNORECASE,
)
_JSON_TABLE = re.compile(rb'\s*\{\s*"timemory"\s*:')
_METADATA = re.compile(
    rb'\s*\{\s*"(?:rocprofiler-systems|omnitrace|rocprofsys)"\s*:\s*\{\s*"metadata"\s*:'
)
_TEXT_TABLE = re.compile(
    rb"\|-+\|\r?\n(?:\|[^\n]*\n){1,8}?\|\s*LABEL\s*\|\s*COUNT\s*\|\s*DEPTH\s*\|"
)


@dataclass(frozen=True)
class TableFile:
    """A file with a table.

    metric -- the subject of the table by the file's name: `wall_clock`, `sampling_percent`, ...
    suffix -- number at the end of the name: the process or, in a job of MPI, the rank; None without
              one.
    format -- `json` or `text`.
    """

    path: Path
    metric: str
    suffix: int | None
    format: str


def content_of(head: bytes) -> str | None:
    """The content of a file that starts with `head`: `json` or `text` for a table, `metadata`, or
    None.
    """
    if _JSON_TABLE.match(head):
        return "json"
    if _METADATA.match(head):
        return "metadata"
    return "text" if _TEXT_TABLE.match(head) else None


def table_file(path: Path, head: bytes) -> TableFile | None:
    """The table in a file that starts with `head`, None if there is none."""
    content = content_of(head)
    if content not in ("json", "text"):
        return None
    found = _NAME.fullmatch(path.name)
    if not found:
        return TableFile(path, path.name.partition(".")[0], None, content)
    return TableFile(
        path, found["metric"], int(found["suffix"]) if found["suffix"] else None, content
    )


def files_of_folder(folder: Path) -> tuple[list[TableFile], list[Path]]:
    """The tables in a folder, those in text only where there is no JSON of them; and its metadata
    files.

    A file that cannot be opened is no error here; its reader raises it.
    """
    tables, metadata = [], []
    for path in sorted(folder.iterdir()):
        if not (_NAME.fullmatch(path.name) and path.is_file()):
            continue
        head = head_or_nothing(path, _HEAD_BYTES)
        if content_of(head) == "metadata":
            metadata.append(path)
        elif found := table_file(path, head):
            tables.append(found)
    as_json = {(table.metric, table.suffix) for table in tables if table.format == "json"}
    kept = [
        table
        for table in tables
        if table.format == "json" or (table.metric, table.suffix) not in as_json
    ]
    return kept, metadata


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds a table or the metadata of a run of rocprof-sys."""
    return any(files_of_folder(folder))


def runs_below(folder: Path) -> list[Path]:
    """Folders in a folder that hold a run each."""
    return sorted(below for below in folder.glob("[!.]*") if below.is_dir() and holds_tables(below))


def recognizes(path: Path, head: bytes) -> bool:
    """Whether content that starts with `head` is a table of rocprof-sys; of a folder, whether it
    holds a run of it.
    """
    if not path.is_dir():
        return table_file(path, head) is not None
    return holds_tables(path) or len(runs_below(path)) > 0
