"""Texts of a Perfetto trace."""

from __future__ import annotations


def text(value: str | bytes) -> str:
    """A text of a message; protobuf gives bytes where it is declared so, or is broken UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


class Codes(dict[str | bytes, int]):
    """Texts as small numbers in order of first use; `texts` has them by number."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def __missing__(self, key: str | bytes) -> int:
        code = self[key] = len(self.texts)
        self.texts.append(text(key))
        return code
