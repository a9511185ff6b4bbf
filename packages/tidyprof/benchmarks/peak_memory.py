"""The largest memory that a program needs, for benchmarks that run each way in its own process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PAUSE_S = 0.005


def own_peak_bytes(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return what the work returns, and the largest memory of this program while it ran, sampled
    every five milliseconds.

    Pages of mapped files don't count, because the system reclaims them if it needs the memory.
    """
    ended, seen = threading.Event(), [_bytes()]

    def look() -> None:
        while not ended.wait(_PAUSE_S):
            seen.append(_bytes())

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        return work(), max(*seen, _bytes())
    finally:
        ended.set()
        watcher.join()


def _bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])
