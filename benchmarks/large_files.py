"""Seconds and memory to read files of ten million events and torch traces of 5 GB; `make
reliability` runs it.

    python -m benchmarks.large_files --events 10000000 --only rpd

Every file is made here, in a temporary folder, by rules that say what its kernels add up to. A
process of its own reads it and asks for its kernels (of a log of sensors, for the sum of the
power), and has to find exactly that. A tenth of the file, read in the same way, shows how time and
memory grow.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from benchmarks import bench_perfetto, bench_rocpd, bench_rocprofv3, bench_rpd, bench_system
from benchmarks.large_trace import repeat_trace
from benchmarks.page import RELIABILITY, write_part
from benchmarks.peak_memory import peak_bytes

REPOSITORY = Path(__file__).resolve().parents[1]
EVENTS = 10_000_000
TORCH_BYTES_AN_EVENT = 500
"""A torch trace is made by size, 5 GB for ten million: it has then more events than these."""

START_NS = 849_432_249_267_152
V1_HEADER = (
    "Index KernelName gpu-id queue-id queue-index pid tid grd wgr lds scr arch_vgpr accum_vgpr sgpr"
    " wave_size sig obj DispatchNs BeginNs EndNs CompleteNs DurationNs"
)
BATCH = 500_000


@dataclass(frozen=True)
class Large:
    """A file, and what has to be found in it: rows (events, or values of sensors), kernels, their
    nanoseconds.

    Of a log of sensors the last two are about its values of power, in watt.
    """

    path: Path
    rows: int
    kernels: int
    total: int


def durations_ns(numbers: range) -> int:
    """What kernels of these numbers add up to, by the rule of bench_rocpd and bench_rpd."""
    return sum(2000 + number * 104729 % 30011 for number in numbers)


def rocpd(folder: Path, events: int) -> Large:
    """Half of the events are kernels, half are calls."""
    path = bench_rocpd.large_file(folder / "1_results.db", events // 2)
    return Large(path, events, events // 2, durations_ns(range(1, events // 2 + 1)))


def rpd(folder: Path, events: int) -> Large:
    """As rocpd, but each tenth operation is a copy."""
    path, half = bench_rpd.large_file(folder / "1.rpd", events // 2), events // 2
    copies = range(10, half + 1, 10)
    total = durations_ns(range(1, half + 1)) - durations_ns(copies)
    return Large(path, events, half - len(copies), total)


def rocprofv3(folder: Path, events: int) -> Large:
    """Dispatches with names of some hundred characters."""

    def cells(i: np.ndarray) -> dict[str, Any]:
        same = dict.fromkeys(bench_rocprofv3.HEADER.split(","), 0) | {
            "Kind": "KERNEL_DISPATCH",
            "Agent_Id": "Agent 4",
        }
        same |= dict.fromkeys(("Workgroup_Size_X", "Grid_Size_X"), 256)
        return same | {"Kernel_Id": i % 80, "Dispatch_Id": i, "Correlation_Id": i}

    return _kernel_csv(
        folder / "1_kernel_trace.csv", events, cells, "Kernel_Name Start_Timestamp End_Timestamp"
    )


def rocprof_v1(folder: Path, events: int) -> Large:
    """The same as rocprof 1 wrote it."""

    def cells(i: np.ndarray) -> dict[str, Any]:
        same = dict.fromkeys(V1_HEADER.split(), 64) | {"sig": "0x0", "obj": "0x7f0d"}
        times = {
            "DispatchNs": _start(i) - 50,
            "CompleteNs": _start(i) + 40_000,
            "DurationNs": _length(i),
        }
        return same | {"Index": i} | times

    return _kernel_csv(folder / "results.csv", events, cells, "KernelName BeginNs EndNs")


def _kernel_csv(
    path: Path, rows: int, cells: Callable[[np.ndarray], dict[str, Any]], named: str
) -> Large:
    """Kernels one after the other; `named` are the columns of their names, starts and ends."""
    texts = [bench_rocprofv3.kernel_name(number) for number in range(bench_rocprofv3.KERNELS)]
    with path.open("wb") as file:
        for first in range(1, rows + 1, BATCH):
            i = np.arange(first, min(first + BATCH, rows + 1))
            names = np.array(texts, object)[i % len(texts)]
            columns = cells(i) | dict(
                zip(named.split(), (names, _start(i), _start(i) + _length(i)), strict=True)
            )
            table = pa.Table.from_pandas(pd.DataFrame(columns, index=i), preserve_index=False)
            csv.write_csv(table, file, csv.WriteOptions(include_header=first == 1))
    return Large(path, rows, rows, durations_ns(range(1, rows + 1)))


def _start(i: np.ndarray) -> np.ndarray:
    return START_NS + i * 40_000


def _length(i: np.ndarray) -> np.ndarray:
    return 2000 + i * 104729 % 30011


def perfetto(folder: Path, events: int) -> Large:
    """A fourth are kernels of 9 us each. Making one takes long, so there are fewer of them."""
    path, events = folder / "1.pftrace", events // 10
    bench_perfetto.write_large_trace(path, events)
    return Large(path, events, events // 4, events // 4 * 9000)


def system(folder: Path, events: int) -> Large:
    """Eight values of eight GPUs each second: 43 hours for ten million."""
    path, seconds = folder / "smi.csv", events // 8 // bench_system.GPUS
    powers = bench_system.write_log(path, seconds)
    return Large(path, 8 * len(powers), len(powers), sum(powers))


def torch(folder: Path, events: int) -> Large:
    """The shipped trace of a modelled step again and again, unpacked."""
    packed = torch_packed(folder, events)
    path = packed.path.with_suffix("")
    with gzip.open(packed.path) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, 2**20)
    packed.path.unlink()
    return Large(path, packed.rows, packed.kernels, packed.total)


def torch_packed(folder: Path, events: int) -> Large:
    """The same as torch.profiler packs it."""
    source = next((REPOSITORY / "recordings" / "modelled-resnet" / "torch").glob("*.json.gz"))
    target = folder / "trace.json.gz"
    times = repeat_trace(source, target, TORCH_BYTES_AN_EVENT * events)
    found = json.loads(gzip.decompress(source.read_bytes()), parse_float=Decimal)["traceEvents"]
    lasting = [
        event for event in found if event["ph"] == "X" and event["cat"] != "Trace"
    ]  # that one is the session
    kernels = [event["dur"] for event in lasting if event["cat"] == "kernel"]
    return Large(
        target, times * len(lasting), times * len(kernels), times * int(1000 * sum(kernels))
    )


MAKERS: dict[str, Callable[[Path, int], Large]] = {
    "rocpd": rocpd,
    "rpd": rpd,
    "rocprofv3, kernel trace (CSV)": rocprofv3,
    "rocprof 1 (CSV)": rocprof_v1,
    "rocprof-sys, rocprofv3 (Perfetto)": perfetto,
    "amd-smi monitor (CSV)": system,
    "torch.profiler": torch,
    "torch.profiler, packed": torch_packed,
}


def child(path: str) -> None:
    """Read a file, ask for its kernels, and print what was found and needed, without imports."""
    import tidyprof
    from tidyprof import kernels, read

    assert tidyprof.kernels is kernels
    begin, cpu = time.perf_counter(), time.process_time()
    profile = read(path)
    if len(profile.events):
        table = kernels(profile)
        found = [len(profile.events), int(table["calls"].sum()), int(table["total_ns"].sum())]
    else:
        power = profile.counters["value"][profile.counters["name"] == "power"]
        found = [len(profile.counters), len(power), int(power.sum())]
    needed = time.perf_counter() - begin, time.process_time() - cpu
    started = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"found": found, "needed": needed, "peak": peak_bytes() + started}))


def measured(make: Callable[[Path, int], Large], events: int) -> list[str]:
    """The cells of a table: size, rows, seconds, of the processors, memory. Raises RuntimeError for
    a wrong figure.
    """
    with tempfile.TemporaryDirectory() as folder:
        large = make(Path(folder), events)
        command = [sys.executable, "-m", "benchmarks.large_files", "--child", str(large.path)]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise RuntimeError(f"{large} was not read ({done.returncode})")
        answer = json.loads(done.stdout)
        if answer["found"] != [large.rows, large.kernels, large.total]:
            raise RuntimeError(f"{large} was read as {answer['found']}")
        wall_s, processor_s = answer["needed"]
        cells = [f"{large.path.stat().st_size / 1e9:.2f}", f"{large.rows:,}"]
    return [*cells, f"{wall_s:.1f}", f"{processor_s:.1f}", f"{answer['peak'] / 1e9:.2f}"]


def main() -> None:
    """Measure all, or those that are asked for, and write the page if all were."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--only", choices=MAKERS, action="append")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    lines = [
        (
            "| file | GB | events | seconds | of the processors | memory, GB | a tenth: of the"
            " processors | memory, GB |"
        ),
        "| --- " * 8 + "|",
    ]
    for name in options.only or MAKERS:
        few, many = (
            measured(MAKERS[name], events) for events in (options.events // 10, options.events)
        )
        lines.append(f"| {name} | {' | '.join([*many, *few[3:]])} |")
        print(lines[-1], file=sys.stderr, flush=True)
    load = os.getloadavg()[2]
    lines += [
        "",
        (
            f"Measured on {os.cpu_count()} cores, with {load:.0f} processes at work on average in"
            " the last minutes."
        ),
    ]
    if not options.only:
        write_part(RELIABILITY, "large files", "\n".join(lines))


if __name__ == "__main__":
    main()
