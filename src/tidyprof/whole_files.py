"""A file that takes its place when it is whole, whatever ends the process that writes it."""

from __future__ import annotations

import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"
"""How the names of files begin that are being written."""


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path beside `target` to write to, which replaces it when the block ends without error, and is gone otherwise.

    What killed processes left of this target goes first: the lock of its writer tells that a file is still in use.
    The end of the name stays, by which pandas compresses. Raises OSError where the target cannot be written.
    """
    if target.exists() and not target.is_file():
        yield target  # such as /dev/stdout, which must not be replaced
        return
    target = target.resolve()
    for left in target.parent.glob(f"{UNFINISHED}*-{glob.escape(target.name)}"):
        _remove_unless_in_use(left)
    partial = target.with_name(f"{UNFINISHED}{os.getpid()}-{target.name}")
    with partial.open("wb") as held:
        _is_locked(held.fileno())
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _remove_unless_in_use(partial: Path) -> None:
    with suppress(OSError), partial.open("ab") as file:
        if _is_locked(file.fileno()):
            partial.unlink()


def _is_locked(file: int) -> bool:
    """Lock an open file; False where another has done so, or the file system keeps no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
