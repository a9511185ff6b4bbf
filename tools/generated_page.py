"""Pages of docs that are made from a table: written, or compared with the existing page."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tidyprof.escaping import printable


def write_or_check(path: Path, text: str, command: str, arguments: Sequence[str]) -> int:
    """Write the page, or with --check compare it with its table. Returns 0, or 1 if they differ."""
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not what its table gives; run `{command}`", file=sys.stderr)
    return 1


def markdown_text(text: str) -> str:
    """Return the text in one line of Markdown, also for a cell of a table: as code, unless it
    consists of words and numbers.

    Code can't contain links, pictures, mentions or tags. `¦` replaces `|`, which would end a cell.
    """
    shown = printable(text).replace("|", "¦")
    if all(part.isalnum() for word in shown.split() for part in word.split("-")):
        return shown
    fence = "`" * max([1, *(len(found) + 1 for found in re.findall("`+", shown))])
    blank = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{blank}{shown}{blank}{fence}"
