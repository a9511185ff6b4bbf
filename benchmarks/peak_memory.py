"""The largest memory that a program has needed, for benchmarks that run each way in a process of its own."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil


def peak_bytes() -> int:
    """Largest resident size of this program so far; getrusage would include the program that started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


class HelpersPeak:
    """Within its block: the largest resident size of each process that this one starts, looked at every 20 ms.

    bytes -- their sum; it is a little too small, as the last moments of a process may be missed.
    """

    def __init__(self) -> None:
        self._peaks: dict[int, int] = {}
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    @property
    def bytes(self) -> int:
        return sum(self._peaks.values())

    def __enter__(self) -> HelpersPeak:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        this = psutil.Process()
        while not self._over.wait(0.02):
            for child in this.children():
                try:
                    resident = child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                self._peaks[child.pid] = max(self._peaks.get(child.pid, 0), resident)
