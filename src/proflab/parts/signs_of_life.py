"""A line every few seconds from a cell that takes long, so that nobody takes it for dead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def signs_of_life(
    doing: str, every_s: float = 5.0, tell: Callable[[str], object] = print
) -> Iterator[None]:
    """While the block runs, say every `every_s` seconds what it is doing and since when."""
    begin, ended = time.perf_counter(), Event()

    def signs() -> None:
        while not ended.wait(every_s):
            tell(f"{doing}, {time.perf_counter() - begin:.0f} s so far")

    teller = Thread(target=signs, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
