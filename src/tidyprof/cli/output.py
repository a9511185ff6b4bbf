"""Standard output when it ends early: its reader has had enough, or its disk is full."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from tidyprof.cli.main import UsageError
from tidyprof.cli.targets import targets
from tidyprof.io.errors import one_line


@contextmanager
def explained() -> Iterator[None]:
    """Around what writes to standard output: UsageError where it cannot, BrokenPipeError where its reader is gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard()
        found, cause = str(error.strerror or error), "the disk is full, or the terminal is gone"
        raise UsageError(one_line("standard output", found, cause, "write to another place")) from None


@contextmanager
def showing(options: Namespace) -> Iterator[None]:
    """Around what is shown: where files are to be written, a reader that has had enough does not end the command."""
    try:
        yield
    except BrokenPipeError:
        if not targets(options):
            raise
        discard()


def discard() -> None:
    """Let all further output go nowhere, also what Python would still write at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
