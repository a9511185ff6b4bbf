"""Tables of a SQLite file read through its Arrow driver, in stretches of rows that several threads take.

The driver takes most of the time that reading needs, and leaves the interpreter to others meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Converted = TypeVar("Converted")

BATCH_ROWS = 2**14
"""Rows that are fetched at once: large enough for speed, small enough for the cache."""

MOST_THREADS = 8
"""Beyond some threads the pages that all of them read are what limits them."""

STRETCH_ROWS = 2**17
"""Shortest stretch of rows that is worth a thread's turn."""


class Scans:
    """Queries of one file that run in threads, each thread with a connection of its own.

    uri     -- the file as SQLite's URI.
    pragmas -- what each connection is told first.
    """

    def __init__(self, uri: str, pragmas: Sequence[str]) -> None:
        self._uri = uri
        self._pragmas = pragmas
        self._threads: ThreadPoolExecutor | None = None
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def begin(self, statements: Sequence[str], convert: Callable[[Any], Converted]) -> list[Future[list[Converted]]]:
        """Start queries; the result of each is what `convert` makes of its record batches."""
        if self._threads is None:
            self._threads = some_threads()
        return [self._threads.submit(self._converted, statement, convert) for statement in statements]

    def close(self) -> None:
        """Give up what has not begun, wait for the rest and disconnect."""
        if self._threads:
            self._threads.shutdown(wait=True, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().close()

    def _converted(self, statement: str, convert: Callable[[Any], Converted]) -> list[Converted]:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = self._connected()
        try:
            with connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
                cursor.execute(statement)
                # A stretch without rows would be one empty batch, with types that say nothing.
                return [convert(batch) for batch in cursor.fetch_record_batch() if batch.num_rows]
        finally:
            self._idle.put(connection)

    def _connected(self) -> Any:
        # Imported here since it takes long, and recognising a file does not need it.
        from adbc_driver_sqlite import dbapi

        connection = dbapi.connect(self._uri)
        for pragma in self._pragmas:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA {pragma}")
        return connection


def some_threads() -> ThreadPoolExecutor:
    """A pool with a thread for each processor, at most MOST_THREADS."""
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))


def stretches(number: str, first: int, last: int) -> list[str]:
    """SQL conditions on the row number, in order, that divide the rows from `first` to `last` among threads.

    The outermost ones have no bound, so that together they hold every row there is.
    """
    parts = max(1, min(2 * MOST_THREADS, (last - first + 1) // STRETCH_ROWS))
    cuts = [first + (last - first + 1) * part // parts for part in range(1, parts)]
    lower = ["", *(f"{number} >= {cut}" for cut in cuts)]
    upper = [*(f"{number} < {cut}" for cut in cuts), ""]
    return [" AND ".join(filter(None, bounds)) for bounds in zip(lower, upper, strict=True)]
