"""Local logs of a learner's work with one JSON object per line. They are never sent anywhere."""

from __future__ import annotations

import errno
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def runs_folder() -> Path:
    """Return the folder for results: PROFLAB_RUNS, or `runs` in the current folder."""
    return Path(os.environ.get("PROFLAB_RUNS", "runs"))


def append(name: str, record: dict[str, Any]) -> None:
    """Add `record` and the time (UTC) to runs/`name`.

    If writing fails, print one line to stderr and continue the lesson.
    """
    path = runs_folder() / name
    line = json.dumps(
        {"time": datetime.now(UTC).isoformat(timespec="seconds"), **record}, ensure_ascii=False
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # Write with one call, so that another process can't write in between. If a crash cut
            # off the last line, start a new one. UTF-8 can't store a lone surrogate, so JSON
            # escapes it.
            content = b"\n" * _is_cut(file) + line.encode("utf-8", "backslashreplace") + b"\n"
            if os.write(file, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
    except OSError as error:
        print(
            f"{path}: can't write ({error.strerror}), so this step isn't logged",
            file=sys.stderr,
        )


def _is_cut(file: int) -> bool:
    """Return True if the last line has no newline."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def read(path: Path) -> list[dict[str, Any]]:
    """Return all intact records of a journal in order."""
    return records_and_damaged(path)[0] if path.is_file() else []


def records_and_damaged(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return all records of a journal in order and the number of damaged lines. Raises OSError."""
    records, damaged = [], 0
    # Only "\n" ends a line. splitlines() would also split at U+2028 and other characters that a
    # text may contain. Two processes that write at the same time may leave an empty line.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in filter(str.strip, lines):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                damaged += 1
    return records, damaged
