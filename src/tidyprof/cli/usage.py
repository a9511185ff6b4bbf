"""What the options and the commands share: the error about a wrong use, defaults, formats of tables."""

from __future__ import annotations

TOP_IN_TERMINAL = 20
"""Rows of long tables on a terminal; a pipe or a file gets all of them."""

EXPORTS = {"csv": "as comma-separated values", "json": "as JSON records", "parquet": "as Parquet (needs pyarrow)"}
"""Format of an exported table, which is also the name of its option -> what it is called in the help."""


class UsageError(Exception):
    """A one-line message about what the user can put right."""
