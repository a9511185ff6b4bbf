"""Readings from all formats of system monitor logs. The readings are checked and combined into a
counter table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import QUANTITIES, Meaning
from tidyprof.tables.contract import COUNTER_DTYPES
from tidyprof.tables.damage import REPEATED, refuse_damage

FIRST_NS, LAST_NS = 10**18, 4 * 10**18
"""Range of Unix times in logs, from September 2001 to the year 2096."""

_NUMBER = re.compile(r"\d{1,20}(\.\d{1,12})?", re.ASCII)
_UNITS_NS = (10**9, 10**6, 10**3, 1)


def time_zone(name: str | None, path: Path) -> tzinfo | None:
    """Return the time zone with this name, such as `UTC` or `Europe/Berlin`. Raises
    ProfileReadError if the time zone is unknown.
    """
    try:
        return None if name is None else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ProfileReadError(
            path,
            f"the time zone {name!r} is unknown",
            "the name is misspelled",
            "pass a name such as 'Europe/Berlin'",
        ) from None


def nanoseconds(
    texts: Sequence[str], path: Path, zone: tzinfo | None
) -> tuple[dict[str, int], str]:
    """Return the nanoseconds since 1970 for each string. Also return the time zone that was assumed
    for dates without one, or "". Numbers have the unit in which all of them are Unix times.
    """
    if all(_NUMBER.fullmatch(text.strip()) for text in texts):
        numbers = {text: Decimal(text.strip()) for text in texts}
        for size in _UNITS_NS:
            times = {text: int(number * size) for text, number in numbers.items()}
            if all(FIRST_NS <= time < LAST_NS for time in times.values()):
                return times, ""
        raise ProfileReadError(
            path,
            f"the times from {min(numbers.values())} to {max(numbers.values())} aren't Unix times",
            "the times count from the start of the run, or they have different units",
            "write Unix times to the log",
        )
    found, assumed = {}, ""
    for text in texts:
        try:
            date = pd.Timestamp(datetime.fromisoformat(text.strip())).as_unit("ns")
            if date.tzinfo is None:
                assumed = str(zone or UTC)
                date = date.tz_localize(zone or UTC)
        except (ValueError, OverflowError):
            raise ProfileReadError(
                path,
                f"{text[:40]!r} isn't a time, or it occurs twice in the zone {zone or UTC}",
                "the file is damaged, or clocks were changed for daylight saving time",
                "compare the file with the original, or pass time_zone with a fixed offset, such"
                " as 'Etc/GMT-1'",
            ) from None
        found[text] = int(date.value)
    return found, assumed


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
    """Readings from one or more files, in blocks, and the amounts of data that were left out.

    - path: the file that is read
    - blocks: tables with the columns COLUMNS
    - rows: number of rows or samples in the files
    - empty_rows: number of rows without any value
    - missing: number of cells without a value, such as N/A, for each quantity
    - dropped: number of values that were left out for each reason
    """

    path: Path
    blocks: list[pd.DataFrame] = field(default_factory=list)
    rows: int = 0
    empty_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
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

    def finished(self) -> pd.DataFrame:
        """Return all readings with the columns COLUMNS, sorted by time. Raises ProfileReadError if
        there are no readings, if too many readings are unusable, or if there are several samples
        without times, because their order is unknown.
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
        blocks = [block.astype({"host": "object"}) for block in self.blocks]
        table = pd.concat(blocks, ignore_index=True)
        table = table.sort_values("time_ns", kind="stable", ignore_index=True)
        table = table[list(COLUMNS)].astype(COLUMNS)
        if again := int(table.duplicated().sum()):
            self.dropped[f"readings {REPEATED}"] = again
            self.warnings.append(f"{self.path.name}: {again} repeated readings were left out.")
            table = table.drop_duplicates(ignore_index=True)
        snapshot = table[table["time_ns"] == 0]
        if snapshot.duplicated(["device", "partition", "host", "name"]).any():
            raise ProfileReadError(
                self.path,
                "there are several samples without times",
                "snapshots were appended to the same file",
                "log samples with times by running amd-smi monitor -w 1 with --csv or --json",
            )
        if len(snapshot):
            self.warnings.append(
                f"{self.path.name}: the log is a snapshot without a time, so time_ns is 0."
            )
        return table


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
