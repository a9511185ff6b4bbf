"""Seconds and memory to read rocprofv3's kernel_trace.csv, beside the plain ways of reading the
same columns.

Run with: python -m pytest benchmarks/bench_rocprofv3.py -s

The file is made here: a million dispatches of 80 kernels with names of some hundred characters, as
PyTorch's have, 640 MB. Each way runs in a process of its own, as what one leaves in memory slows
the next, and they take turns, so that a busy machine slows all of them. The reader also checks,
sorts and turns everything into the columns of a Profile, which the others do not: beside their own
tables stand those that end in pandas, as the reader does.

The bars: at most four times pyarrow with its defaults, which parses for the reader, and ten million
dispatches within 4.5 GB of memory beside the mapped file, as extrapolated from two sizes. The look
for lost quotes, the order, the checks and the columns of pandas come on top of parsing. Against
pandas the ratio is printed only: since 3.1 its engine is parallel, and the fastest of these, but it
needs the memory of every name.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidyprof.readers.rocprofv3.reader import read_rocprofv3

ROWS = 1_000_000
KERNELS = 80
ROUNDS = 5
LARGE_ROWS = 10_000_000
LARGEST_PEAK_BYTES = 4_500_000_000
MOST_TIMES_THE_ENGINE = 4
START_NS = 63_857_982_592_000
REPOSITORY = Path(__file__).resolve().parents[3]
WAY_PROGRAM = """
import sys
from pathlib import Path
from benchmarks.bench_rocprofv3 import WAYS, medians
print(medians({"one": lambda: WAYS[sys.argv[1]](Path(sys.argv[2]))}, rounds=3)["one"])
"""
HEADER = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,"
    "End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,"
    "Workgroup_Size_X,"
    "Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)
PEAK_PROGRAM = """
import sys
from benchmarks.peak_memory import own_peak_bytes
from tidyprof.readers.rocprofv3.reader import read_rocprofv3
print(*own_peak_bytes(lambda: len(read_rocprofv3(sys.argv[1]).events)))
"""


def kernel_name(number: int) -> str:
    """A name like those of PyTorch's elementwise kernels, 90 to 900 characters long."""
    operand = (
        f"at::native::functor_{number}<c10::BFloat16, float>::operator()(at::TensorIteratorBase&)"
    )
    operands = ", ".join([operand] * (number % 11))
    return f"void at::native::elementwise_kernel_{number}<4, std::array<char*, 2ul> >({operands})"


def write_kernel_trace(path: Path, rows: int) -> Path:
    """A trace of this many dispatches on four queues, in the order of their numbers."""
    random = np.random.default_rng(0)
    names = [kernel_name(number) for number in range(KERNELS)]
    start = START_NS + np.cumsum(random.integers(600, 100_000, rows))
    kernels, durations = random.integers(0, KERNELS, rows), random.integers(600, 200_000, rows)
    with path.open("w") as file:
        file.write(",".join(f'"{name}"' for name in HEADER.split(",")) + "\n")
        for row, (kernel, begin, length) in enumerate(
            zip(kernels.tolist(), start.tolist(), durations.tolist(), strict=True), 1
        ):
            file.write(
                '"KERNEL_DISPATCH","Agent'
                f' 4",{kernel % 4},{kernel % 3},834304,{row},{kernel},"{names[kernel]}",'
                f"{row + 7},{begin},{begin + length},{512 * (kernel % 8)},0,{8 * (kernel % 16)},"
                f"{4 * (kernel % 3)},"
                f"{16 + 16 * (kernel % 5)},256,1,1,{256 * (1 + kernel)},{1 + kernel % 2},1\n"
            )
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kernel_trace(tmp_path_factory.mktemp("bench") / "1_kernel_trace.csv", ROWS)


def by_tidyprof(path: Path) -> Any:
    return read_rocprofv3(path)


def by_pyarrow(path: Path) -> Any:
    from pyarrow import csv

    return csv.read_csv(path)


def by_pyarrow_to_pandas(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    names = csv.ConvertOptions(column_types={"Kernel_Name": pa.dictionary(pa.int32(), pa.string())})
    return csv.read_csv(path, convert_options=names).to_pandas()


def by_pandas(path: Path) -> Any:
    import pandas as pd

    return pd.read_csv(path)


WAYS: dict[str, Callable[[Path], Any]] = {
    "tidyprof": by_tidyprof,
    "pyarrow": by_pyarrow,
    "pyarrow to pandas": by_pyarrow_to_pandas,
    "pandas": by_pandas,
}


def seconds_of(way: str, path: Path) -> float:
    """Median seconds of three readings after a first one, in a new process."""
    run = subprocess.run(
        [sys.executable, "-c", WAY_PROGRAM, way, path],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    return float(run.stdout)


def medians(ways: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each way after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def test_kernel_trace_against_the_engines(trace, record_property):
    turns = [{name: seconds_of(name, trace) for name in WAYS} for _ in range(ROUNDS)]
    found = {name: statistics.median(turn[name] for turn in turns) for name in WAYS}
    for name, seconds in found.items():
        record_property(name, seconds)
        print(f"{name:20} {seconds:6.2f} s  {seconds / found['tidyprof']:5.2f} times tidyprof")
    ratio = found["tidyprof"] / found["pyarrow"]
    print(f"{ratio:.2f} times the engine")
    assert ratio <= MOST_TIMES_THE_ENGINE


def test_ten_million_dispatches_fit_into_their_memory(trace, tmp_path, record_property):
    peaks = {}
    # Arrow buffers some hundred megabytes at most: only from a million rows on memory goes with the
    # rows alone.
    for path in (trace, write_kernel_trace(tmp_path / "1_kernel_trace.csv", 3 * ROWS)):
        run = subprocess.run(
            [sys.executable, "-c", PEAK_PROGRAM, path],
            capture_output=True,
            text=True,
            check=True,
            cwd=REPOSITORY,
        )
        rows, peak = map(int, run.stdout.split())
        peaks[rows] = peak
    (few, few_bytes), (many, many_bytes) = sorted(peaks.items())
    per_row = (many_bytes - few_bytes) / (many - few)
    large = many_bytes + per_row * (LARGE_ROWS - many)
    record_property("bytes a row", per_row)
    print(
        f"peak {many_bytes / 1e9:.2f} GB for {many} rows, {per_row:.0f} bytes a row: "
        f"{large / 1e9:.1f} GB for ten million"
    )
    assert large < LARGEST_PEAK_BYTES


def test_json_results_against_a_loop(tmp_path, record_property):
    from tidyprof_tests.rocprofv3_writer import Kernel, write_results

    kernels = [
        Kernel(kernel_name(row % KERNELS), 1000 * row, 900, row) for row in range(1, 100_001)
    ]
    path = write_results(tmp_path / "1_results.json", kernels)

    def by_loop() -> dict[str, int]:
        tool = json.loads(path.read_text())["rocprofiler-sdk-tool"][0]
        names = {
            symbol["kernel_id"]: symbol["formatted_kernel_name"]
            for symbol in tool["kernel_symbols"]
        }
        totals: dict[str, int] = {}
        for record in tool["buffer_records"]["kernel_dispatch"]:
            name = names[record["dispatch_info"]["kernel_id"]]
            totals[name] = totals.get(name, 0) + record["end_timestamp"] - record["start_timestamp"]
        return totals

    found = medians({"tidyprof": lambda: read_rocprofv3(path), "json and a loop": by_loop})
    record_property("ratio", found["json and a loop"] / found["tidyprof"])
    print(
        f"100,000 dispatches: {found['tidyprof']:.2f} s, json and a loop"
        f" {found['json and a loop']:.2f} s"
    )
    assert found["tidyprof"] <= found["json and a loop"]
