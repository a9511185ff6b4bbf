"""Escaping of text from files for each place that shows it.

A kernel name can be any text: it may move a terminal's cursor, or be HTML or a formula.
"""

from __future__ import annotations

import html
import re

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""First characters of spreadsheet formulas, the last four with Japanese settings. Tabs and line
ends aren't printable. See https://owasp.org/www-community/attacks/CSV_Injection.
"""


def printable(text: str, longest: int | None = None) -> str:
    """Return the text in one line, with `�` for unprintable characters such as control characters.

    longest -- maximum number of characters; None: no limit. In a longer text, an ellipsis replaces
               the middle.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[: longest // 2 - 1]}…{text[-(longest // 2) :]}"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def printable_lines(text: str) -> str:
    """Return the same for text with several lines. XML allows all remaining characters."""
    return "\n".join(map(printable, text.split("\n")))


_HYPHEN_OF_A_NUMBER = re.compile(r"(?<![\w.)/-])-(?=\d)")
"""A hyphen that is a minus sign, not part of a word or path."""


def with_minus(text: str) -> str:
    """Return text for people with true minus signs, which are as wide as plus signs. Don't use it
    for code.
    """
    return _HYPHEN_OF_A_NUMBER.sub("\N{MINUS SIGN}", text)


def typeset(text: str) -> str:
    """Return the same text, but keep `%` on the line of its number."""
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", with_minus(text))


def html_text(text: str) -> str:
    """Return the text escaped for HTML, between tags or in a quoted attribute."""
    return html.escape(printable_lines(text))


def csv_text(text: str) -> str:
    """Return the text for a spreadsheet cell: in one line, and with `'` before a possible
    formula.
    """
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
