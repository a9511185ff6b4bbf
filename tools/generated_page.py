"""Write a docs page that is made from a table, or compare it with the existing page."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tidyprof.escaping import printable


def write_or_check(path: Path, text: str, command: str, arguments: Sequence[str]) -> int:
    """Write the page, or with --check compare it with its table.

    Return 0, or 1 if they differ.
    """
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} doesn't match its table. Run `{command}`.", file=sys.stderr)
    return 1


def markdown_text(text: str) -> str:
    """Return the text as one line of Markdown, which also fits a table cell.

    Text that doesn't consist of words and numbers becomes code, which can't contain links,
    pictures, mentions or tags. `¦` replaces `|`, which would end a cell.
    """
    shown = printable(text).replace("|", "¦")
    if all(part.isalnum() for word in shown.split() for part in word.split("-")):
        return shown
    fence = "`" * max([1, *(len(found) + 1 for found in re.findall("`+", shown))])
    blank = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{blank}{shown}{blank}{fence}"
