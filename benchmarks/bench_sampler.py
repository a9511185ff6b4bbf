"""What the live sampler costs the work beside it: in a process of its own, and in a thread for comparison.

Run with: python -m pytest benchmarks/bench_sampler.py -s

The work is Python that holds the interpreter's lock nearly all the time, as a training loop does that launches many
small kernels: the worst case for a thread. The three take turns, so that a busy machine slows all of them, and the
median of the ratios within a round is shown. It says little on a busy machine; two other numbers do, and are held
to a limit: how many of the moments that were due got a sample, and the sampler's own processor time for one.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

import pytest

from proflab.sampling import sampler
from proflab.sampling.host_source import HostSource
from proflab.sampling.loop import Tally, sample_until

ROUNDS, WORK_S = 7, 1.5
MOST_OWN_MS = 2
LEAST_KEPT = 0.95


def work(turns: int) -> float:
    """Steps of small Python work, as a loop of launches is; returns seconds."""
    begin = time.perf_counter()
    for turn in range(turns):
        sum(range(turn % 300))
    return time.perf_counter() - begin


def turns_for(seconds: float) -> int:
    trial = 200_000
    return round(trial * seconds / min(work(trial) for _ in range(3)))


def beside_a_thread(turns: int, path: Path, every_s: float) -> tuple[float, Tally]:
    """Seconds of the work, and what the same loop, source and file in a thread of this process sampled meanwhile."""
    stop, tallies = threading.Event(), []
    with path.open("wb", buffering=0) as file:
        arguments = (stop.wait, [HostSource(os.getpid())], lambda text: file.write(text.encode()), every_s)
        thread = threading.Thread(target=lambda: tallies.append(sample_until(*arguments)))
        thread.start()
        seconds = work(turns)
        stop.set()
        thread.join()
    return seconds, tallies[0]


def beside_a_process(turns: int, path: Path, every_s: float) -> tuple[float, Tally, float]:
    """Seconds of the work, what the sampler sampled, and its own processor time in ms for one sample."""
    with sampler(path, every_s) as log:
        seconds = work(turns)
    tally = Tally(log.meta["samples"], log.meta["skipped"])
    return seconds, tally, log.meta["own_cpu_s"] / tally.samples * 1e3


@pytest.mark.parametrize("every_s", [0.1, 0.01])
def test_slowdown_of_the_work(every_s, tmp_path, record_property):
    turns = turns_for(WORK_S)
    ratios: dict[str, list[float]] = {"thread": [], "process": []}
    kept: dict[str, list[float]] = {"thread": [], "process": []}
    own_ms = []
    for _ in range(ROUNDS):
        alone = work(turns)
        seconds, tally = beside_a_thread(turns, tmp_path / "thread.csv", every_s)
        ratios["thread"].append(seconds / alone)
        kept["thread"].append(tally.samples / (tally.samples + tally.skipped))
        seconds, tally, milliseconds = beside_a_process(turns, tmp_path / "process.csv", every_s)
        ratios["process"].append(seconds / alone)
        kept["process"].append(tally.samples / (tally.samples + tally.skipped))
        own_ms.append(milliseconds)
    slowdown = {way: statistics.median(values) for way, values in ratios.items()}
    print(f"\nevery {every_s} s: own processor time {statistics.median(own_ms):.2f} ms a sample")
    for way, values in ratios.items():
        spread = f"{min(values):.3f} to {max(values):.3f}"
        share = f"{statistics.median(kept[way]):.0%} of the moments sampled"
        print(f"  {way}: work takes {slowdown[way]:.3f} times as long ({spread}), {share}")
    record_property("slowdown", slowdown)
    assert statistics.median(own_ms) <= MOST_OWN_MS
    assert statistics.median(kept["process"]) >= LEAST_KEPT
