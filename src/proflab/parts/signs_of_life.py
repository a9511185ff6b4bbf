"""Progress output every few seconds during a slow cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


def overwrite(text: str) -> None:
    """Print a line that the next line overwrites."""
    print(f"\r{text}", end="", flush=True)


@contextmanager
def signs_of_life(
    doing: str, every_s: float = 5.0, tell: Callable[[str], object] = overwrite
) -> Iterator[None]:
    """Show the current activity and the elapsed time every `every_s` seconds during the block."""
    begin, ended = time.perf_counter(), Event()

    def signs() -> None:
        # Unlike a sleep, this wait ends together with the block, so the cell isn't delayed.
        while not ended.wait(every_s):
            tell(f"{doing}, {time.perf_counter() - begin:.0f} s so far")

    teller = Thread(target=signs, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
