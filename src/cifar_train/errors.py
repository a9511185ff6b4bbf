"""The errors that end the program with one line and no traceback."""

from __future__ import annotations

import re


class UserError(Exception):
    """A one-line message on what the user can put right; exit code 2.

    What others say in it, such as a server or a file's name, may hold characters that command a
    terminal: its text shows them as Python writes them.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return (
            text
            if text.isprintable()
            else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        )


class LostRankError(UserError):
    """Another rank is gone; exit code 1, since this one did nothing wrong."""


def shortened(text: str) -> str:
    """The text with the middle of endless words left out, so that a line stays a line."""
    return re.sub(r"(\S{40})\S{40,}(\S{10})", r"\1...\2", text)
