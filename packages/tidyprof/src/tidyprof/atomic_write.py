"""Files that are either complete or absent, even if the writing process is killed, and folders that
only one process uses.
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
"""Prefix in the names of scratch folders and their locks."""

_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors that lockf raises on file systems without locks, for example if Lustre is mounted without
them (man 2 fcntl).
"""

_held: set[str] = set()
"""Locks that this process holds. The system would grant a second request for one of these locks,
and the lock would be lost afterward.
"""


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which has the same name as the target. If the block ends without an
    error, the written file replaces the target.

    Raises OSError if the target can't be written.
    """
    if target.exists() and not target.is_file() and not target.is_dir():
        yield target  # for example /dev/stdout, which must not be replaced
        return
    target = target.resolve()
    with scratch_folder(target.parent) as scratch:
        partial = scratch / target.name
        yield partial
        partial.replace(target)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder in `parent` and remove it at the end.

    At the start, the function removes the folders of processes that were killed.
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
        # The lock of a living process is busy, and another user's lock isn't ours to remove.
        with suppress(OSError):
            if _name(lock) not in _held:
                with _open_locked(lock, _NOW):
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink()


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a file, and remove the file at the end. If the process dies, the system
    releases the lock.

    Raises BlockingIOError if another process holds the lock, unless `wait` is True. On a file
    system without locks, every process gets the lock.
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
            # Child processes don't inherit this type of lock: loader processes may outlive a
            # trainer that was killed.
            fcntl.lockf(file, how)
            with suppress(FileNotFoundError):  # its owner has just removed it
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    return file
        except BaseException:
            file.close()
            raise
        file.close()


def _name(path: Path) -> str:
    return os.path.realpath(path)
