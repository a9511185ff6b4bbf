"""Around the reading of files: the machine's refusals as ProfileReadError, a progress bar, and
entries of a folder that are no files.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tidyprof.errors import DAMAGED, NO_MEMORY, NOT_PERMITTED, ProfileReadError, missing_extra

_DATA_NAME = re.compile(
    r"\.(csv|json|txt|log|db|rpd|pftrace|perfetto-trace|proto|pickle|pkl|pt)(\.gz|\.zst)?$",
    re.IGNORECASE,
)


def no_files(folders: Iterable[Path]) -> dict[Path, str]:
    """Entries of these folders that are named like files of data and are no files -> what they are
    instead.
    """
    entries = (
        entry
        for folder in folders
        for entry in sorted(folder.iterdir())
        if _DATA_NAME.search(entry.name)
    )
    return {
        entry: _kind(entry) for entry in entries if entry.name[0] != "." and not entry.is_file()
    }


def _kind(entry: Path) -> str:
    if entry.is_dir():
        return "a folder in the place of a file"
    # A link without a target does not exist, by pathlib.
    return "a pipe, socket or device" if entry.exists() else "a link that leads nowhere"


PROGRESS_AFTER_SECONDS = 2
"""Files that take less time are read without a progress bar."""


@contextmanager
def progress_bar(files: Iterable[Path], progress: bool | None) -> Iterator[Callable[[int], Any]]:
    """A progress bar for reading these files: the function that is to be called with the number of
    bytes that were consumed.
    """
    if not ((sys.stderr is not None and sys.stderr.isatty()) if progress is None else progress):
        yield lambda consumed: None
        return
    size = sum(file.stat().st_size for file in files if file.is_file())
    delay = PROGRESS_AFTER_SECONDS if progress is None else 0
    # Imported only where a bar is shown.
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("reading", total=size)
    shown_from = time.monotonic() + delay

    def consume(count: int) -> None:
        bar.advance(task, count)
        if time.monotonic() >= shown_from:
            bar.start()

    try:
        yield consume
    finally:
        bar.live.stop()


Options = ParamSpec("Options")
Result = TypeVar("Result")
Reader = Callable[Concatenate[str | PathLike[str], Options], Result]

_NOT_REACHED = (
    "a wrong path, or a disk or network that fails",
    "check the path, or copy the file to a local disk",
)


def guarded(reader: Reader[Options, Result]) -> Reader[Options, Result]:
    """The reader, made to raise ProfileReadError also for what the machine does not allow.

    Examples are a path without permission, a failing disk, too little memory, text nested too
    deeply to follow, and a format whose extra isn't installed. Any other error is a bug, and stays
    as it is.
    """

    @wraps(reader)
    def careful(
        path: str | PathLike[str], *arguments: Options.args, **options: Options.kwargs
    ) -> Result:
        if "\0" in os.fspath(path):
            raise ProfileReadError(path, "a zero byte in the path", *_NOT_REACHED)
        try:
            return reader(path, *arguments, **options)
        except PermissionError:
            refusal = NOT_PERMITTED
        except OSError as error:
            refusal = (f"it cannot be read ({error.strerror or error})", *_NOT_REACHED)
        except MemoryError:
            refusal = NO_MEMORY
        except RecursionError:
            refusal = ("values nested too deeply to be followed", *DAMAGED)
        except ModuleNotFoundError as error:
            if (extra := missing_extra(error.name)) is None:
                raise
            refusal = extra
        # Outside of the handlers, so that the error does not keep the tables that filled the
        # memory.
        raise ProfileReadError(path, *refusal)

    return careful
