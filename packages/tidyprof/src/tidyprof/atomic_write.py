"""Files that are whole or not there, whatever ends the process that writes them, and folders with
one user.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

UNFINISHED = ".unfinished-"
"""How the names of scratch folders and of their locks begin."""

_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What lockf says on file systems that keep no locks, such as Lustre mounted without them (man 2
fcntl).
"""

_held: set[str] = set()
"""Locks of this process. To ask the system for one of them again would be granted, and would lose
it.
"""


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path to write to, with the target's own name; it takes the target's place when the block
    ends without error.

    Raises OSError where the target cannot be written.
    """
    if target.exists() and not target.is_file() and not target.is_dir():
        yield target  # such as /dev/stdout, which must not be replaced
        return
    target = target.resolve()
    with scratch_folder(target.parent) as scratch:
        partial = scratch / target.name
        yield partial
        partial.replace(target)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, gone at the end; first it removes those whose processes were
    killed.
    """
    _clear(parent)
    scratch = parent / f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
    with locked(scratch.with_name(f"{scratch.name}.lock"), wait=True):
        try:
            scratch.mkdir()
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _clear(parent: Path) -> None:
    for lock in parent.glob(f"{UNFINISHED}*.lock"):
        # Whose owner lives is busy; another user's is not ours to remove.
        with suppress(OSError):
            if _name(lock) not in _held:
                with _open_locked(lock, _NOW):
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink()


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a file that is gone at the end; the death of the process releases it.

    Raises BlockingIOError where another process holds it, unless told to wait. A file system
    without locks lets everybody in.
    """
    name = _name(path)
    _held.add(name)
    try:
        with _open_locked_or_not(path, fcntl.LOCK_EX if wait else _NOW):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
    finally:
        _held.discard(name)


def _open_locked_or_not(path: Path, how: int) -> IO[str]:
    try:
        return _open_locked(path, how)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        return path.open("a")


def _open_locked(path: Path, how: int) -> IO[str]:
    while True:
        file = path.open("a")
        try:
            # This kind is not inherited: loader processes may outlive a trainer that was killed.
            fcntl.lockf(file, how)
            with suppress(FileNotFoundError):  # its owner has removed it meanwhile
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    return file
        except BaseException:
            file.close()
            raise
        file.close()


def _name(path: Path) -> str:
    return os.path.realpath(path)
