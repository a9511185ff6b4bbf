"""Seconds and peak memory to read large files, next to the plain way on the same file.

Run with: python -m pytest packages/tidyprof/benchmarks/bench_readers.py -s

The torch trace is a real recording (`make mirror` fetches it), repeated with later times until it
unpacks to 510 MB. The other files are synthetic, with one call per kernel and names as long as
PyTorch's. Each way runs in a separate process, and the ways alternate, so that a busy machine slows
all of them. Imports don't count.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyarrow import csv

import tidyprof
from benchmarks.large_trace import repeat_trace
from benchmarks.peak_memory import own_peak_bytes
from tidyprof_tests.rocpd_writer import GPU_AGENTS, START_NS, RocpdWriter
from tidyprof_tests.rpd_writer import RpdWriter

HOUSE = Path(__file__).resolve().parents[1]
TORCH = "torch-mi300x-resnet-ddp-rank0/resnet_act_checkpoint.json.gz"
TORCH_BYTES = 510_000_000
ROWS, KERNELS, ROUNDS = 1_000_000, 60, 3
NAMES = [f"kernel_{number}_" + "x" * 200 for number in range(KERNELS)]
NUMBERS = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
START = f"{START_NS} + i * 40000"
CSV_HEADER = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,"
    "SGPR_Count,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,"
    "Grid_Size_Z"
)


def write_rpd(path: Path) -> None:
    writer = RpdWriter(path)
    names = [writer.string(name) for name in NAMES]
    kernel, launch = writer.string("KernelExecution"), writer.string("hipLaunchKernel")
    empty, name = writer.string(""), f"{names[0]} + i * 31 % {KERNELS}"
    for statement in (
        f"INSERT INTO rocpd_op {NUMBERS} SELECT i, 2, 0, 0, '', {START}, {START} + 9000, {name},"
        f" {kernel} FROM n",
        f"INSERT INTO rocpd_api {NUMBERS} SELECT i, 1560, 1560, {START} - 9000, {START} - 5000,"
        f" {launch}, {empty} FROM n",
        f"INSERT INTO rocpd_api_ops {NUMBERS} SELECT i, i, i FROM n",
        f"INSERT INTO rocpd_kernelapi {NUMBERS} SELECT i, '0x0', 64 + i % 9, 2, 1, 256, 1, 1, 0, 0,"
        f" '', '', '', '', {name} FROM n",
    ):
        writer.execute(statement)
    writer.close()


def write_rocpd(path: Path) -> None:
    writer = RocpdWriter(path)
    symbols = [writer.kernel_symbol(name) for name in NAMES]
    dispatch, call = writer.string("KERNEL_DISPATCH"), writer.string("HIP_RUNTIME_API_EXT")
    name, thread = writer.string("hipLaunchKernel"), writer.thread(4242)
    for statement in (
        f"INSERT INTO {{event}} (id, category_id, stack_id) {NUMBERS} SELECT i, {call}, i FROM n",
        f"INSERT INTO {{event}} (id, category_id, stack_id) {NUMBERS} SELECT i + {ROWS},"
        f" {dispatch}, i FROM n",
        f'INSERT INTO {{region}} (pid, tid, start, "end", name_id, event_id) {NUMBERS} SELECT 1,'
        f" {thread}, {START} - 9000, {START} - 5000, {name}, i FROM n",
        "INSERT INTO {kernel_dispatch} (pid, tid, agent_id, kernel_id, dispatch_id, queue_id,"
        ' stream_id, start, "end", private_segment_size, group_segment_size, workgroup_size_x,'
        " workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, event_id)"
        f" {NUMBERS} SELECT 1, {thread}, {GPU_AGENTS[0]}, {symbols[0]} + i * 31 % {KERNELS}, i, 1,"
        f" 0, {START}, {START} + 9000, 0, 0, 256, 1, 1, 2560 + i % 9, 1, 1, i + {ROWS} FROM n",
    ):
        writer.execute(statement)
    writer.close()


def write_rocprofv3(path: Path) -> None:
    with path.open("w") as file:
        file.write(CSV_HEADER + "\n")
        for row in range(1, ROWS + 1):
            begin, kernel = START_NS + row * 40_000, row * 31 % KERNELS
            file.write(
                f'"KERNEL_DISPATCH","Agent 4",1,0,834304,{row},{kernel},"{NAMES[kernel]}",{row},'
                f"{begin},{begin + 9000},512,0,8,4,16,256,1,1,{2560 + row % 9},1,1\n"
            )


def by_json(path: str) -> Any:
    """Sum kernels with json and a loop, as one does without a library."""
    totals: dict[str, float] = {}
    with gzip.open(path) as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("cat") == "kernel":
                totals[event["name"]] = totals.get(event["name"], 0) + event["dur"]
    return totals


def by_pandas(*queries: str) -> Callable[[str], Any]:
    def read(path: str) -> Any:
        connection = sqlite3.connect(path)
        return [pd.read_sql_query(query, connection) for query in queries]

    return read


PLAIN: dict[str, Callable[[str], Any]] = {
    "trace.json.gz": by_json,
    "trace.rpd": by_pandas(
        "SELECT o.id, gpuId, queueId, start, end, d.string AS description, t.string AS type FROM"
        " rocpd_op o JOIN rocpd_string d ON d.id = description_id JOIN rocpd_string t ON t.id ="
        " opType_id",
        "SELECT a.id, pid, tid, start, end, n.string AS name, t.string AS args FROM rocpd_api a"
        " JOIN rocpd_string n ON n.id = apiName_id JOIN rocpd_string t ON t.id = args_id",
    ),
    "1_results.db": by_pandas(
        "PRAGMA quick_check",
        "SELECT name, start, end - start AS duration FROM kernels",
        "SELECT r.*, e.stack_id, e.category_id FROM rocpd_region r JOIN rocpd_event e"
        " ON e.id = r.event_id",
    ),
    "1_kernel_trace.csv": csv.read_csv,
}
"""File -> the plain way to read it. That of rocpd checks the database, as the reader does."""
WRITERS = {
    "trace.rpd": write_rpd,
    "1_results.db": write_rocpd,
    "1_kernel_trace.csv": write_rocprofv3,
}
BARS = {
    "trace.json.gz": (0.9, 0.5 * TORCH_BYTES),
    "trace.rpd": (1.0, 1.2e9),
    "1_results.db": (1.5, 1.5e9),
    "1_kernel_trace.csv": (4.0, 0.7e9),
}
"""File -> times the plain way that reading may take, and the most memory in bytes."""


def measured(way: str, path: Path) -> tuple[float, int]:
    """Return the seconds and the peak memory of one way, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.bench_readers", way, str(path)]
    folders = os.pathsep.join([str(HOUSE), str(HOUSE / "tests")])
    known = os.environ | {"PYTHONPATH": folders}
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak)


@pytest.mark.parametrize("name", PLAIN)
def test_reading_against_the_plain_way(name: str, recordings: Path, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "trace.json.gz":
        repeat_trace(recordings / TORCH, path, TORCH_BYTES)
    else:
        WRITERS[name](path)
    runs = [(measured("plain", path), measured("tidyprof", path)) for _ in range(ROUNDS)]
    plain, ours = (statistics.median(run[i][0] for run in runs) for i in range(2))
    peak = max(run[1][1] for run in runs)
    print(f"{name}: plain {plain:.2f} s, tidyprof {ours:.2f} s and {peak / 1e6:.0f} MB")
    most_times, most_bytes = BARS[name]
    assert ours <= most_times * plain
    assert peak <= most_bytes


def main() -> None:
    """Print the seconds and the peak memory of one way."""
    way, path = sys.argv[1:]
    read = tidyprof.read if way == "tidyprof" else PLAIN[Path(path).name]
    tidyprof.read_torch_trace, tidyprof.read_rpd, tidyprof.read_rocpd, tidyprof.read_rocprofv3  # noqa: B018 - import them now
    begin = time.perf_counter()
    _, peak = own_peak_bytes(lambda: read(path))
    print(time.perf_counter() - begin, peak)


if __name__ == "__main__":
    main()
