"""The values of cells in text files."""

from __future__ import annotations

import re
from decimal import Decimal

ABSENT_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "None", "null"})
"""The texts that tools write where they have no value."""

LARGEST_WHOLE = 2**62
"""Whole numbers from this one on are damage: as nanoseconds they are 146 years."""

_NUMBER = re.compile(r"[+-]?(\d+)(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)


def whole_number(text: str) -> int | None:
    """The nearest whole number, None for text that is no number or is beyond LARGEST_WHOLE."""
    text = text.strip(" ")
    match = _NUMBER.fullmatch(text)
    if not match or len(match[1]) > 30 or abs(float(text)) >= LARGEST_WHOLE:
        return None
    return int(text) if match[2] is None and match[3] is None else round(Decimal(text))
