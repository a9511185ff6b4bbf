"""Local logs of a learner's work as JSON lines. The course never sends these logs anywhere."""

from __future__ import annotations

import errno
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def runs_folder() -> Path:
    """Return the results folder: PROFLAB_RUNS, or `runs` in the current folder."""
    return Path(os.environ.get("PROFLAB_RUNS", "runs"))


def append(name: str, record: dict[str, Any]) -> None:
    """Append `record` and the current UTC time to runs/`name`.

    If writing fails, print one line to stderr, and let the lesson continue.
    """
    path = runs_folder() / name
    line = json.dumps(
        {"time": datetime.now(UTC).isoformat(timespec="seconds"), **record}, ensure_ascii=False
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # Use a single write call, so that another process can't write in between. If a crash
            # cut off the last line, start a new line. JSON escapes lone surrogates because UTF-8
            # can't encode them.
            content = b"\n" * _is_cut(file) + line.encode("utf-8", "backslashreplace") + b"\n"
            if os.write(file, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
    except OSError as error:
        print(
            f"{path}: this step isn't logged because the file can't be written ({error.strerror})",
            file=sys.stderr,
        )


def _is_cut(file: int) -> bool:
    """Return True if the last line has no newline."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def read(path: Path) -> list[dict[str, Any]]:
    """Return all undamaged records of a log file, in order."""
    return records_and_damaged(path)[0] if path.is_file() else []


def records_and_damaged(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return all undamaged records of a log file in order, and the number of damaged lines.

    Raises OSError if the file can't be read.
    """
    records, damaged = [], 0
    # Split only at "\n". splitlines() would also split at characters such as U+2028, which strings
    # may contain. Two processes that write at the same time may leave an empty line.
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
