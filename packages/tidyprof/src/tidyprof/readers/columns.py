"""Columns of the CSV formats of ROCm's profilers.

A column table is a TOML file in the folder of a format. It lists what the tool writes, and what
tidyprof calls it. `rocprofv3/tables.toml` explains its parts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tidyprof.errors import EMPTY, ProfileReadError
from tidyprof.package_data import table_of

HEAD_BYTES = 2**16
"""Number of uncompressed bytes at the start of a file that are enough to recognize its format."""


@dataclass(frozen=True)
class ColumnTable:
    """The column table of one tool.

    - files: contents of a file, the columns that its header has, and the columns that it lacks
    - columns: name and type of each column. The keys are in lowercase.
    - counter: pattern of the other columns that are counters
    - ignored: columns without a use, in lowercase
    - complete: name of the column that has a value in every complete row. If empty, it is the last
      column.
    - missing: strings that mean a missing value, in addition to an empty cell
    - domains: regular expressions of domains, and the kinds of their records
    - members: members of a JSON record. Nested members are in nested dictionaries.
    """

    files: Sequence[dict[str, Any]]
    columns: dict[str, str]
    counter: str = "(?!)"
    ignored: Sequence[str] = ()
    complete: str = ""
    missing: Sequence[str] = ()
    domains: dict[str, str] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)

    def contents_of(self, header: Sequence[str]) -> str | None:
        """Return the contents of a CSV file with this header. Return None if the file is from
        another tool.
        """
        names = {column.lower() for column in header}
        for known in self.files:
            if names.issuperset(known["has"]) and names.isdisjoint(known.get("lacks", ())):
                return known["contents"]
        return None

    def kind_of(self, domain: str) -> str | None:
        """Return the kind of event in a domain, which is one of `contract.KINDS`. Return None if
        the domain's records aren't kept.
        """
        for pattern, kind in self.domains.items():
            if re.fullmatch(pattern, domain, re.IGNORECASE):
                return kind
        return None

    def is_counter(self, column: str) -> bool:
        """Return True if the column contains a counter."""
        is_known = column.lower() in self.columns or column.lower() in self.ignored
        return not is_known and re.fullmatch(self.counter, column) is not None


@cache
def column_table(folder: str) -> ColumnTable:
    """Return the column table in the folder of a format, such as `rocprofv3`."""
    return ColumnTable(**table_of(f"readers/{folder}/tables.toml"))


def header_of(head: bytes) -> list[str]:
    """Return the column names in the first line of a file, or nothing if the file isn't CSV."""
    line, end, _ = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    try:
        return next(csv.reader([line.rstrip(b"\r").decode("utf-8")] if end else [], strict=True))
    except (csv.Error, UnicodeDecodeError, StopIteration):
        return []


def foreign(path: Path, head: bytes, tool: str, next_step: str) -> ProfileReadError:
    """Return the error for a file that starts with `head` and isn't from the tool."""
    if not head.strip():
        return ProfileReadError(path, *EMPTY)
    header = header_of(head)
    shown = ", ".join(header)[:80]
    found = f"its columns are {shown!r}" if len(header) > 1 else f"it starts with {head[:24]!r}"
    cause = "another tool wrote the file, or its beginning is damaged"
    return ProfileReadError(path, f"the file isn't {tool} output ({found})", cause, next_step)
