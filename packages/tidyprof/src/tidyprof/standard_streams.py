"""What goes to standard error and standard output, which may be full, closed, or no file at all."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from contextlib import suppress
from typing import TextIO

PAGE_COLUMNS = 100
"""Of a line that a notebook's page shows without scrolling."""


def tell(text: str) -> None:
    """Lines on standard error, where they can be written: exit codes do not depend on them."""
    if sys.stderr is None:
        return
    try:
        print(as_shown(text, sys.stderr), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def as_shown(text: str, stream: TextIO | None, elsewhere: int = 0) -> str:
    """The text for a stream, which is None where it was closed at the start.

    A terminal gets a single line in as many as it takes, and what is no terminal in lines of
    `elsewhere` columns, if that is given; several lines, such as a traceback, stay as they are.
    """
    if stream is None or "\n" in text:
        return text
    width = shutil.get_terminal_size().columns if stream.isatty() else elsewhere
    return _broken(text, width) if width else text


def _broken(line: str, width: int) -> str:
    """The line broken between words into lines of so many columns; its likely cause and next step
    begin lines.
    """
    parts = re.sub(r" (?=(Likely cause|Next step): )", "\n  ", joined(line)).split("\n")
    wrap = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return parted("\n".join(map(wrap.fill, parts)))


_JOINT = "\ue000"
"""Stands for a blank at which no line may end, and in no text that can be shown: textwrap would
leave a no-break space alone, rich would not.
"""


def joined(text: str) -> str:
    """The text with each number and its unit as one word, until `parted` gets its lines."""
    return re.sub(r"(?<=\d) (?=%|(?:[mµn]?s|[kMG]i?B|B)\b)", _JOINT, text)


def parted(text: str) -> str:
    """The text of `joined`, once it is broken into lines."""
    return text.replace(_JOINT, " ")


def discard(stream: TextIO) -> None:
    """Let all further output go nowhere, also what Python would still write at its end."""
    with suppress(OSError, ValueError):  # what is no file has nothing that Python would write
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
