"""Values of a snapshot that are what they have to be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.tables.codes import ABSENT

MOST_ROWS = 50_000_000
"""Entries and blocks of one file: a small file can name the same list again and again."""

_PYTHON = re.compile(r"\.py$|^<|^/tmp/ipykernel")
_TORCH = re.compile(r"(^|/)torch/")


class Structure:
    """Takes values out of one file's dictionaries; ProfileReadError where they are not what torch writes.

    what -- what the file should be, for the error.
    """

    def __init__(self, path: Path, what: str = "snapshot of PyTorch's allocator") -> None:
        self.path = path
        self._what = what
        self._rows = 0

    def rows(self, holder: Any, key: str) -> list[dict[str, Any]]:
        """A list of dictionaries; what is not there is empty."""
        found = holder.get(key, []) if isinstance(holder, dict) else None
        return self.dictionaries(found, key)

    def dictionaries(self, found: Any, what: str) -> list[dict[str, Any]]:
        """The list itself, if it is one of dictionaries and not too long."""
        if not isinstance(found, list):
            raise self.wrong(what)
        self._rows += len(found)
        if self._rows > MOST_ROWS:
            raise self.wrong(f"more than {MOST_ROWS} entries, {what}")
        if not all(isinstance(one, dict) for one in found):
            raise self.wrong(what)
        return found

    def number(self, row: dict[str, Any], key: str) -> int:
        """A whole number of 64 bits; ABSENT if it is not there."""
        value = row.get(key, ABSENT)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise self.wrong(key)
        return value

    def stated(self, row: dict[str, Any], key: str, bits: int = 64) -> int:
        """A whole number of so many bits; it has to be there."""
        value = self.number(row, key)
        if not -(2 ** (bits - 1)) < value < 2 ** (bits - 1):  # ABSENT is the lowest one
            raise self.wrong(key)
        return value

    def text(self, row: dict[str, Any], key: str) -> str:
        """A text; it has to be there."""
        value = row.get(key)
        if not isinstance(value, str):
            raise self.wrong(key)
        return value

    def frames(self, row: dict[str, Any]) -> list[str]:
        """Python's part of the call stack as `file(line): name`, innermost first."""
        return [
            f"{self.text(frame, 'filename')}({self.number(frame, 'line')}): {self.text(frame, 'name')}"
            for frame in self.rows(row, "frames")
            if _PYTHON.search(self.text(frame, "filename"))
        ]

    def wrong(self, what: str) -> ProfileReadError:
        """The error about something that torch does not write so."""
        return ProfileReadError(self.path, f"no {self._what} ({what} is not as it writes)", *DAMAGED)


def own_lines(frames: list[str]) -> list[str]:
    """Those of these functions that are not torch's own."""
    return [frame for frame in frames if not _TORCH.search(frame)]


def source_line(frames: list[str]) -> str | None:
    """The innermost function that is not torch's own; torch's innermost if there is no other, None without any."""
    return next(iter(own_lines(frames) or frames), None)
