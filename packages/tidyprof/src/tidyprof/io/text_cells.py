"""Functions that convert the cells of text files."""

from __future__ import annotations

import re
from decimal import Decimal

ABSENT_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "None", "null"})
"""Strings that profilers write for a missing value."""

LARGEST_WHOLE = 2**62
"""Smallest integer that counts as damage. As a number of nanoseconds, it corresponds to 146
years.
"""

_NUMBER = re.compile(r"[+-]?(\d+)(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)


def whole_number(text: str) -> int | None:
    """Return the nearest integer, or None if the string isn't a number below LARGEST_WHOLE."""
    text = text.strip(" ")
    match = _NUMBER.fullmatch(text)
    if not match or len(match[1]) > 30 or abs(float(text)) >= LARGEST_WHOLE:
        return None
    return int(text) if match[2] is None and match[3] is None else round(Decimal(text))
