"""Seconds and peak memory from a torch.profiler trace to tables, next to other ways on the same
file.

Run with: python -m pytest benchmarks/bench_torch_trace.py -s

The files are a real recording (of the mirror, which `make mirror` fills), repeated with later
times. Every way runs in a process of its own; imports do not count. HolisticTraceAnalysis and
TraceLens take part where `build/peers`, a virtual environment of their own, has them: `make bench`
puts the first one there. AMD's TraceLens is installed from its repository; the package of that name
in the Python index is another program.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.peak_memory import peak_bytes

RECORDING = "torch-mi300x-resnet-ddp-rank0/resnet_act_checkpoint.json.gz"
REPOSITORY = Path(__file__).resolve().parents[3]
PEERS = {"hta": "hta", "tracelens": "TraceLens"}
PEERS_PYTHON = REPOSITORY / "build" / "peers" / "bin" / "python"
MEGABYTE = 10**6


def unpack_only(path: str) -> int:
    """The floor: unpack with isal and throw away."""
    from isal import igzip

    total = 0
    with igzip.open(path) as file:
        while piece := file.read(2**20):
            total += len(piece)
    return total


def tidyprof_events(path: str) -> int:
    from tidyprof import read_torch_trace

    return len(read_torch_trace(path, progress=False).events)


def tidyprof_kernels(path: str) -> int:
    from tidyprof import kernels, read_torch_trace

    return len(kernels(read_torch_trace(path, progress=False)))


def json_loop(path: str) -> int:
    """What one writes without a library: json, and a loop that sums kernels."""
    import gzip
    import json

    totals: dict[str, float] = {}
    with gzip.open(path) as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("cat") == "kernel":
                totals[event["name"]] = totals.get(event["name"], 0) + event["dur"]
    return len(totals)


def hta(path: str) -> int:
    from hta.trace_analysis import TraceAnalysis

    return len(TraceAnalysis(trace_files={0: path}).get_gpu_kernel_breakdown(visualize=False)[1])


def tracelens(path: str) -> int:
    from TraceLens import TreePerfAnalyzer

    return len(TreePerfAnalyzer.from_file(path).get_df_kernels())


WAYS = {
    way.__name__: way
    for way in (unpack_only, tidyprof_kernels, tidyprof_events, json_loop, hta, tracelens)
}
IMPORTS = {
    "tidyprof_kernels": ("tidyprof.analyses", "tidyprof.readers.torch.reader"),
    "tidyprof_events": ("tidyprof.readers.torch.reader",),
    "hta": ("hta.trace_analysis",),
    "tracelens": ("TraceLens",),
}


@dataclass(frozen=True)
class Measured:
    """Seconds of each run, and the median of the peak resident sizes."""

    seconds: tuple[float, ...]
    peak_bytes: float

    @property
    def median(self) -> float:
        """Median seconds."""
        return statistics.median(self.seconds)


def run_one(way: str, path: str) -> None:
    """In a process of its own: print seconds without imports and its peak memory in bytes."""
    for module in IMPORTS.get(way, ()):
        __import__(module)
    start = time.perf_counter()
    WAYS[way](path)
    print(time.perf_counter() - start, peak_bytes())


def measure(way: str, path: Path, repeats: int) -> Measured | None:
    """The way's figures for a file; None for a peer that is not installed."""
    python = str(PEERS_PYTHON) if way in PEERS else sys.executable
    if way in PEERS and not installed(PEERS[way]):
        return None
    command = [python, "-m", "benchmarks.bench_torch_trace", way, str(path)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "packages/tidyprof")}
    told = {"capture_output": True, "text": True, "check": True, "env": environment}
    runs = [subprocess.run(command, cwd=REPOSITORY, **told).stdout.split() for _ in range(repeats)]
    seconds, peaks = zip(*(map(float, run[-2:]) for run in runs), strict=True)
    return Measured(seconds, statistics.median(peaks))


def installed(module: str) -> bool:
    """Whether the environment of the peers has a module."""
    if not PEERS_PYTHON.exists():
        return False
    return (
        subprocess.run([PEERS_PYTHON, "-c", f"import {module}"], capture_output=True).returncode
        == 0
    )


def large_file(folder: Path, megabytes: int) -> Path:
    """The recording repeated until it unpacks to this size."""
    # Not at the top: peers run this file in an environment without the course's.
    from benchmarks.large_trace import repeat_trace
    from tools.mirror import mirror_folder

    path = folder / f"trace_{megabytes}.json.gz"
    repeat_trace(mirror_folder() / RECORDING, path, megabytes * MEGABYTE)
    return path


def table(path: Path, ways: dict[str, int]) -> dict[str, Measured]:
    """Measure ways (name -> repeats) on a file, and print them."""
    found = {}
    for way, repeats in ways.items():
        measured = measure(way, path, repeats)
        if measured is None:
            print(f"{path.name}  {way:18} not installed", flush=True)
            continue
        found[way] = measured
        print(
            f"{path.name}  {way:18} {measured.median:8.2f} s ({min(measured.seconds):.2f} to "
            f"{max(measured.seconds):.2f}) {measured.peak_bytes / MEGABYTE:8.0f} MB",
            flush=True,
        )
    return found


@pytest.mark.parametrize("megabytes", [61, 510])
def test_kernels_and_events_against_other_ways(megabytes, tmp_path, record_property):
    path = large_file(tmp_path, megabytes)
    slow = 1 if megabytes > 100 else 3
    found = table(
        path,
        {
            "unpack_only": 5,
            "tidyprof_kernels": 5,
            "tidyprof_events": 5,
            "json_loop": slow,
            "hta": slow,
            "tracelens": slow,
        },
    )
    own = found["tidyprof_kernels"]
    for way, measured in found.items():
        record_property(f"{way} over tidyprof", measured.median / own.median)
    assert found["tidyprof_events"].median <= 1.6 * own.median
    assert "hta" not in found or found["hta"].median >= (15 if megabytes > 100 else 4) * own.median
    assert (
        "tracelens" not in found
        or found["tracelens"].median >= (10 if megabytes > 100 else 4) * own.median
    )
    if megabytes > 100:
        assert own.peak_bytes <= 0.5 * megabytes * MEGABYTE


def test_two_gigabytes_within_four(tmp_path, record_property):
    found = table(
        large_file(tmp_path, 2050), {"unpack_only": 1, "tidyprof_events": 1, "tidyprof_kernels": 1}
    )
    record_property("peak over size", found["tidyprof_events"].peak_bytes / (2050 * MEGABYTE))
    assert found["tidyprof_events"].peak_bytes <= 4 * 10**9


if __name__ == "__main__":
    run_one(*sys.argv[1:])
