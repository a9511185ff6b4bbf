"""The largest memory that a program has needed, for benchmarks that run each way in a process of its own."""

from __future__ import annotations

from pathlib import Path


def peak_bytes() -> int:
    """Largest resident size of this program so far; getrusage would include the program that started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
