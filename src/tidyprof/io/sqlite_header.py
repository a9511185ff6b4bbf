"""What the first bytes of a SQLite file tell; needs no database engine."""

from __future__ import annotations

SQLITE_MAGIC = b"SQLite format 3\x00"
"""How every SQLite file begins (https://www.sqlite.org/fileformat2.html, section 1.3)."""


def holds_table(head: bytes, table: str) -> bool:
    """Whether the first bytes of a file are those of an SQLite file that creates this table.

    Profilers create their tables before they store events, so the definitions stand at the start.
    """
    return head.startswith(SQLITE_MAGIC) and table.encode() in head
