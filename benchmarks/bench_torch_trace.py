"""Seconds and peak memory from a torch.profiler trace to tables, next to other ways on the same file.

    python benchmarks/bench_torch_trace.py --megabytes 60 510 --repeats 5

Makes the files from a real recording (PROFLAB_RECORDINGS, or --recording FILE), runs every way in a process of
its own and prints the median. HolisticTraceAnalysis and TraceLens take part where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECORDING = "torch-mi300x-resnet-ddp-rank0/resnet_act_checkpoint.json.gz"
NEEDED = {"hta": "hta", "tracelens": "TraceLens"}


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


WAYS = {way.__name__: way for way in (unpack_only, tidyprof_kernels, tidyprof_events, json_loop, hta, tracelens)}
IMPORTS = {"tidyprof_kernels": "tidyprof.analyses, tidyprof.torch_trace", "tidyprof_events": "tidyprof.torch_trace"}


def run_one(way: str, path: str) -> None:
    """In a process of its own: print seconds without imports, and peak memory in MB."""
    if way in IMPORTS:
        for module in IMPORTS[way].split(", "):
            __import__(module)
    start = time.perf_counter()
    WAYS[way](path)
    seconds = time.perf_counter() - start
    print(seconds, peak_megabytes())


def peak_megabytes() -> float:
    """Largest resident size of this program; getrusage would include the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(way: str, path: Path, repeats: int) -> str:
    if way in NEEDED and importlib.util.find_spec(NEEDED[way]) is None:
        return "not installed"
    command = [sys.executable, __file__, "--one", way, str(path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(repeats)]
    seconds = sorted(float(run[-2]) for run in runs)
    peak = statistics.median(float(run[-1]) for run in runs)
    return f"{statistics.median(seconds):8.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f}) {peak:8.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[60, 510], help="uncompressed sizes of the files")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--recording", type=Path, default=Path(os.environ.get("PROFLAB_RECORDINGS", ".")) / RECORDING)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(*options.one)
        return
    from large_trace import repeat_trace

    with tempfile.TemporaryDirectory() as folder:
        for size in options.megabytes:
            path = Path(folder) / f"trace_{size}.json.gz"
            repetitions = repeat_trace(options.recording, path, size * 10**6)
            print(f"{size} MB ({repetitions} times {options.recording.name}), median of {options.repeats}")
            for way in WAYS:
                print(f"  {way:18} {measure(way, path, options.repeats)}", flush=True)


if __name__ == "__main__":
    main()
