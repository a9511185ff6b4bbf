"""The readings of the modelled node's sensors now: of the workload that is running, or of an idle
node.

A workload is running if PROFLAB_WORKLOAD holds its command line, or if a process of this user is
the course's workload. It is played once; as long as the process lives, its steps after the warm-up
are repeated. An idle device has its idle power and no activity; values that the device's data don't
state are not shown.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpumodel.command import Command
from gpumodel.workload import MAXIMUM_RANKS
from proflab.standins.play import announce, knobs, understand
from tidyprof.errors import UserError

if TYPE_CHECKING:
    from gpumodel.run import RankRun, Run
    from gpumodel.writers.system.readings import Reading


@dataclass(frozen=True)
class Process:
    """A process of the course's workload: its number, its start (seconds since 1970), and the
    command that it runs.
    """

    pid: int
    started: float
    command: Command


class Node:
    """The modelled node with its devices. `device` holds their data."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        from gpumodel.devices import device

        environment = os.environ if environment is None else environment
        self.device: Any = device(knobs(environment)["device"])
        self.workload: Process | None = _named(environment) or _running(environment)

    @property
    def devices(self) -> range:
        """Numbers of the devices."""
        return range(MAXIMUM_RANKS)

    @cached_property
    def run(self) -> Run | None:
        """The workload that is running, played; None on an idle node."""
        if self.workload is None:
            return None
        from gpumodel.simulation import simulate

        return simulate(self.workload.command.workload)

    def readings(self, now: float | None = None) -> list[Reading]:
        """One reading for each device at `now` (seconds since 1970, default: the present), in order
        of device.
        """
        now = time.time() if now is None else now
        return [self._reading(number, now) for number in self.devices]

    def _reading(self, number: int, now: float) -> Reading:
        from gpumodel.writers.system.readings import QUANTITIES, Reading

        values: dict[str, float | None] = dict.fromkeys(QUANTITIES)
        rank = self._rank_on(number)
        if rank is None or rank.counters.empty:
            values |= {"power": self.device.idle_watt, "gfx_activity": 0.0, "memory_activity": 0.0}
        else:
            moment = _moment(self.run, rank, now - self.workload.started)
            earlier = rank.counters[rank.counters["time_ns"] <= moment]
            values |= (
                earlier.drop_duplicates("name", keep="last").set_index("name")["value"].to_dict()
            )
        return Reading(int(now * 1e9), number, values)

    def _rank_on(self, number: int) -> RankRun | None:
        return (
            next((rank for rank in self.run.ranks if rank.device == number), None)
            if self.run
            else None
        )


def announce_node(tool: str, node: Node) -> None:
    """Print the stand-in's line: which device, and whether it is idle or what is known of the
    model's error.
    """
    state = (node.run.error or "error not known") if node.run else "idle"
    announce(tool, f"modelled {node.device.name}, {state}")


def _moment(run: Run, rank: RankRun, elapsed: float) -> int:
    """The moment of the run, in ns, that is shown `elapsed` seconds after the process began."""
    config = getattr(run.workload, "config", None)
    steps = rank.device_work.loc[rank.device_work["step"].notna()]
    steady = (
        steps
        if config is None
        else steps[steps["step"] >= config.warmup_for(len(rank.images_per_second))]
    )
    begin = int(steady["start_ns"].min()) if len(steady) else run.start_ns
    wanted = run.start_ns + int(max(elapsed, 0.0) * 1e9)
    return wanted if wanted < run.end_ns else begin + (wanted - begin) % max(run.end_ns - begin, 1)


def _named(environment: Mapping[str, str]) -> Process | None:
    words = shlex.split(environment.get("PROFLAB_WORKLOAD", ""))
    if not words:
        return None
    # A workload that is only named has been running for long: its warm-up is over.
    return Process(os.getpid(), 0.0, understand(words, environment))


def _running(environment: Mapping[str, str]) -> Process | None:
    """The oldest process of this user whose command line is the course's workload, whoever started
    it.
    """
    import psutil

    found = []
    for process in psutil.process_iter(["pid", "uids", "cmdline", "create_time"]):
        words = process.info["cmdline"] or []
        if not any("cifar_train" in word or word.endswith("cifar-train") for word in words):
            continue
        if process.info["uids"] is None or process.info["uids"].real != os.getuid():
            continue
        try:
            # A launcher around this monitor tells nothing about the process that was found.
            command = understand(
                _workload_words(words),
                {name: environment[name] for name in _KNOBS if name in environment},
            )
        except (UserError, SystemExit):
            continue
        found.append(Process(process.info["pid"], process.info["create_time"], command))
    return min(found, key=lambda process: process.started, default=None)


_KNOBS = ("PROFLAB_DEVICE", "PROFLAB_SEED")


def _workload_words(words: list[str]) -> list[str]:
    """The words of the workload, without a tool in front of it (`rocprofv3 ... -- python ...`)."""
    return words[words.index("--") + 1 :] if "--" in words else words
