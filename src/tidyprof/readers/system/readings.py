"""Readings of a system monitor, collected from any of its formats, checked, and made a counter table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import QUANTITIES, Meaning
from tidyprof.tables.contract import COUNTER_DTYPES
from tidyprof.tables.damage import REPEATED, refuse_damage

COLUMNS = COUNTER_DTYPES | {"partition": "Int32", "host": "category"}
"""Columns of `counters` and their dtypes."""

LARGEST = 1e300
"""Numbers from here on are damage."""

_CELL = re.compile(r"\(?\s*([+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z%°/]{0,8})\s*\)?", re.ASCII)
_DEVICE = re.compile(r"(?:(?:card|gpu|device)[\s_\-\[:]*)?(\d{1,9})\]?", re.IGNORECASE | re.ASCII)
_UNAVAILABLE = frozenset({65535.0, 4294967295.0, 2.0**64 - 1})


@dataclass(frozen=True)
class TextColumn:
    """A column of text: for each row the place (int32) of its text in `values`, which are distinct."""

    codes: np.ndarray
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> np.ndarray:
        """The text of each row."""
        return np.array(self.values, dtype=object)[self.codes]


@dataclass
class Readings:
    """Blocks of readings of one file, and what was left out.

    blocks  -- tables with the columns COLUMNS. rows -- rows or samples of the file; empty_rows -- those without any
    value. missing -- quantity -> cells that say "not available"; text_columns -- columns without any number;
    dropped -- reason -> values left out.
    """

    path: Path
    blocks: list[pd.DataFrame] = field(default_factory=list)
    rows: int = 0
    empty_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    text_columns: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def add(
        self,
        found: Meaning,
        value: np.ndarray,
        time_ns: np.ndarray,
        device: pd.array,
        partition: pd.array | None = None,
        host: Sequence[str | None] | None = None,
    ) -> None:
        """Values of one quantity in its unit; NaN is not available, impossible ones are dropped and counted."""
        present = ~np.isnan(value)
        self.missing[found.name] += int((~present).sum())
        possible = present & self._possible(found, value, present)
        if not possible.any():
            return
        rows = np.flatnonzero(possible)
        block = {"time_ns": time_ns[rows], "device": device[rows], "value": value[rows]}
        block |= {"name": found.name, "unit": found.unit}
        block["partition"] = pd.NA if partition is None else partition[rows]
        block["host"] = None if host is None else np.asarray(host, dtype=object)[rows]
        self.blocks.append(pd.DataFrame(block))

    def _possible(self, found: Meaning, value: np.ndarray, present: np.ndarray) -> np.ndarray:
        unit, low, high = QUANTITIES.get(found.name, ("", -LARGEST, LARGEST))
        good = (value >= low) & (value <= high)
        wrong = int((present & ~good).sum())
        if wrong:
            self.dropped[f"{found.name} out of {low:g} to {high:g} {unit}".rstrip()] += wrong
        return good

    def refuse_several_snapshots(self) -> None:
        """Without times only one sample can be told from the next. Raises ProfileReadError if there are more."""
        if not self.blocks:
            return
        if combined(self.blocks).duplicated(["device", "partition", "host", "name"]).any():
            raise ProfileReadError(
                self.path,
                "several samples without times",
                "snapshots were appended to one file",
                "log with a time: amd-smi monitor -w 1 with --csv or --json, or columns time_ns,device,name,value,unit",
            )
        self.warnings.append(f"{self.path.name}: one snapshot without a time; time_ns is 0.")

    def finished(self) -> pd.DataFrame:
        """All readings in order of time. Raises ProfileReadError if there are none, or too many are unusable."""
        kept = sum(len(block) for block in self.blocks)
        refuse_damage(
            self.path,
            "values",
            self.dropped,
            kept + self.dropped.total(),
            "units other than the columns say, shifted columns, or a damaged file",
            "check the header against the values",
        )
        if not kept:
            raise ProfileReadError(
                self.path,
                f"no reading in {self.rows} rows",
                "the tool saw no GPU, or was stopped before its first sample",
                "run it on the node with the GPU, for at least one interval",
            )
        table = combined(self.blocks)
        if (again := int(table.duplicated().sum())) == 0:
            return table
        self.dropped[f"readings {REPEATED}"] = again
        self.warnings.append(f"{self.path.name}: {again} readings are there twice; one of each was kept.")
        return table.drop_duplicates(ignore_index=True)


def combined(blocks: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Blocks of readings as one table in the columns COLUMNS, in order of time."""
    parts = [block.astype({"partition": "Int32", "device": "Int32", "host": "object"}) for block in blocks]
    table = pd.concat(parts, ignore_index=True).sort_values("time_ns", kind="stable", ignore_index=True)
    return table[list(COLUMNS)].astype(COLUMNS)


def cell_value(text: str) -> tuple[float, str] | None:
    """Number and unit of a cell such as `171 W` or `(800Mhz)`: NaN where nothing is stated, None for other text."""
    text = text.strip()
    if text in ABSENT_TEXTS:
        return float("nan"), ""
    match = _CELL.fullmatch(text)
    if not match:
        return None
    return available(float(match[1])), match[2]


def available(number: float) -> float:
    """The number, NaN if it is one with which the driver says that it does not know (all bits set)."""
    return float("nan") if number in _UNAVAILABLE else number


def device_number(text: str) -> int | None:
    """The number in `card0`, `GPU[0]` or `0`; None if the text is none of these."""
    match = _DEVICE.fullmatch(text.strip())
    return int(match[1]) if match and int(match[1]) < 2**31 else None
