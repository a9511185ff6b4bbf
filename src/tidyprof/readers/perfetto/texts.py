"""Texts of a Perfetto trace."""

from __future__ import annotations


def text(value: str | bytes) -> str:
    """A text of a message; protobuf gives bytes where it is declared so, or is broken UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
