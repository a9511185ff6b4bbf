"""The largest memory that a program has needed, for benchmarks that run each way in a process of
its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PAUSE_S = 0.005


def peak_bytes() -> int:
    """Largest resident size of this program so far; getrusage would include the program that
    started it.
    """
    return _bytes("VmHWM")


def own_peak_bytes(work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work returns, and the largest memory of this program's own while it ran, seen every
    five milliseconds.

    Pages of files that are mapped do not count: the system takes them back where something else
    needs the memory.
    """
    ended, seen = threading.Event(), [0]

    def look() -> None:
        while not ended.wait(_PAUSE_S):
            seen.append(_bytes("RssAnon"))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        return work(), max(*seen, _bytes("RssAnon"))
    finally:
        ended.set()
        watcher.join()


def _bytes(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])
