"""Processor and memory: of the whole machine, and of one process with all its children."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping

import psutil

from proflab.sampling.readings import Reading, SourceUnavailable

PARTS: Mapping[str, tuple[str, ...]] = {
    "cpu_user": ("user", "nice"),
    "cpu_system": ("system", "irq", "softirq"),
    "cpu_idle": ("idle",),
    "cpu_iowait": ("iowait",),
    "cpu_steal": ("steal",),
}
"""Quantity -> the times of psutil.cpu_times() in it. Guest time is left out: the system counts it as user time too."""

REFRESH_S = 1.0
"""How often new processes are looked for: this walks over all processes of the machine, which takes milliseconds."""


class HostSource:
    """Shares of processor time since the last reading, and memory now.

    cpu_user, cpu_system, cpu_idle, cpu_iowait, cpu_steal -- % of all cores of the machine; they sum to 100
    host_memory_used, host_memory_available -- bytes; host_memory_total once
    process_cpu       -- % of one core, so 200 is two full cores, of the process `root` and all below it
    process_memory    -- bytes, their resident sizes added: shared pages count once for each process
    process_count     -- how many they are

    A process counts from when it is first seen, at most REFRESH_S after its start, and the time it
    used since the last reading is lost when it ends. Raises SourceUnavailable where psutil sees nothing.
    """

    def __init__(self, root: int) -> None:
        self.name = f"psutil {psutil.__version__}"
        self.failed: Counter[str] = Counter()
        self._total_is_written = False
        try:
            self._last = psutil.cpu_times()
            self._tree = ProcessTree(root)
        except (psutil.Error, OSError) as error:
            raise SourceUnavailable(f"psutil: {error}") from error

    def read(self) -> list[Reading]:
        """All values now."""
        return [*self._machine(), *self._memory(), *self._tree.read()]

    def close(self) -> None:
        """Nothing is held."""

    def _machine(self) -> list[Reading]:
        now = psutil.cpu_times()
        shares = cpu_shares(self._last, now)
        if shares:
            self._last = now
        else:  # the system's clock of processor time has not ticked yet
            self.failed["cpu"] += 1
        return [Reading(None, name, share, "%") for name, share in shares.items()]

    def _memory(self) -> list[Reading]:
        memory = psutil.virtual_memory()
        found = {"host_memory_used": memory.used, "host_memory_available": memory.available}
        if not self._total_is_written:
            found["host_memory_total"] = memory.total
            self._total_is_written = True
        return [Reading(None, name, value, "bytes") for name, value in found.items()]


class ProcessTree:
    """A process and everything that it started, without this sampler itself."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._seconds: dict[psutil.Process, float] = {}
        self._refreshed = -REFRESH_S
        self._last = time.monotonic()
        self.read()

    def read(self) -> list[Reading]:
        """Processor time since the last reading, and memory now; nothing if the process is gone."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        if now - self._refreshed >= REFRESH_S:
            self._refresh(now)
        used, memory = 0.0, 0
        for process, before in list(self._seconds.items()):
            try:
                with process.oneshot():
                    seconds, size = _seconds(process), process.memory_info().rss
            except psutil.Error:
                del self._seconds[process]
                continue
            used += max(0.0, seconds - before)
            memory += size
            self._seconds[process] = seconds
        if not self._seconds or passed <= 0:
            return []
        return [
            Reading(None, "process_cpu", round(100 * used / passed, 2), "%"),
            Reading(None, "process_memory", memory, "bytes"),
            Reading(None, "process_count", len(self._seconds), "processes"),
        ]

    def _refresh(self, now: float) -> None:
        try:
            processes = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            processes = []
        for process in processes:
            if process.pid != os.getpid() and process not in self._seconds:
                try:
                    self._seconds[process] = _seconds(process)
                except psutil.Error:
                    continue
        self._refreshed = now


def cpu_shares(before: object, after: object) -> dict[str, float]:
    """Share in % of each of PARTS between two results of psutil.cpu_times(); nothing if no time passed.

    A part that the system does not count is absent.
    """
    used = {
        name: sum(max(0.0, getattr(after, field) - getattr(before, field)) for field in fields if hasattr(after, field))
        for name, fields in PARTS.items()
        if hasattr(after, fields[0])
    }
    total = sum(used.values())
    return {name: round(100 * value / total, 2) for name, value in used.items()} if total > 0 else {}


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
