"""Functions that process many profiles, for example one profile for each rank of a large job.

Each file is read and reduced to a table in the same process. Only the small tables are transferred
and kept, so only a few files are in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, as_completed
from functools import partial
from os import PathLike
from typing import Unpack

import pandas as pd

from tidyprof.analyses.common import join
from tidyprof.errors import ProfileReadError
from tidyprof.readers.registry import ReadOptions, read
from tidyprof.tables.contract import Profile

ENDED = "a process ended while reading this or another file"
"""Finding for an error that none of the files caused."""

Reduce = Callable[[Profile], pd.DataFrame]


def map_profiles(
    paths: Iterable[str | PathLike[str]],
    reduce: Reduce,
    executor: Executor | None = None,
    *,
    on_error: str = "stop",
    **options: Unpack[ReadOptions],
) -> pd.DataFrame:
    """Read each file with `tidyprof.read`, reduce it immediately, and concatenate the tables.

    - reduce: a function that accepts a Profile and returns a table, for example `tidyprof.kernels`
      or `tidyprof.overlap`. To pass arguments, use functools.partial. If the executor uses
      processes, the function must come from a module.
    - executor: any executor of concurrent.futures, for example ProcessPoolExecutor or mpi4py's
      MPIPoolExecutor. The executor stays open. With None, this process reads one file at a time.
    - on_error: the reaction to an error. `stop` raises the first error. `continue` processes the
      other files and stores the errors in `attrs["errors"]` as pairs of file and message.
    - options: the options for `tidyprof.read`.

    The result has the same order as the paths. Its first columns are `file` (the path as passed)
    and `rank` (`<NA>` if the file doesn't state a rank). If the table already contains a rank, the
    column `rank` isn't added. `attrs` contains the origin and the errors.

    Raises ProfileReadError if `on_error` requires it, and if none of the files could be read. If
    `reduce` raises an exception because of a bug, the exception is raised unchanged, with a note
    that names the file. Raises ValueError if there are no paths, if a path occurs twice, if
    `on_error` is unknown, or if the tables have different columns.
    """
    files = [os.fspath(path) for path in paths]
    if not files or len(set(files)) < len(files):
        raise ValueError("pass at least one path, and pass each path only once")
    if on_error not in ("stop", "continue"):
        raise ValueError(f"on_error must be stop or continue, not {on_error!r}")
    work = partial(_read_and_reduce, reduce=reduce, options=options)
    found: dict[str, pd.DataFrame] = {}
    errors: dict[str, ProfileReadError] = {}
    for file, result in _results(files, executor, work):
        try:
            found[file] = _result(file, result)
        except ProfileReadError as error:
            if on_error == "stop":
                raise
            errors[file] = error
    tables = [found[file] for file in files if file in found]
    if not tables:
        first = errors[files[0]]
        finding = f"none of {len(files)} files could be read. First error: {first.finding}"
        raise ProfileReadError(first.path, finding, first.cause, first.next_step)
    table = join(tables)
    table.attrs["errors"] = [(file, str(errors[file])) for file in files if file in errors]
    return table


def _results(
    files: list[str], executor: Executor | None, work: Callable[[str], pd.DataFrame]
) -> Iterator[tuple[str, Callable[[], pd.DataFrame]]]:
    """Yield each file as soon as it is finished, with a function that returns its table or raises
    its error.
    """
    if executor is None:
        yield from ((file, partial(work, file)) for file in files)
        return
    futures = {executor.submit(work, file): file for file in files}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result
    finally:
        for future in futures:
            future.cancel()


def _result(file: str, result: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return the table of a file. Raises ProfileReadError if the executor gave up."""
    try:
        return result()
    except ProfileReadError:
        raise
    except (BrokenExecutor, CancelledError):
        cause = (
            "there wasn't enough memory, a scheduler ended, or the script has no"
            ' `if __name__ == "__main__":`'
        )
        next_step = "pass an executor with fewer workers, or a function from a module"
        raise ProfileReadError(file, ENDED, cause, next_step) from None
    except Exception as error:
        error.add_note(f"while reducing {file}")
        raise


def _read_and_reduce(file: str, reduce: Reduce, options: ReadOptions) -> pd.DataFrame:
    """Read and reduce one file in a worker. Raises ProfileReadError for errors that the user can
    fix.
    """
    profile = read(file, **options)
    try:
        table = reduce(profile)
    except ValueError as error:
        cause = "the profile doesn't contain the data that the analysis needs"
        next_step = "leave out the file, or use a different analysis"
        raise ProfileReadError(file, str(error), cause, next_step) from None
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"reduce must return a table, not {type(table).__name__}")
    return _with_place(table, file, profile)


def _with_place(table: pd.DataFrame, file: str, profile: Profile) -> pd.DataFrame:
    """Return the table with `file` and `rank` as its first columns."""
    placed = table.copy()
    if "rank" not in table.columns:
        placed.insert(
            0, "rank", pd.array([profile.meta.get("rank", pd.NA)] * len(table), dtype="Int32")
        )
    placed.insert(0, "file", pd.array([file] * len(table), dtype="string"))
    return placed
