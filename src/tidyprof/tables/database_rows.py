"""Rows of a database's table that can become events: unusable ones are counted, and refused if too many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.io.errors import ProfileReadError
from tidyprof.io.sqlite import Database
from tidyprof.readers.torch.events import ABSENT, LATEST_START_NS, Codes
from tidyprof.tables.damage import refuse_damage
from tidyprof.tables.kind_codes import refined


@dataclass
class Rows:
    """Rows of one table that can become events.

    columns  -- name -> array; `start`, `end` in ns, `kind` (place in KINDS), codes `name`, `category`.
    total    -- rows in the table.
    dropped  -- reason -> rows left out since they cannot be right.
    not_kept -- category -> rows left out since they are no work, such as barriers.
    """

    columns: dict[str, np.ndarray]
    total: int
    dropped: Counter[str] = field(default_factory=Counter)
    not_kept: Counter[str] = field(default_factory=Counter)

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns["start"])

    def keep(self, rows: np.ndarray) -> None:
        """Leave only the rows of a mask."""
        if not rows.all():
            self.columns = {name: values[rows] for name, values in self.columns.items()}


def refine_kinds(rows: Rows, texts: Codes) -> None:
    """Tell collectives, copies and fills among the kernels by their names."""
    rows.columns["kind"] = refined(rows["kind"], rows["name"], texts, np.zeros(len(rows), bool))


def counted(codes: np.ndarray, texts: Codes) -> Counter[str]:
    """How often each text occurs."""
    numbers = np.bincount(codes, minlength=len(texts)).tolist()
    return Counter({text: number for text, number in zip(texts, numbers, strict=True) if number})


def text_codes(
    database: Database, ids: np.ndarray, texts: Codes, table: str = "rocpd_string", column: str = "string"
) -> np.ndarray:
    """The codes of the texts with these identifiers, int32; -1 where the file has no such text."""
    places, unique = pd.factorize(ids)
    found = database.texts(table, unique, column)
    codes = [texts[found[number]] if number in found else -1 for number in unique.tolist()]
    return np.array([*codes, -1], np.int32)[places]


def drop_unusable(path: Path, rows: Rows, what: str, on_device: bool) -> None:
    """Remove rows that cannot be right, count why, and refuse the file if they are too many."""
    sound = np.ones(len(rows), bool)
    for reason, affected in _faults(rows, on_device).items():
        affected &= sound
        if affected.any():
            rows.dropped[reason] += int(affected.sum())
            sound &= ~affected
    rows.keep(sound)
    refuse_damage(
        path,
        what,
        rows.dropped,
        rows.total,
        "the profiler lost times, or a converter wrote times in another unit than whole nanoseconds",
        "record again, and pass the file that the profiler itself wrote",
    )


def refuse_repeated(path: Path, what: str, identifiers: np.ndarray) -> None:
    """Refuse a file in which two rows have the same identifier: links between its tables mean nothing then."""
    repeated = 0
    if (identifiers[1:] <= identifiers[:-1]).any():
        repeated = len(identifiers) - len(np.unique(identifiers))
    if repeated:
        raise ProfileReadError(
            path,
            f"{repeated} of {len(identifiers)} {what} have an identifier that another one has",
            "files of several runs were merged without renumbering",
            "read the files one by one",
        )


def _faults(rows: Rows, on_device: bool) -> dict[str, np.ndarray]:
    """Reasons to drop a row -> mask of the rows that they concern."""
    start, end = rows["start"], rows["end"]
    faults = {
        "without start or end": (start == ABSENT) | (end == ABSENT),
        "at time zero": start <= 0,
        "with negative duration": end < start,
        "with an impossible time": end >= LATEST_START_NS,
        "whose name is not in the file": rows["name"] < 0,
    }
    # Host ranges can be points in time; work on a device always takes some.
    return faults | {"without duration": end == start} if on_device else faults
