"""How fast rocpd databases are read, beside the plain way: the same checks and events by pandas.

Run with: python -m pytest benchmarks/bench_rocpd.py -s

The ways take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.analyses import kernels
from tidyprof.readers.rocpd.reader import read_rocpd
from tidyprof_tests.rocpd_writer import GPU_AGENTS, START_NS, RocpdWriter

DISPATCHES = 500_000
KERNELS = 60
ROUNDS = 3


def large_file(path: Path, dispatches: int) -> Path:
    """A database with this many dispatches, each with a call of its own; dispatch i takes 2000 + i
    * 104729 % 30011.
    """
    writer = RocpdWriter(path)
    symbols = [writer.kernel_symbol(f"kernel_{number}_" + "x" * 200) for number in range(KERNELS)]
    dispatch, call = writer.string("KERNEL_DISPATCH"), writer.string("HIP_RUNTIME_API_EXT")
    name, thread = writer.string("hipLaunchKernel"), writer.thread(4242)
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {dispatches})"
    )
    start = f"{START_NS} + i * 40000"
    writer.execute(
        f"INSERT INTO {{event}} (id, category_id, stack_id) {numbers} SELECT i, {call}, i FROM n"
    )
    writer.execute(
        f"INSERT INTO {{event}} (id, category_id, stack_id) {numbers} SELECT i + {dispatches},"
        f" {dispatch}, i FROM n"
    )
    writer.execute(
        f'INSERT INTO {{region}} (pid, tid, start, "end", name_id, event_id) {numbers} '
        f"SELECT 1, {thread}, {start} - 9000, {start} - 5000, {name}, i FROM n"
    )
    writer.execute(
        "INSERT INTO {kernel_dispatch} (pid, tid, agent_id, kernel_id, dispatch_id, queue_id,"
        ' stream_id, start, "end", private_segment_size, group_segment_size, workgroup_size_x,'
        " workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, event_id)"
        f" {numbers} SELECT 1, {thread}, {GPU_AGENTS[0]}, {symbols[0]} + i * 31 % {KERNELS}, i, 1,"
        f" 0, {start}, {start} + 2000 + i * 104729 % 30011, 0, 0, 256, 1, 1, 2560 + i % 9, 1, 1, i"
        f" + {dispatches} FROM n"
    )
    return writer.close()


@pytest.fixture(scope="module")
def big(tmp_path_factory) -> Path:
    path = large_file(tmp_path_factory.mktemp("rocpd") / "big_results.db", DISPATCHES)
    print(f"\n{DISPATCHES} dispatches in {path.stat().st_size / 1e6:.0f} MB")
    return path


def plain_way(path: Path) -> pd.DataFrame:
    """Kernels and calls with their correlation ids, from a database whose structure SQLite has
    checked.
    """
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    table = pd.read_sql_query(
        "SELECT name, start, end - start AS duration FROM kernels", connection
    )
    calls = pd.read_sql_query(
        "SELECT r.*, e.stack_id, e.category_id FROM rocpd_region r"
        " JOIN rocpd_event e ON e.id = r.event_id",
        connection,
    )
    connection.close()
    assert len(calls) == DISPATCHES
    return table.groupby("name")["duration"].agg(["size", "sum"])


def test_all_events_against_the_same_by_pandas(big):
    seconds: dict[str, list[float]] = {"pandas": [], "ours": []}
    for _ in range(ROUNDS):
        for name, way in (
            ("pandas", lambda: plain_way(big)),
            ("ours", lambda: kernels(read_rocpd(big))),
        ):
            begin = time.perf_counter()
            table = way()
            seconds[name].append(time.perf_counter() - begin)
            assert len(table) == KERNELS
    plain, ours = (statistics.median(own) for own in seconds.values())
    rate = 2 * DISPATCHES / ours
    print(
        f"kernels and calls by pandas {plain:.2f} s; all events by read_rocpd {ours:.2f} s,"
        f" {rate / 1e6:.2f} million rows/s"
    )
    assert ours < 1.5 * plain
