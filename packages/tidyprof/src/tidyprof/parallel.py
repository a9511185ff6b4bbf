"""Processing of many profiles, such as one per rank of a large job.

Each file is read and reduced to a table in the same process. Only the small tables are transferred
and kept, so any number of files needs only the memory of a few.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    ProcessPoolExecutor,
    as_completed,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from os import PathLike
from threading import Thread
from typing import Unpack

import numpy as np
import pandas as pd

from tidyprof.analyses.common import join
from tidyprof.errors import ProfileReadError
from tidyprof.readers.registry import ReadOptions, read
from tidyprof.tables.contract import Profile

MAX_PROCESSES = 4
"""Maximum number of processes in the default pool, each of which has one file in memory. A custom
pool may have more.
"""

KEPT_BYTES = 2**24
"""Memory that a process keeps from file to file, at least half of it. A rank of a large job needs
less.
"""

ENDED = "a process ended while reading this or another file"
"""Finding if none of the files caused the error."""

Reduce = Callable[[Profile], pd.DataFrame]


class MapProfilesError(ProfileReadError):
    """One of many files that couldn't be read or reduced. The error line names the file.

    It has the same parts as a ProfileReadError.
    """


@dataclass(frozen=True)
class _Outcome:
    """The result for one file: its table, or the reason why there is none.

    It is a plain value, so any executor can transfer it.
    """

    table: pd.DataFrame | None = None
    error: MapProfilesError | None = None


def map_profiles(
    paths: Iterable[str | PathLike[str]],
    reduce: Reduce,
    executor: Executor | None = None,
    *,
    on_error: str = "stop",
    jobs: int | None = None,
    **options: Unpack[ReadOptions],
) -> pd.DataFrame:
    """Read each file with `tidyprof.read`, reduce it at once, and concatenate the tables.

    reduce   -- accepts a Profile and returns a table, for example `tidyprof.kernels` or
                `tidyprof.overlap`. Use functools.partial for arguments. It must be a function from
                a module. A lambda or a function from a notebook works only if the executor uses
                threads.
    executor -- any executor of concurrent.futures, for example mpi4py's MPIPoolExecutor. It stays
                open. None: up to `MAX_PROCESSES` new processes. A script that uses these must guard
                its start with `if __name__ == "__main__":`.
    jobs     -- the number of processes instead of an executor. 1: only this process.
    on_error -- `stop` raises the first error. `continue` continues with the other files and lists
                the errors in `attrs["errors"]`, as pairs of file and message.
    options  -- options of `tidyprof.read`.

    The result follows the order of the paths. Its first columns are `file` (as passed) and `rank`
    (`<NA>` if the file doesn't state one rank), unless the table already has a rank. `attrs`
    contains the origin and the errors.

    Raises MapProfilesError (a ProfileReadError) depending on `on_error`, and if none of the files
    could be read. An exception from a bug in `reduce` is raised unchanged, with a note that names
    the file. Raises ValueError if there are no paths, if a path occurs twice, if `on_error` is
    unknown, if `reduce` can't be sent to another process, or if tables have different columns.
    """
    files = [os.fspath(path) for path in paths]
    if not files or len(set(files)) < len(files):
        raise ValueError("pass at least one path, and each path only once")
    if on_error not in ("stop", "continue"):
        raise ValueError(f"on_error must be stop or continue, not {on_error!r}")
    with _pool(executor, reduce, min(len(files), jobs or processors())) as pool:
        outcomes = dict(
            _outcomes(
                files, pool, partial(_read_and_reduce, reduce=reduce, options=options), on_error
            )
        )
    errors = {file: outcomes[file].error for file in files if outcomes[file].error}
    tables = [outcomes[file].table for file in files if outcomes[file].table is not None]
    if not tables:
        first = errors[files[0]]
        found = f"none of {len(files)} files could be read; the first error is: {first.finding}"
        raise MapProfilesError(first.path, found, first.cause, first.next_step)
    table = join(tables)
    table.attrs["errors"] = [(file, str(error)) for file, error in errors.items()]
    return table


@contextmanager
def _pool(executor: Executor | None, reduce: Reduce, workers: int) -> Iterator[Executor | None]:
    """Yield the given executor, new processes that end with the block, or None for a single
    process.
    """
    if executor is not None or workers == 1:
        yield executor
        return
    _refuse_unsendable(reduce)
    # Forking a process with threads can hang, and Jupyter and torch use threads. A new process
    # can't hang.
    with _OwnProcesses(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
        yield pool


class _OwnProcesses(ProcessPoolExecutor):
    """Processes for one call. When the call ends, even with an error, they don't start more
    work.
    """

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def processors() -> int:
    """Return the number of CPU cores that this process may use, at most `MAX_PROCESSES`."""
    known = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(known, MAX_PROCESSES)


def _begin() -> None:
    """Prepare a worker to end silently on Ctrl-C and when its parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _hold_interrupts(False)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)


def _hold_interrupts(held: bool) -> None:
    """Block or unblock Ctrl-C, also in processes that start meanwhile.

    While Python starts, Ctrl-C would end in a traceback.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, [signal.SIGINT])


def _refuse_unsendable(reduce: Reduce) -> None:
    """Raise ValueError for functions that a new process can't import."""
    function = reduce
    while hasattr(function, "func"):
        function = function.func
    interactive = getattr(function, "__module__", "") == "__main__" and not hasattr(
        sys.modules["__main__"], "__file__"
    )
    try:
        pickle.dumps(reduce)
    except (pickle.PicklingError, AttributeError, TypeError):
        interactive = True
    if interactive:
        raise ValueError(
            f"{getattr(function, '__name__', function)!r} can't be sent to other processes; put it"
            " into a module and import it from there, or pass executor=ThreadPoolExecutor()"
        )


def _outcomes(
    files: list[str], pool: Executor | None, reduced: Callable[[str], _Outcome], on_error: str
) -> Iterator[tuple[str, _Outcome]]:
    """Yield each file with its outcome when it finishes.

    Raises MapProfilesError at the first error if `on_error` is `stop`.
    """
    if pool is None:
        yield from ((file, _known(file, partial(reduced, file), on_error)) for file in files)
        return
    _hold_interrupts(True)
    try:
        futures = {pool.submit(reduced, file): file for file in files}
    finally:
        _hold_interrupts(False)
    try:
        for future in as_completed(futures):
            yield futures[future], _known(futures[future], future.result, on_error)
    except BaseException:
        # The executor's own thread cancels its processes' futures, since it may be reporting for
        # each file that Ctrl-C ended them.
        for future in futures if not isinstance(pool, _OwnProcesses) else ():
            future.cancel()
        raise


def _known(file: str, result: Callable[[], _Outcome], on_error: str) -> _Outcome:
    outcome = _outcome(file, result)
    if outcome.error and on_error == "stop":
        raise outcome.error
    return outcome


def _outcome(file: str, result: Callable[[], _Outcome]) -> _Outcome:
    try:
        return result()
    except Exception as error:
        ended = isinstance(error, BrokenExecutor | CancelledError)
        if not ended:
            error.add_note(f"while reducing {file}")
            raise
        return _Outcome(
            error=MapProfilesError(
                file,
                ENDED,
                "there wasn't enough memory, a scheduler ended, or the script has no"
                ' `if __name__ == "__main__":`',
                "pass an executor with fewer workers",
            )
        )


def _read_and_reduce(file: str, reduce: Reduce, options: ReadOptions) -> _Outcome:
    """Read and reduce one file in a worker.

    Errors that a user can fix are returned as outcomes, and bugs are raised as exceptions.
    """
    _keep_memory()
    try:
        profile = read(file, **options)
        table = reduce(profile)
    except ProfileReadError as error:
        return _Outcome(
            error=MapProfilesError(error.path, error.finding, error.cause, error.next_step)
        )
    except ValueError as error:
        cause = "the profile doesn't contain the data that the analysis needs"
        return _Outcome(
            error=MapProfilesError(
                file, str(error), cause, "leave out the file, or use a different analysis"
            )
        )
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"reduce must return a table, not {type(table).__name__}")
    return _Outcome(_with_place(table, file, profile))


def _keep_memory() -> None:
    """Let the process keep the memory of one file for the next one.

    glibc returns freed memory to the system and requests it again page by page, unless a block of
    this size was freed before (mallopt(3), `M_MMAP_THRESHOLD`). The block itself is never written
    to, so it doesn't use memory.
    """
    np.empty(KEPT_BYTES, np.uint8)


def _with_place(table: pd.DataFrame, file: str, profile: Profile) -> pd.DataFrame:
    """Return the table with the columns file and rank in front."""
    placed = table.copy()
    if "rank" not in table.columns:
        placed.insert(
            0, "rank", pd.array([profile.meta.get("rank", pd.NA)] * len(table), dtype="Int32")
        )
    placed.insert(0, "file", pd.array([file] * len(table), dtype="string"))
    return placed
