"""Many recordings, such as one per rank of a large job: each is read and reduced to a table where
it is read.

Only the small tables travel and are kept, so the memory of a few files suffices for any number of
them.
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
"""Processes of the default pool, each of which holds one file; a pool of one's own may have
more.
"""

KEPT_BYTES = 2**24
"""Memory that a process keeps from file to file, half of it at least: more than a rank of a large
job needs.
"""

ENDED = "a process ended while this or another file was read"
"""What is found where no file is to blame."""

Reduce = Callable[[Profile], pd.DataFrame]


class MapProfilesError(ProfileReadError):
    """A file of many could not be read or reduced; the one line names it. It has the parts of a
    ProfileReadError.
    """


@dataclass(frozen=True)
class _Outcome:
    """What became of one file: its table, or why there is none. A plain value, so that any executor
    can carry it.
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
    """Read each file with `tidyprof.read`, reduce it at once, and put the tables below each other.

    reduce   -- takes a Profile and returns a table, e.g. `tidyprof.kernels` or `tidyprof.overlap`;
                for arguments use functools.partial. It must be a function of a module, not of a
                notebook and no lambda, unless the executor's workers are threads.
    executor -- any executor of concurrent.futures, e.g. mpi4py's MPIPoolExecutor; it stays open.
                None: up to MAX_PROCESSES fresh processes. A script that uses these must guard its
                start with `if __name__ == "__main__":`.
    jobs     -- how many processes, instead; 1: none but this one.
    on_error -- `stop` raises the first error; `continue` goes on with the other files and lists the
                errors in attrs["errors"], as pairs of file and message.
    options  -- of `tidyprof.read`.

    The result has, in the order of paths, the columns `file` (as given) and `rank` (<NA> where the
    file does not state one rank, unless the table has its own) before those of the tables. attrs
    has the origin and errors. Raises MapProfilesError (a ProfileReadError) as on_error says, and if
    no file could be read; what a bug in `reduce` raises comes as it is, with a note that names the
    file. Raises ValueError for no paths, one path twice, an unknown on_error, a `reduce` that
    cannot be sent to another process, or tables with different columns.
    """
    files = [os.fspath(path) for path in paths]
    if not files or len(set(files)) < len(files):
        raise ValueError("pass at least one path, and none twice")
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
        found = f"none of {len(files)} files could be read; this is the first: {first.finding}"
        raise MapProfilesError(first.path, found, first.cause, first.next_step)
    table = join(tables)
    table.attrs["errors"] = [(file, str(error)) for file, error in errors.items()]
    return table


@contextmanager
def _pool(executor: Executor | None, reduce: Reduce, workers: int) -> Iterator[Executor | None]:
    """The given executor, or so many fresh processes that end with the block; None for one."""
    if executor is not None or workers == 1:
        yield executor
        return
    _refuse_unsendable(reduce)
    # Forking a process that runs threads, as Jupyter and torch do, can hang; a fresh one cannot.
    with _OwnProcesses(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
        yield pool


class _OwnProcesses(ProcessPoolExecutor):
    """Processes of one call: at its end, whatever it is, they begin nothing more."""

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def processors() -> int:
    """How many processors this process may use, at most MAX_PROCESSES."""
    known = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(known, MAX_PROCESSES)


def _begin() -> None:
    """A worker's first act: Ctrl-C ends it without a word, and so does the end of the process that
    started it.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _hold_interrupts(False)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)


def _hold_interrupts(held: bool) -> None:
    """Keep Ctrl-C waiting, in processes begun meanwhile too: while Python starts it would end in a
    traceback.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, [signal.SIGINT])


def _refuse_unsendable(reduce: Reduce) -> None:
    """Raise ValueError for functions that a fresh process could not import."""
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
            f"{getattr(function, '__name__', function)!r} cannot be sent to other processes: put it"
            " into a module and import it from there, or pass executor=ThreadPoolExecutor()"
        )


def _outcomes(
    files: list[str], pool: Executor | None, reduced: Callable[[str], _Outcome], on_error: str
) -> Iterator[tuple[str, _Outcome]]:
    """Each file with what became of it, as they finish. Raises MapProfilesError at the first error,
    if so asked.
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
        # A thread of one's own processes cancels, since it may be telling each file that Ctrl-C
        # ended them.
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
                "not enough memory, a scheduler that ended, or a script without"
                ' `if __name__ == "__main__":`',
                "pass an executor with fewer workers",
            )
        )


def _read_and_reduce(file: str, reduce: Reduce, options: ReadOptions) -> _Outcome:
    """Runs in the worker. What a user can put right comes back as an outcome, bugs as the
    exceptions that they are.
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
        cause = "the recording lacks what the analysis needs"
        return _Outcome(
            error=MapProfilesError(
                file, str(error), cause, "leave the file out, or ask for another analysis"
            )
        )
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"reduce must return a table, not {type(table).__name__}")
    return _Outcome(_with_place(table, file, profile))


def _keep_memory() -> None:
    """Let the process keep what one file needed for the next one.

    glibc gives freed memory back to the system, and asks for it page by page again, unless a block
    of this size was freed before (mallopt(3), M_MMAP_THRESHOLD). The block itself is never written
    to, so that it takes no memory.
    """
    np.empty(KEPT_BYTES, np.uint8)


def _with_place(table: pd.DataFrame, file: str, profile: Profile) -> pd.DataFrame:
    """The table with the columns file and rank in front."""
    placed = table.copy()
    if "rank" not in table.columns:
        placed.insert(
            0, "rank", pd.array([profile.meta.get("rank", pd.NA)] * len(table), dtype="Int32")
        )
    placed.insert(0, "file", pd.array([file] * len(table), dtype="string"))
    return placed
