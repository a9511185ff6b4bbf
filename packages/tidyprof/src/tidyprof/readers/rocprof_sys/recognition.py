"""Recognition of the files that rocprof-sys writes next to its Perfetto trace, by name and
contents.
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
    """A file that contains a table.

    - metric: the table's metric according to the file name, such as `wall_clock` or
      `sampling_percent`
    - suffix: number at the end of the file name, or None. It is the process number, or the rank in
      an MPI job.
    - format: `json` or `text`
    """

    path: Path
    metric: str
    suffix: int | None
    format: str


def content_of(head: bytes) -> str | None:
    """Return the type of a file that starts with `head`. The type is `json` or `text` for a table,
    `metadata` for a metadata file, and None for other files.
    """
    if _JSON_TABLE.match(head):
        return "json"
    if _METADATA.match(head):
        return "metadata"
    return "text" if _TEXT_TABLE.match(head) else None


def table_file(path: Path, head: bytes) -> TableFile | None:
    """Return the table in a file that starts with `head`, or None if the file isn't a table."""
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
    """Return the tables and metadata files in a folder. A text table is left out if the folder
    contains the same table as JSON.

    This function doesn't raise an error if a file can't be opened, because the file's reader raises
    the error later.
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
    """Return True if a folder contains a table or metadata file from rocprof-sys."""
    return any(files_of_folder(folder))


def runs_below(folder: Path) -> list[Path]:
    """Return the subfolders that contain a run."""
    return sorted(below for below in folder.glob("[!.]*") if below.is_dir() and holds_tables(below))


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if a file that starts with `head` is a rocprof-sys table, or if a folder contains
    a rocprof-sys run.
    """
    if not path.is_dir():
        return table_file(path, head) is not None
    return holds_tables(path) or len(runs_below(path)) > 0
