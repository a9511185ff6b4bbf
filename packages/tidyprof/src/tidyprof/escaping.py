"""Functions that escape text from files for each place where the text is shown.

A kernel name can contain any text, including commands for a terminal, HTML and spreadsheet
formulas.
"""

from __future__ import annotations

import html
import re

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""First characters of spreadsheet formulas. The last four characters apply to Japanese settings.
Tabs and line ends aren't listed because they aren't printable. See
https://owasp.org/www-community/attacks/CSV_Injection.
"""


def printable(text: str, longest: int | None = None) -> str:
    """Return the text on one line. Each unprintable character, such as a control character, is
    replaced by `�`.

    - longest: the maximum number of characters. If the text exceeds this limit, an ellipsis
      replaces its middle. None means no limit.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[: longest // 2 - 1]}…{text[-(longest // 2) :]}"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def printable_lines(text: str) -> str:
    """Escape text with several lines in the same way. XML allows all remaining characters."""
    return "\n".join(map(printable, text.split("\n")))


_HYPHEN_OF_A_NUMBER = re.compile(r"(?<![\w.)/-])-(?=\d)")
"""A hyphen that represents a minus sign and isn't part of a word or path."""


def typeset(text: str) -> str:
    """Return the text with minus signs instead of hyphens, which are as wide as plus signs, and
    with each `%` on the same line as its number. Don't use the result in code.
    """
    shown = _HYPHEN_OF_A_NUMBER.sub("\N{MINUS SIGN}", text)
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", shown)


def html_text(text: str) -> str:
    """Escape the text for HTML, between tags or in a quoted attribute."""
    return html.escape(printable_lines(text))


def csv_text(text: str) -> str:
    """Return the text for a spreadsheet cell. The text is on one line, with `'` in front of a
    possible formula.
    """
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
