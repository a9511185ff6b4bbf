"""Readings from all formats of system monitor logs. The readings are checked and combined into a
counter table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
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
    - nanoseconds: the time of each string
    """

    def __init__(
        self, texts: Sequence[str], path: Path, zone: tzinfo | None, *, already_ns: bool = False
    ) -> None:
        self.zone: str | None = None
        self._path = path
        self._zone = zone or UTC
        numbers = {text: Decimal(text.strip()) for text in texts if _NUMBER.fullmatch(text.strip())}
        # If most times are numbers, any other string is damage instead of a date.
        self.unit = "nanoseconds"
        if not already_ns:
            is_date = not numbers or 2 * len(numbers) < len(texts)
            self.unit = "dates" if is_date else self._unit_of(numbers.values())
        self.nanoseconds = {text: self._parsed(text, numbers.get(text)) for text in texts}

    def _unit_of(self, numbers: Collection[Decimal]) -> str:
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

    def _parsed(self, text: str, number: Decimal | None) -> int:
        found = -1
        if self.unit == "dates":
            found = self._date(text.strip())
        elif number is not None:
            found = int(number * _UNITS_NS[self.unit])
        if not 0 <= found < LARGEST_WHOLE:
            raise ProfileReadError(self._path, f"{text[:40]!r} isn't a time", *DAMAGED)
        return found

    def _date(self, text: str) -> int:
        try:
            date = pd.Timestamp(datetime.fromisoformat(text)).as_unit("ns")
        except (ValueError, OverflowError):
            return -1
        if date.tzinfo is None:
            self.zone = str(self._zone)
            try:
                date = date.tz_localize(self._zone)
            except ValueError:
                raise ProfileReadError(
                    self._path,
                    f"the time {text[:40]!r} is ambiguous in the zone {self._zone}",
                    "clocks were changed for daylight saving time during that hour",
                    "pass time_zone with a fixed offset, such as 'Etc/GMT-1'",
                ) from None
        return int(date.value)


COLUMNS = COUNTER_DTYPES | {"partition": "Int32", "host": "category"}

MAX_VALUE = 1e300
"""Numbers of at least this size are treated as damage."""

_CELL = re.compile(
    r"\(?\s*([+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z%°/]{0,8})\s*\)?",
    re.ASCII,
)
_DEVICE = re.compile(r"(?:(?:card|gpu|device)[\s_\-\[:]*)?(\d{1,9})\]?", re.IGNORECASE | re.ASCII)
_UNAVAILABLE = frozenset({65535.0, 4294967295.0, 2.0**64 - 1})


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
        places: pd.DataFrame,
    ) -> None:
        """Add values of one quantity in the quantity's unit. NaN means that a value isn't
        available. Impossible values are left out and counted.

        - places: the time, device, partition and host of each value
        """
        unit, low, high = QUANTITIES.get(found.name, ("", -MAX_VALUE, MAX_VALUE))
        is_missing = np.isnan(value)
        possible = (value >= low) & (value <= high)
        self.missing[found.name] += int(is_missing.sum())
        beyond = f"{found.name} beyond {low:g} to {high:g} {unit}".rstrip()
        self.dropped += Counter({beyond: int((~is_missing & ~possible).sum())})
        self.blocks.append(
            places[possible].assign(name=found.name, unit=found.unit, value=value[possible])
        )

    def refuse_several_snapshots(self) -> None:
        """Raise ProfileReadError if there are several samples without times, because their order is
        unknown.
        """
        if not any(map(len, self.blocks)):
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
        if again := int(table.duplicated().sum()):
            self.dropped[f"readings {REPEATED}"] = again
            self.warnings.append(f"{self.path.name}: {again} repeated readings were left out.")
        return table.drop_duplicates(ignore_index=True) if again else table


def combined(blocks: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Combine blocks of readings into one table with the columns COLUMNS, sorted by time."""
    table = pd.concat([block.astype({"host": "object"}) for block in blocks], ignore_index=True)
    table = table.sort_values("time_ns", kind="stable", ignore_index=True)
    return table[list(COLUMNS)].astype(COLUMNS)


def cell_value(text: str) -> tuple[float, str] | None:
    """Return the number and the unit in a cell such as `171 W` or `(800Mhz)`. Return None for other
    text.

    Return NaN for an empty cell. Also return NaN if all bits of the number are set, because the
    driver writes such numbers for unknown values.
    """
    text = text.strip()
    match = _CELL.fullmatch(text)
    if text in ABSENT_TEXTS or (match and float(match[1]) in _UNAVAILABLE):
        return float("nan"), ""
    return (float(match[1]), match[2]) if match else None


def device_number(text: str) -> int | None:
    """Return the device number in a string such as `card0`, `GPU[0]` or `0`. Return None for other
    strings.
    """
    match = _DEVICE.fullmatch(text.strip())
    return int(match[1]) if match and int(match[1]) < 2**31 else None
