"""Reading a long log of a system monitor, against the plain way to do it.

Run with: python -m pytest benchmarks/bench_system.py -s

The input is made here: eight GPUs sampled once a second for six hours, as amd-smi monitor writes
it, with some cells that are not available. The reader is held to be at least twice as fast as the
csv module with a row per value. The two take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.readers.system.reader import read_system

SECONDS, GPUS, ROUNDS = 6 * 3600, 8, 3
LEAST_RATIO = 2
HEADER = (
    "timestamp,gpu,xcp,power_usage,hotspot_temperature,memory_temperature,gfx_clk,gfx,mem,encoder,"
    "vram_used,vram_total"
)


def write_log(path: Path, seconds: int) -> list[int]:
    """A log of this length; returns its values of power, row by row."""
    powers = []
    with path.open("w") as file:
        file.write(HEADER + "\n")
        for second in range(seconds):
            for gpu in range(GPUS):
                power = 170 + (second * 13 + gpu) % 580
                powers.append(power)
                row = (
                    f"{1753969973 + second},{gpu},0,{power},{30 + power // 20},33,"
                    f"{114 + power},{power % 101},1,N/A"
                )
                file.write(f"{row},{283 + power},196300\n")
    return powers


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("smi") / "smi.csv"
    write_log(path, SECONDS)
    return path


def by_csv_module(path: Path) -> int:
    """A row per value, as one would write it first."""
    rows = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            when, gpu = int(row["timestamp"]) * 10**9, int(row["gpu"])
            for name in list(row)[3:]:
                if row[name] != "N/A":
                    rows.append((when, gpu, name, float(row[name])))
    return len(pd.DataFrame(rows, columns=["time_ns", "device", "name", "value"]))


def by_tidyprof(path: Path) -> int:
    return len(read_system(path).counters)


WAYS: dict[str, Callable[[Path], int]] = {"tidyprof": by_tidyprof, "csv": by_csv_module}


def test_reading_against_the_csv_module(log, record_property):
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, read in WAYS.items():
            start = time.perf_counter()
            assert read(log) == SECONDS * GPUS * 8
            seconds[way].append(time.perf_counter() - start)
    median = {way: statistics.median(found) for way, found in seconds.items()}
    ratio = median["csv"] / median["tidyprof"]
    print(f"\ntidyprof {median['tidyprof']:.2f} s, csv module {ratio:.1f} times that")
    record_property("csv / tidyprof", round(ratio, 2))
    assert ratio >= LEAST_RATIO
