"""The snippet of lesson 06 on small databases of each kind: rpd built on either library, and
rocpd.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from tests.snippets.conftest import Run

MS = 1_000_000

CALLS = [
    ("hipMemcpy", 0, 11 * MS),
    ("hipLaunchKernel", 11 * MS, 51 * MS),
    ("hipGraphLaunch", 52 * MS, 58 * MS),
]

KERNELS = [
    ("void slow<a, b>(int)", 20 * MS, 60 * MS, 2),
    ("in graph", 80 * MS, 82 * MS, 3),
    ("in graph", 82 * MS, 84 * MS, 3),
]
"""Name, start, end, number of the call that launched it. Nothing runs from 10 to 20 and from 60 to
80 ms.
"""

COPIED = (0, 10 * MS, 1)


def rpd_file(path: Path, copy_type: str, graph_type: str) -> Path:
    """The part of rpd's schema that every version has."""
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE rocpd_api (id INTEGER, apiName TEXT, start INTEGER, "end" INTEGER);
            CREATE TABLE rocpd_op (id INTEGER, gpuId INTEGER, start INTEGER, "end" INTEGER,
                description TEXT, opType TEXT);
            CREATE TABLE rocpd_api_ops (id INTEGER, api_id INTEGER, op_id INTEGER);
            CREATE VIEW op AS SELECT * FROM rocpd_op;
            """)
        database.executemany(
            "INSERT INTO rocpd_api VALUES (?, ?, ?, ?)",
            [(n, *row) for n, row in enumerate(CALLS, 1)],
        )
        rows = [(*COPIED[:2], "", copy_type, 1)]
        for name, start, end, call in KERNELS:
            rows.append((start, end, name, graph_type if call == 3 else "KernelExecution", call))
        for number, (start, end, name, kind, call) in enumerate(rows, 1):
            database.execute(
                "INSERT INTO rocpd_op VALUES (?, 2, ?, ?, ?, ?)", (number, start, end, name, kind)
            )
            database.execute("INSERT INTO rocpd_api_ops VALUES (?, ?, ?)", (number, call, number))
    database.close()
    return path


def rocpd_file(path: Path, copy_type: str, _: str) -> Path:
    """The columns of rocpd's views that the questions use."""
    with sqlite3.connect(path) as database:
        times = 'start INTEGER, "end" INTEGER, duration INTEGER, stack_id INTEGER'
        ends = "dst_agent_type TEXT, dst_agent_abs_index INTEGER, src_agent_abs_index INTEGER"
        database.execute(f"CREATE TABLE kernels (agent_abs_index INTEGER, name TEXT, {times})")
        database.execute(f"CREATE TABLE memory_copies ({ends}, name TEXT, {times})")
        database.execute(f"CREATE TABLE regions (category TEXT, name TEXT, {times})")
        for number, (name, start, end) in enumerate(CALLS, 1):
            row = ("HIP_RUNTIME_API_EXT", name, start, end, end - start, number)
            database.execute("INSERT INTO regions VALUES (?, ?, ?, ?, ?, ?)", row)
        for name, start, end, call in KERNELS:
            database.execute(
                "INSERT INTO kernels VALUES (2, ?, ?, ?, ?, ?)",
                (name, start, end, end - start, call),
            )
        row = ("GPU", 2, 0, copy_type, *COPIED[:2], 10 * MS, 1)
        database.execute("INSERT INTO memory_copies VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.close()
    return path


@pytest.mark.parametrize(
    ("make", "copy_type", "graph_type"),
    [
        (rpd_file, "CopyHostToDevice", "Task"),
        (rpd_file, "MEMORY_COPY_HOST_TO_DEVICE", "KernelExecution"),
        (rocpd_file, "MEMORY_COPY_HOST_TO_DEVICE", ""),
    ],
)
def test_the_same_answers_from_every_kind_of_file(
    make, copy_type: str, graph_type: str, bare: Run, tmp_path
) -> None:
    path = make(tmp_path / "trace.db", copy_type, graph_type)
    before = path.read_bytes()
    found = [re.sub(" +", " ", line).strip() for line in _report(bare, path)]
    assert found[0] == f"{path}: 4 operations in 84.000 ms, the first 0 ms left out"
    # 54 ms of work, without overlap; 30 of 84 ms nothing runs.
    assert "2 4 54.000 84.000 35.714" in found
    assert "1 40.000 74.074 void slow<a, b>(int)" in found
    assert f"1 10.000 18.519 {copy_type}" in found
    assert found.index("2 20.000 60.000 in graph") < found.index(
        "2 10.000 10.000 void slow<a, b>(int)"
    )
    # The graph's call of 6 ms counts once, not for each of its kernels; the slow kernel runs as
    # long as its call.
    assert found[-1] == "2 4.000 6.000 in graph"
    assert path.read_bytes() == before


def test_the_first_part_can_be_left_out(bare: Run, tmp_path: Path) -> None:
    path = rpd_file(tmp_path / "trace.rpd", "CopyHostToDevice", "Task")
    found = [re.sub(" +", " ", line).strip() for line in _report(bare, path, "--skip-ms", "70")]
    assert "2 2 4.000 4.000 0.000" in found
    assert found[found.index("copies and fills") + 1] == "none"


def test_what_is_no_trace_is_refused(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look like one " * 20)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    command = ("python", "snippets/06_rpd_report.py")
    for name, words in {
        "no.db": "no such file",
        "text.db": "not a database",
        "other.db": "neither a view",
    }.items():
        done = bare(*command, name, check=False)
        assert (done.returncode, words in done.stderr) == (1, True)


def test_the_questions_are_plain_sql(tmp_path: Path) -> None:
    """What the script says: a block can be pasted into sqlite3."""
    text = (Path(__file__).parents[2] / "snippets/06_rpd_report.sql").read_text()
    database = sqlite3.connect(rpd_file(tmp_path / "trace.rpd", "CopyHostToDevice", "Task"))
    blocks = [block.partition("\n")[2] for block in text.split("-- name: ")[1:]]
    database.execute(blocks[0])
    assert all(database.execute(block, {"begin": 0}).fetchall() for block in blocks[2:])
    database.close()


def _report(bare: Run, *arguments: object) -> list[str]:
    return bare("python", "snippets/06_rpd_report.py", *map(str, arguments)).stdout.splitlines()
