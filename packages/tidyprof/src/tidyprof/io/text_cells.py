"""Strings in the cells of text files."""

from __future__ import annotations

ABSENT_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "None", "null"})
"""Strings that profilers write for a missing value."""
