"""A file that takes its place when it is whole, whatever ends the process that writes it."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"
"""How the names of folders begin in which files are being written."""

_LOCK = "lock"


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path to write to, with the target's own name; it takes the target's place when the block
    ends without error.

    What killed processes left of this target goes first: the lock of its writer tells that it is
    still in use. Raises OSError where the target cannot be written.
    """
    if target.exists() and not target.is_file():
        yield target  # such as /dev/stdout, which must not be replaced
        return
    target = target.resolve()
    for left in target.parent.glob(f"{UNFINISHED}*-{glob.escape(target.name)}"):
        _remove_unless_in_use(left)
    # A folder, for readers of the one around it take no files from there.
    scratch = target.with_name(f"{UNFINISHED}{os.getpid()}-{target.name}")
    try:
        scratch.mkdir(exist_ok=True)
        with (scratch / _LOCK).open("wb") as held:
            _is_locked(held.fileno())
            yield scratch / target.name
            (scratch / target.name).replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_unless_in_use(scratch: Path) -> None:
    with suppress(OSError), (scratch / _LOCK).open("ab") as file:
        if _is_locked(file.fileno()):
            shutil.rmtree(scratch, ignore_errors=True)


def _is_locked(file: int) -> bool:
    """Lock an open file; False where another has done so, or the file system keeps no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
