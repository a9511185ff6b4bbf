"""Readings from all formats of system monitor logs. The readings are checked and combined into a
counter table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS, LARGEST_WHOLE
from tidyprof.readers.system.names import QUANTITIES, Meaning
from tidyprof.tables.contract import COUNTER_DTYPES
from tidyprof.tables.damage import REPEATED, refuse_damage

FIRST_SECOND, LAST_SECOND = 10**9, 4 * 10**9
"""Range of Unix times in logs, from September 2001 to the year 2096."""

_NUMBER = re.compile(r"\d{1,20}(\.\d{1,12})?", re.ASCII)
_UNITS_NS = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_zone(name: str | None, path: Path) -> tzinfo | None:
    """Return the time zone with this name, such as `UTC` or `Europe/Berlin`. Raises
    ProfileReadError if the time zone is unknown.
    """
    if name is None:
        return None
    try:
        return UTC if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ProfileReadError(
            path,
            f"the time zone {name[:40]!r} is unknown",
            "the name is misspelled",
            "pass a name such as 'Europe/Berlin'",
        ) from None


class Times:
    """Conversion of time strings to nanoseconds since 1970. All times in a file have the same unit.

    - unit: unit of the numbers, such as `seconds`, or `dates`
    - zone: time zone that was assumed for dates without a time zone, or None if all dates have one
    """

    def __init__(
        self, texts: Sequence[str], path: Path, zone: tzinfo | None, *, already_ns: bool = False
    ) -> None:
        self.unit = "nanoseconds" if already_ns else ""
        self.zone: str | None = None
        self._path = path
        self._zone = zone
        numbers = {text: self._number(text) for text in texts}
        known = [number for number in numbers.values() if number is not None]
        # If most times are numbers, any other string is damage instead of a date.
        if not already_ns and known and 2 * len(known) >= len(numbers):
            self.unit = self._unit_of(known)
        elif not already_ns:
            self.unit = "dates"
        self._found = {text: self._nanoseconds(text, number) for text, number in numbers.items()}

    def __getitem__(self, text: str) -> int:
        return self._found[text]

    def _number(self, text: str) -> Decimal | None:
        return Decimal(text.strip()) if _NUMBER.fullmatch(text.strip()) else None

    def _unit_of(self, numbers: list[Decimal]) -> str:
        for unit, size in _UNITS_NS.items():
            low, high = (second * 10**9 // size for second in (FIRST_SECOND, LAST_SECOND))
            if all(low <= number < high for number in numbers):
                return unit
        raise ProfileReadError(
            self._path,
            f"the times from {min(numbers)} to {max(numbers)} aren't Unix times",
            "the times count from the start of the run, or they have different units",
            "write Unix times to the log",
        )

    def _nanoseconds(self, text: str, number: Decimal | None) -> int:
        if self.unit in _UNITS_NS:
            found = None if number is None else int(number * _UNITS_NS[self.unit])
        else:
            found = self._date(text.strip())
        if found is None or not 0 <= found < LARGEST_WHOLE:
            raise ProfileReadError(self._path, f"{text[:40]!r} isn't a time", *DAMAGED)
        return found

    def _date(self, text: str) -> int | None:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            return None
        if date.tzinfo is None:
            zone = self._zone or UTC
            self.zone = str(zone)
            self._refuse_ambiguous(text, date, zone)
            date = date.replace(tzinfo=zone)
        try:
            since = date - _EPOCH
        except OverflowError:
            return None
        return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000

    def _refuse_ambiguous(self, text: str, date: datetime, zone: tzinfo) -> None:
        """Raise ProfileReadError if a local time is ambiguous because of daylight saving time. Such
        a time occurs twice or never.
        """
        offsets = {
            date.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)
        }
        if len(offsets) > 1:
            raise ProfileReadError(
                self._path,
                f"the time {text[:40]!r} is ambiguous in the zone {zone}",
                "clocks were changed for daylight saving time during that hour",
                "pass time_zone with a fixed offset, such as 'Etc/GMT-1'",
            )


COLUMNS = COUNTER_DTYPES | {"partition": "Int32", "host": "category"}

MAX_VALUE = 1e300
"""Numbers of at least this size are treated as damage."""

_CELL = re.compile(
    r"\(?\s*([+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z%°/]{0,8})\s*\)?",
    re.ASCII,
)
_DEVICE = re.compile(r"(?:(?:card|gpu|device)[\s_\-\[:]*)?(\d{1,9})\]?", re.IGNORECASE | re.ASCII)
_UNAVAILABLE = frozenset({65535.0, 4294967295.0, 2.0**64 - 1})


@dataclass(frozen=True)
class TextColumn:
    """A text column. `codes` contains the index (int32) of each row's string in `values`, a list of
    distinct strings.
    """

    codes: np.ndarray
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> np.ndarray:
        """Return the string of each row."""
        return np.array(self.values, dtype=object)[self.codes]


@dataclass
class Readings:
    """Readings from one file, stored in blocks, and the amounts of data that were left out.

    - blocks: tables with the columns COLUMNS
    - rows: number of rows or samples in the file
    - empty_rows: number of rows without any value
    - missing: number of cells without a value, such as N/A, for each quantity
    - text_columns: columns without any numbers
    - dropped: number of values that were left out for each reason
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
        """Add values of one quantity in the quantity's unit. NaN means that a value isn't
        available. Impossible values are left out and counted.
        """
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
        unit, low, high = QUANTITIES.get(found.name, ("", -MAX_VALUE, MAX_VALUE))
        good = (value >= low) & (value <= high)
        wrong = int((present & ~good).sum())
        if wrong:
            self.dropped[f"{found.name} beyond {low:g} to {high:g} {unit}".rstrip()] += wrong
        return good

    def refuse_several_snapshots(self) -> None:
        """Raise ProfileReadError if there are several samples without times, because their order is
        unknown.
        """
        if not self.blocks:
            return
        if combined(self.blocks).duplicated(["device", "partition", "host", "name"]).any():
            raise ProfileReadError(
                self.path,
                "the file contains several samples without times",
                "snapshots were appended to the same file",
                "log samples with times by running amd-smi monitor -w 1 with --csv or --json",
            )
        self.warnings.append(
            f"{self.path.name}: the log is a snapshot without a time, so time_ns is 0."
        )

    def finished(self) -> pd.DataFrame:
        """Return all readings, sorted by time. Raises ProfileReadError if there are no readings, or
        if too many readings are unusable.
        """
        kept = sum(len(block) for block in self.blocks)
        refuse_damage(
            self.path,
            "values",
            self.dropped,
            kept + self.dropped.total(),
            "the units differ from the header, the columns are shifted, or the file is damaged",
            "compare the header with the values",
        )
        if not kept:
            raise ProfileReadError(
                self.path,
                f"the {self.rows} rows contain no readings",
                "the tool found no GPU, or it was stopped before its first sample",
                "run the tool on the GPU node for at least one sampling interval",
            )
        table = combined(self.blocks)
        if (again := int(table.duplicated().sum())) == 0:
            return table
        self.dropped[f"readings {REPEATED}"] = again
        self.warnings.append(f"{self.path.name}: {again} repeated readings were left out.")
        return table.drop_duplicates(ignore_index=True)


def combined(blocks: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Combine blocks of readings into one table with the columns COLUMNS, sorted by time."""
    parts = [
        block.astype({"partition": "Int32", "device": "Int32", "host": "object"})
        for block in blocks
    ]
    table = pd.concat(parts, ignore_index=True).sort_values(
        "time_ns", kind="stable", ignore_index=True
    )
    return table[list(COLUMNS)].astype(COLUMNS)


def cell_value(text: str) -> tuple[float, str] | None:
    """Return the number and the unit in a cell such as `171 W` or `(800Mhz)`. Return NaN for an
    empty cell and None for other text.
    """
    text = text.strip()
    if text in ABSENT_TEXTS:
        return float("nan"), ""
    match = _CELL.fullmatch(text)
    if not match:
        return None
    return available(float(match[1])), match[2]


def available(number: float) -> float:
    """Return the number. Return NaN if all bits of the number are set, because the driver writes
    such numbers for unknown values.
    """
    return float("nan") if number in _UNAVAILABLE else number


def device_number(text: str) -> int | None:
    """Return the device number in a string such as `card0`, `GPU[0]` or `0`. Return None for other
    strings.
    """
    match = _DEVICE.fullmatch(text.strip())
    return int(match[1]) if match and int(match[1]) < 2**31 else None
