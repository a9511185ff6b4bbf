"""What goes to standard error and standard output, which may be full, closed, or no file at all."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def tell(text: str) -> None:
    """Lines on standard error, where they can be written: exit codes do not depend on them."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Let all further output go nowhere, also what Python would still write at its end."""
    with suppress(OSError, ValueError):  # what is no file has nothing that Python would write
        target = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target)
        os.close(nowhere)
