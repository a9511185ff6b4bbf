"""Column tables of the CSV formats. A column table is a TOML file that lists what a tool writes,
and what tidyprof calls it. `tables.toml` explains its parts.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class ColumnTable:
    """The column table of one tool.

    - files: contents of a file, the columns that its header has, and the columns that it lacks
    - columns: name and type of each column. The keys are in lowercase.
    - domains: regular expressions of domains, and the kinds of their records
    - ignored: columns without a use, in lowercase. If the tool writes one column per counter, all
      other unknown columns are counters.
    - members: members of a JSON record. Nested members are in nested dictionaries.
    """

    files: Sequence[tuple[str, frozenset[str], frozenset[str]]]
    columns: dict[str, tuple[str, str]]
    domains: dict[str, str]
    ignored: frozenset[str]
    members: dict[str, Any]

    def contents_of(self, header: Sequence[str]) -> str | None:
        """Return the contents of a CSV file with this header. Return None if the file is from
        another tool.
        """
        names = {column.lower() for column in header}
        return next(
            (what for what, has, lacks in self.files if has <= names and not lacks & names), None
        )

    def kind_of(self, domain: str) -> str | None:
        """Return the kind of event in a domain, which is one of `contract.KINDS`. Return None if
        the domain's records aren't kept.
        """
        matches = (
            kind
            for pattern, kind in self.domains.items()
            if re.fullmatch(pattern, domain, re.IGNORECASE)
        )
        return next(matches, None)


@cache
def column_table(folder: str) -> ColumnTable:
    """Return the column table in the folder of a format, such as `rocprofv3`."""
    text = files(f"tidyprof.readers.{folder}").joinpath("tables.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return ColumnTable(
        [(one["contents"], frozenset(one["has"]), frozenset(one.get("lacks", ())))
         for one in table["files"]],
        {column: tuple(entry.split()) for column, entry in table["columns"].items()},
        table["domains"],
        frozenset(table.get("ignored", ())),
        table.get("members", {}),
    )  # fmt: skip


def header_of(head: bytes) -> list[str]:
    """Return the column names in the first line of a file, or nothing if the file isn't CSV."""
    line, end, _ = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    try:
        return next(csv.reader([line.rstrip(b"\r").decode("utf-8")] if end else [], strict=True))
    except (csv.Error, UnicodeDecodeError, StopIteration):
        return []
