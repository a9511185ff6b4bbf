"""How fast rpd files are read, in seconds and in memory.

Run with: python -m pytest benchmarks/bench_rpd.py -s

The bars: all events come no slower than by pandas, which only joins the two tables with their
names; 10 million operations and their calls are read in at most 3 times the memory of the resulting
table. A bar in rows a second would tell of the machine: two quiet cores read 0.9 to 1.2 million.
"""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.readers.rpd.reader import read_rpd
from tidyprof_tests.rpd_writer import START_NS, RpdWriter

REPOSITORY = Path(__file__).resolve().parents[3]
OPERATIONS = 1_000_000
MANY_OPERATIONS = 10_000_000
KERNELS = 60
ROUNDS = 5

BY_PANDAS = (
    (
        "SELECT o.id, gpuId, queueId, start, end, d.string AS description, t.string AS type FROM"
        " rocpd_op o JOIN rocpd_string d ON d.id = description_id JOIN rocpd_string t ON t.id ="
        " opType_id"
    ),
    (
        "SELECT a.id, pid, tid, start, end, n.string AS name, t.string AS args FROM rocpd_api a "
        "JOIN rocpd_string n ON n.id = apiName_id JOIN rocpd_string t ON t.id = args_id"
    ),
)
MEMORY_SCRIPT = """
import sys
from benchmarks.peak_memory import peak_bytes
from tidyprof.readers.rpd.reader import read_rpd
read_rpd(sys.argv[2])
before = peak_bytes()
events = read_rpd(sys.argv[1]).events
print(len(events), int(events.memory_usage(deep=True).sum()), peak_bytes() - before)
"""


def large_file(path: Path, operations: int) -> Path:
    """A file with this many operations, nine kernels to a copy, each with a call of its own."""
    writer = RpdWriter(path)
    names = [writer.string(f"kernel_{number}_" + "x" * 200) for number in range(KERNELS)]
    kernel, copy = writer.string("KernelExecution"), writer.string("CopyHostToDevice")
    launch, transfer = writer.string("hipLaunchKernel"), writer.string("hipMemcpyAsync")
    empty = writer.string("")
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {operations})"
    )
    start, duration = f"{START_NS} + i * 40000 + i * 7919 % 9973", "2000 + i * 104729 % 30011"
    name = f"{names[0]} + i * 31 % {KERNELS}"
    is_copy = "i % 10 = 0"
    call = "i + 4294967296"
    for statement in (
        (
            f"INSERT INTO rocpd_op {numbers} SELECT {call}, 2, 0, 0, '', {start}, {start} +"
            f" {duration}, CASE WHEN {is_copy} THEN {empty} ELSE {name} END, CASE WHEN {is_copy}"
            f" THEN {copy} ELSE {kernel} END FROM n"
        ),
        (
            f"INSERT INTO rocpd_api {numbers} SELECT {call}, 1560, 1560, {start} - 9000, {start} -"
            f" 5000, CASE WHEN {is_copy} THEN {transfer} ELSE {launch} END, {empty} FROM n"
        ),
        f"INSERT INTO rocpd_api_ops {numbers} SELECT i, {call}, {call} FROM n",
        (
            f"INSERT INTO rocpd_kernelapi {numbers} SELECT {call}, '0x0', 64 + i % 9, 2, 1, 256, 1,"
            f" 1, 0, 0, '', '', '', '', {name} FROM n WHERE NOT {is_copy}"
        ),
        (
            f"INSERT INTO rocpd_copyapi {numbers} SELECT {call}, '0x0', 65536, '', '', 1, '0x1',"
            f" '0x2', 0, 0, 0, 0 FROM n WHERE {is_copy}"
        ),
    ):
        writer.execute(statement)
    return writer.close()


@pytest.fixture(scope="module")
def big(tmp_path_factory) -> Path:
    path = large_file(tmp_path_factory.mktemp("rpd") / "big.rpd", OPERATIONS)
    print(f"\n{OPERATIONS} operations in {path.stat().st_size / 1e6:.0f} MB")
    return path


def by_pandas(path: Path) -> int:
    """Rows of the operations and of the calls, without what links them, their streams or shapes."""
    connection = sqlite3.connect(path)
    rows = sum(len(pd.read_sql_query(query, connection)) for query in BY_PANDAS)
    connection.close()
    return rows


def test_all_events_against_the_two_tables_by_pandas(big):
    seconds: dict[str, list[float]] = {"pandas": [], "read_rpd": []}
    for _ in range(ROUNDS):
        for name, way in (
            ("pandas", by_pandas),
            ("read_rpd", lambda path: len(read_rpd(path).events)),
        ):
            begin = time.perf_counter()
            assert way(big) == 2 * OPERATIONS
            seconds[name].append(time.perf_counter() - begin)
    plain, ours = (statistics.median(rounds) for rounds in seconds.values())
    rate = 2 * OPERATIONS / ours / 1e6
    print(
        f"the two tables by pandas {plain:.2f} s; all by read_rpd {ours:.2f} s, {rate:.2f} million"
        " rows a second"
    )
    assert ours <= plain


def test_memory_of_many_operations(tmp_path):
    many, few = (
        large_file(tmp_path / "many.rpd", MANY_OPERATIONS),
        large_file(tmp_path / "few.rpd", 10),
    )
    begin = time.perf_counter()
    answer = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, str(many), str(few)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    rows, table, growth = map(int, answer.stdout.split())
    print(
        f"{rows} events in {time.perf_counter() - begin:.1f} s: table {table / 1e9:.2f} GB, "
        f"peak growth {growth / 1e9:.2f} GB, {growth / table:.2f} times"
    )
    assert rows == 2 * MANY_OPERATIONS
    assert growth <= 3 * table
