"""Small local files of what a learner did: one JSON object per line, never sent anywhere."""

from __future__ import annotations

import errno
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def runs_folder() -> Path:
    """Folder for everything a learner produces: PROFLAB_RUNS, else `runs` where the notebook or
    shell stands.
    """
    return Path(os.environ.get("PROFLAB_RUNS", "runs"))


def append(name: str, record: dict[str, Any]) -> None:
    """Add `record` and the time (UTC) to runs/`name`.

    A disk that can't be written costs the note, not the lesson: it is reported on stderr.
    """
    path = runs_folder() / name
    line = json.dumps(
        {"time": datetime.now(UTC).isoformat(timespec="seconds"), **record}, ensure_ascii=False
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # One call, which no other writer's can come between, behind the end of a line that a
            # crash has cut. A lone surrogate, which UTF-8 has not, becomes JSON's own escape for
            # it.
            content = b"\n" * _is_cut(file) + line.encode("utf-8", "backslashreplace") + b"\n"
            if os.write(file, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
    except OSError as error:
        print(
            f"{path}: could not be written ({error.strerror}); this step is not remembered",
            file=sys.stderr,
        )


def _is_cut(file: int) -> bool:
    """Whether the last line has no end."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a journal in order; a line that was cut off by a crash is left out."""
    return records_and_damaged(path)[0] if path.is_file() else []


def records_and_damaged(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All records of a journal in order, and how many of its lines are none. Raises OSError."""
    records, damaged = [], 0
    # Only "\n" ends a line: for splitlines() U+2028 and others do, too, which a text may hold.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in filter(
            str.strip, lines
        ):  # who writes while another does may leave an empty one
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                damaged += 1
    return records, damaged
