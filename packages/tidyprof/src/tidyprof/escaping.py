"""Texts from files, made harmless for each place where they are shown.

A kernel name is whatever a file says: it may move a terminal's cursor, be HTML, or be a
formula.
"""

from __future__ import annotations

import html
import re

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""How formulas of spreadsheets begin, the last four with Japanese settings; tab and line ends are
not printable: https://owasp.org/www-community/attacks/CSV_Injection.
"""


def printable(text: str, longest: int | None = None) -> str:
    """The text in one line, with `�` for what no one can see, such as control characters, of which
    files may be full.

    longest -- characters that it may have (None: any number); an ellipsis stands in the middle for
               what is left out.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[: longest // 2 - 1]}…{text[-(longest // 2) :]}"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def printable_lines(text: str) -> str:
    """The same of a text that may have several lines. XML allows all that is left."""
    return "\n".join(map(printable, text.split("\n")))


_HYPHEN_OF_A_NUMBER = re.compile(r"(?<![\w.)/-])-(?=\d)")
"""The hyphen that stands for a minus, and divides no words and no parts of a path."""


def with_minus(text: str) -> str:
    """A text for people, in which a minus is one, as wide as a plus. Code is none."""
    return _HYPHEN_OF_A_NUMBER.sub("\N{MINUS SIGN}", text)


def typeset(text: str) -> str:
    """The same, in which no line can begin with `%` either."""
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", with_minus(text))


def html_text(text: str) -> str:
    """The text as it stands in HTML, between tags or in an attribute with quotes."""
    return html.escape(printable_lines(text))


def csv_text(text: str) -> str:
    """The text for a cell that a spreadsheet may open: in one line, and with `'` before what would
    be a formula.
    """
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
