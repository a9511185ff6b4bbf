"""Times in the logs of system monitors: Unix times in any unit, dates with and without a zone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.text_cells import LARGEST_WHOLE

FIRST_SECOND, LAST_SECOND = 10**9, 4 * 10**9
"""Unix times of logs lie between these: September 2001 and the year 2096."""

_NUMBER = re.compile(r"\d{1,20}(\.\d{1,12})?", re.ASCII)
_UNITS_NS = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_zone(name: str | None, path: Path) -> tzinfo | None:
    """The zone of this name (`UTC`, `Europe/Berlin`). Raises ProfileReadError if there is none of it."""
    if name is None:
        return None
    try:
        return UTC if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ProfileReadError(
            path, f"the time zone {name[:40]!r} is not known", "a typing error", "pass a name such as 'Europe/Berlin'"
        ) from None


class Times:
    """Texts of times as nanoseconds since 1970, all of one file in one unit.

    unit -- what the numbers count (`seconds`, ..., or `dates`); zone -- how dates without a zone were read,
    None if there were none.
    """

    def __init__(self, texts: Sequence[str], path: Path, zone: tzinfo | None, *, already_ns: bool = False) -> None:
        self.unit = "nanoseconds" if already_ns else ""
        self.zone: str | None = None
        self._path = path
        self._zone = zone
        numbers = {text: self._number(text) for text in texts}
        known = [number for number in numbers.values() if number is not None]
        # Among numbers a text is damage, and no date.
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
            f"times from {min(numbers)} to {max(numbers)}, which are no Unix times",
            "they count from the start of the run, or are in different units",
            "write Unix times, or the columns time_ns,device,name,value,unit",
        )

    def _nanoseconds(self, text: str, number: Decimal | None) -> int:
        if self.unit in _UNITS_NS:
            found = None if number is None else int(number * _UNITS_NS[self.unit])
        else:
            found = self._date(text.strip())
        if found is None or not 0 <= found < LARGEST_WHOLE:
            raise ProfileReadError(self._path, f"{text[:40]!r} instead of a time", *DAMAGED)
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
        """A clock time that the change between summer and winter time has twice, or not at all, is no time."""
        offsets = {date.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)}
        if len(offsets) > 1:
            raise ProfileReadError(
                self._path,
                f"{text[:40]!r} is not one time in the zone {zone}",
                "it lies in the hour in which clocks were changed",
                "pass time_zone with a fixed offset, such as 'Etc/GMT-1'",
            )
