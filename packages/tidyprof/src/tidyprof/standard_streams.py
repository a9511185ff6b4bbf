"""Output to standard error and standard output, which may be full, closed, or not a file."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from contextlib import suppress
from typing import TextIO

PAGE_COLUMNS = 100
"""Line width that a notebook page shows without scrolling."""


def tell(text: str) -> None:
    """Print lines to standard error if possible. Exit codes don't depend on them."""
    if sys.stderr is None:
        return
    try:
        print(as_shown(text, sys.stderr), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def as_shown(text: str, stream: TextIO | None, elsewhere: int = 0) -> str:
    """Return the text for a stream, which is None if it was closed at the start.

    A single line is wrapped to the terminal's width. For other streams, it is wrapped to
    `elsewhere` columns if that is given. Several lines, such as a traceback, stay unchanged.
    """
    if stream is None or "\n" in text:
        return text
    width = shutil.get_terminal_size().columns if stream.isatty() else elsewhere
    return _broken(text, width) if width else text


def _broken(line: str, width: int) -> str:
    """Return the line wrapped between words to this width.

    Its likely cause and next step start new lines.
    """
    parts = re.sub(r" (?=(Likely cause|Next step): )", "\n  ", joined(line)).split("\n")
    wrap = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return parted("\n".join(map(wrap.fill, parts)))


_JOINT = "\ue000"
"""Placeholder for a space where a line must not break. It never occurs in text that can be shown.
textwrap would keep a no-break space unbroken, but rich wouldn't.
"""


def joined(text: str) -> str:
    """Return the text with each number and its unit joined, until `parted` gets its lines."""
    return re.sub(r"(?<=\d) (?=%|(?:[mµn]?s|[kMG]i?B|B)\b)", _JOINT, text)


def parted(text: str) -> str:
    """Return the text from `joined` after it was wrapped."""
    return text.replace(_JOINT, " ")


def discard(stream: TextIO) -> None:
    """Discard all further output, including what Python would still write at exit."""
    with suppress(OSError, ValueError):  # Python doesn't write to an object that isn't a file
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
