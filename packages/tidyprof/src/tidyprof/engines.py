"""Where many files are read: processes of an MPI job, or workers of a Dask cluster.

Each is an executor of concurrent.futures, as `read_many` takes it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from functools import partial
from typing import Any

SOON_S = 30
"""How long a Dask scheduler may take to answer."""

DASK = "dask="

FEWER = "Next: fewer ranks on a node"


class EngineError(Exception):
    """There is no such place to read files, in one line."""


@contextmanager
def engine(name: str) -> Iterator[Executor | None]:
    """The executor called `mpi`, of all ranks of this job, or `dask=ADDRESS` of a scheduler.

    With MPI every rank comes here, and one gets the executor: the others work for it as long as the
    block lasts there, and then get None. Raises EngineError for another name, a package that is
    missing, or a scheduler that does not answer.
    """
    if name == "mpi":
        with _ranks() as pool:
            yield pool
    elif name.startswith(DASK):
        with _client(name.removeprefix(DASK)) as client:
            workers = _Workers(client)
            try:
                yield workers
            finally:
                workers.shutdown(cancel_futures=True)
    else:
        raise EngineError(f"--engine takes mpi or {DASK}ADDRESS, not {name}")


@contextmanager
def _ranks() -> Iterator[Executor | None]:
    try:
        from mpi4py.futures import MPICommExecutor
    except ImportError as error:
        raise _lacks("mpi", error) from None
    with MPICommExecutor() as pool:
        if pool is None:
            yield None
            return
        ended = _Ended(pool)
        before = signal.signal(signal.SIGTERM, ended.tell)
        try:
            yield ended
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise _lacks("dask", error) from None
    try:
        client = Client(address, timeout=SOON_S)
    except (OSError, ValueError) as error:
        cause = "no scheduler there, or another version of distributed"
        found = f"no Dask scheduler at {address!r}: {str(error).splitlines()[0]}"
        raise EngineError(f"{found}. Likely cause: {cause}. Next: dask scheduler") from None
    with client:
        yield client


class _Workers(Executor):
    """Workers of a Dask cluster.

    Dask's own executor takes a result for an error where the worker that has just sent it is killed
    (`_cascade_future` of distributed/cfexecutor.py, 2026.8): it asks for the state of the task
    afterwards.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._given: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """As of any executor."""
        given: Future[Any] = Future()
        task = self._client.submit(function, *args, pure=False, **options)
        given.add_done_callback(lambda given: task.cancel() if given.cancelled() else None)
        task.add_done_callback(partial(_hand_on, given))
        self._given.append(given)
        return given

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As of any executor; a client that closed while a result is on its way would hang."""
        if cancel_futures:
            for given in self._given:
                given.cancel()
        if wait:
            wait_for(self._given)


def _hand_on(given: Future[Any], task: Any) -> None:
    """Give what a task of Dask returned or raised to the future that stands for it."""
    if given.set_running_or_notify_cancel():
        try:
            given.set_result(task.result())
        except BaseException as error:
            given.set_exception(error)


def _lacks(name: str, error: ImportError) -> EngineError:
    package = error.name or "a library"
    return EngineError(f"--engine {name} needs {package}: pip install 'tidyprof[{name}]'")


class _Ended(Executor):
    """An executor that says which files were being read when MPI ends the job.

    Where a rank is killed, MPI ends all others by SIGTERM, and no result comes any more.
    """

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._files: dict[Future[Any], Any] = {}

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """As of any executor; the first argument is the file."""
        future = self._pool.submit(function, *args, **options)
        self._files[future] = args[0]
        return future

    def tell(self, *_: object) -> None:
        """Name the files on standard error, and end the process."""
        running = [str(file) for future, file in self._files.items() if future.running()]
        done = sum(future.done() for future in self._files)
        told = f"MPI ended the job when {done} of {len(self._files)} files were read"
        cause = "a rank was killed, as for want of memory, while it read one of these"
        names = ", ".join(running) or "no file was begun"
        sys.stderr.write(f"tidyprof: {told}. Likely cause: {cause}: {names}. {FEWER}\n")
        sys.stderr.flush()
        os._exit(2)
