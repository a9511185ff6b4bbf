"""Output to standard error and standard output, which may be full or closed, or may not be
files.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from contextlib import suppress
from typing import TextIO

PAGE_COLUMNS = 100
"""Line width that fits on a notebook page without scrolling."""


def tell(text: str) -> None:
    """Print lines to standard error if possible. The lines have no effect on exit codes."""
    if sys.stderr is None:
        return
    try:
        print(as_shown(text, sys.stderr), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def as_shown(text: str, stream: TextIO | None, elsewhere: int = 0) -> str:
    """Return the text for a stream. If the stream was closed at startup, it is None.

    A single line is wrapped to the terminal's width. For other streams, the line is wrapped to
    `elsewhere` columns if this value is given. Text with several lines, such as a traceback, isn't
    changed.
    """
    if stream is None or "\n" in text:
        return text
    width = shutil.get_terminal_size().columns if stream.isatty() else elsewhere
    return _broken(text, width) if width else text


def _broken(line: str, width: int) -> str:
    """Return the line wrapped between words to this width.

    The likely cause and the next step start on new lines.
    """
    parts = re.sub(r" (?=(Likely cause|Next step): )", "\n  ", joined(line)).split("\n")
    wrap = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return parted("\n".join(map(wrap.fill, parts)))


_JOINT = "\ue000"
"""Placeholder for a space at which a line must not break. The placeholder never occurs in visible
text. A no-break space isn't suitable because rich would break the line there.
"""


def joined(text: str) -> str:
    """Join each number and its unit in the text. After the text is wrapped, `parted` separates them
    again.
    """
    return re.sub(r"(?<=\d) (?=%|(?:[mµn]?s|[kMG]i?B|B)\b)", _JOINT, text)


def parted(text: str) -> str:
    """Return the wrapped text with the placeholders from `joined` replaced by spaces."""
    return text.replace(_JOINT, " ")


def discard(stream: TextIO) -> None:
    """Discard all further output, including the output that Python would write at exit."""
    with suppress(OSError, ValueError):  # Python doesn't write to an object that isn't a file
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
