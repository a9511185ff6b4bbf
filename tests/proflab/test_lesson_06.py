"""The exercises of lesson 06 on a file made by hand, what a learner is told of wrong SQL, and the
lesson's modules.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from gpumodel import writers
from gpumodel.simulation import simulate
from gpumodel.writers.rpd import schema_text
from proflab.case import options
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts import trace_database
from proflab.parts.trace_database import Query, QuestionError, answer_of, wrong_query
from proflab.recordings import shipped_folder
from proflab.standins import append_to_path
from proflab.standins.play import understand

lesson = exercises_of("06")

CALLS = [
    ("hipMemcpyAsync", 0, 11_000, ""),
    ("hipLaunchKernel", 5_000, 6_000, ""),
    ("hipMemcpyAsync", 20_000, 41_000, ""),
    ("hipLaunchKernel", 42_000, 82_000, ""),
    ("hipLaunchKernel", 82_000, 83_000, ""),
    ("roctxThreadRangeA", 0, 1_000, "data"),
    ("roctxThreadRangeA", 80_000, 81_000, "data"),
]

OPERATIONS = [
    ("copy", "MEMORY_COPY_HOST_TO_DEVICE", 0, 10_000, 1),
    ("kernel", "long", 10_000, 70_000, 2),
    ("copy", "MEMORY_COPY_DEVICE_TO_HOST", 30_000, 40_000, 3),
    ("kernel", "short", 90_000, 95_000, 4),
    ("kernel", "short", 95_000, 100_000, 5),
]
"""Kind, name, start, end, number of the call. The second copy runs beside a kernel; from 70 to 90
µs nothing runs.
"""

OP = """CREATE TEMP VIEW op AS SELECT '{0}' AS gpu, 'kernel' AS kind, name, start, end FROM {0}.kernels
    UNION ALL SELECT '{0}', 'copy', name, start, end FROM {0}.memory_copies"""
"""The lesson's own view."""

MARKS = """CREATE TEMP TABLE marks AS
    SELECT coalesce(json_extract(extdata, '$.message'), name) AS range, tid, start, end
    FROM regions WHERE category LIKE 'MARKER%'"""
"""And its table of ranges."""


def database_file(path: Path, marks_in_names: bool = False) -> sqlite3.Connection:
    """CALLS and OPERATIONS under the names of rocpd's views. marks_in_names -- as since ROCm 10.1,
    else in extdata.
    """
    with closing(sqlite3.connect(path)) as database:
        columns = "id, category, name, start, end, duration, stack_id, extdata, tid"
        for table in ("kernels", "memory_copies", "regions"):
            database.execute(f"CREATE TABLE rows_of_{table} ({columns})")
            database.execute(f"CREATE VIEW {table} AS SELECT * FROM rows_of_{table}")
        for number, (name, start, end, mark) in enumerate(CALLS, 1):
            category = "MARKER_CORE_RANGE_API" if mark else "HIP_RUNTIME_API_EXT"
            shown, more = (
                (mark, "{}")
                if mark and marks_in_names
                else (name, f'{{"message": "{mark}"}}' if mark else "{}")
            )
            row = (number, category, shown, start, end, end - start, number, more)
            database.execute("INSERT INTO rows_of_regions VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)", row)
        for number, (kind, name, start, end, call) in enumerate(OPERATIONS, 1):
            table = "kernels" if kind == "kernel" else "memory_copies"
            row = (number, "", name, start, end, end - start, call, "{}")
            database.execute(f"INSERT INTO rows_of_{table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)", row)
        database.commit()
    return with_view(sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True))


def with_view(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute(OP.format("main"))
    database.execute(MARKS)
    return database


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = database_file(tmp_path / "hand.db")
    yield connection
    connection.close()


def values(connection: sqlite3.Connection, sql: str) -> list[tuple]:
    return answer_of(connection, sql).rows


def test_answers_by_hand(by_hand: sqlite3.Connection) -> None:
    assert values(by_hand, lesson.TOP_FIVE) == [("long", 1, 60_000), ("short", 2, 10_000)]
    # No kernel of RCCL, and the copies count nowhere.
    assert values(by_hand, lesson.BY_GPU) == [("main", 0, 70_000)]
    # No call begins within a mark.
    assert values(by_hand, lesson.BY_RANGE) == []


def test_overlapping_work_is_no_gap(by_hand: sqlite3.Connection) -> None:
    # The copy ends at 40 µs and the next kernel starts at 90, but the first kernel runs until 70.
    assert values(by_hand, lesson.IDLE_BY_LAG) == [(50_000,)]
    assert values(by_hand, lesson.IDLE) == [(20_000,)]
    selftest("06.3", by_hand, mistakes=False)


def played(folder: Path, command: str, format_name: str = "rocpd") -> list[Path]:
    """The files that the lesson's tools write of a command, played by the model."""
    run = simulate(understand(command.split(), {}).workload)
    more = {"name": "played.rpd", "tracer": "rocprofiler-sdk"} if format_name == "rpd" else {}
    return writers.write(format_name, run, folder, **more)


def read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def opened(path: Path, folder: Path) -> sqlite3.Connection:
    """A database, unpacked into the folder if it is packed."""
    if path.suffix == ".gz":
        plain = folder / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path = plain
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


@pytest.mark.parametrize("origin", ["full", "cut"])
def test_a_public_recording_refuses_what_only_looks_like_copies(
    origin: str, recordings: Path, tmp_path: Path
) -> None:
    folder = recordings if origin == "full" else shipped_folder() / "cuts"
    with closing(opened(folder / "rpd-vllm-mytrace/mytrace.rpd.gz", tmp_path)) as database:
        selftest("06.5", database)
        question = find("06.5").on(database)
        assert "`copyop` has 536 of 1176 copies" in question.evaluate(lesson.COPY_CALLS).message
        whole = question.evaluate(lesson.COPY_SHARE.replace("100.0", "100"))
        assert "whole numbers, so SQL cuts off" in whole.message
        # 6.2 of the 9.5 ms in copies are within the GPU.
        assert "65 % of it is CopyDeviceToDevice" in question.evaluate(lesson.COPY_SHARE).message
        message = question.evaluate("SELECT sum(duration) FROM copy").message
        assert "no column `duration` in what you ask: the views copyop, kernel have it" in message


def test_the_played_run_on_four_gpus_refuses_what_holds_only_without_overlap(
    tmp_path: Path,
) -> None:
    first, *others = played(
        tmp_path, "torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 4"
    )
    with closing(read_only(first)) as database:
        for number, path in enumerate(others, 1):
            database.execute(f"ATTACH 'file:{path}?mode=ro' AS gpu{number}")
        parts = OP.partition("AS ")[2]
        names = ["main", *(f"gpu{number}" for number in range(1, 1 + len(others)))]
        database.execute(
            "CREATE TEMP VIEW op AS " + " UNION ALL ".join(parts.format(name) for name in names)
        )
        selftest("06.3", database)
        selftest("06.4", database)
        said = {
            lesson.IDLE_BY_LAG: "`lag` knows one row",
            lesson.IDLE_BY_GPU: "`PARTITION BY gpu` gives each GPU a line of its own",
            lesson.IDLE_WITH_ITSELF: "The row itself is in this window",
            lesson.IDLE_OF_FIRST: "one GPU of the four",
        }
        for sql, words in said.items():
            assert words in find("06.3").on(database).evaluate(sql).message


def test_the_played_training_proves_its_rungs(tmp_path: Path) -> None:
    (path,) = played(tmp_path, f"python -m cifar_train {options('06')} --max-steps 4 --roctx")
    with closing(with_view(read_only(path))) as database:
        selftest("06.1", database)
        selftest("06.2", database)
        for sql in (
            lesson.CALLS,
            lesson.CALLS.replace("GROUP", "WHERE category NOT LIKE 'MARKER%' GROUP"),
        ):
            assert "calls on the host" in find("06.1").on(database).evaluate(sql).message


def test_a_kernel_belongs_to_the_range_in_which_its_call_began_in_any_thread(
    tmp_path: Path,
) -> None:
    (path,) = played(tmp_path, f"python -m cifar_train {options('06')} --max-steps 4 --roctx")
    with closing(with_view(read_only(path))) as database:
        in_all = values(database, "SELECT sum(duration) FROM kernels")[0][0]
        found = dict(values(database, lesson.BY_RANGE))
        assert list(found)[:2] == ["backward", "forward"]
        assert sum(found.values()) == in_all
        alone = lesson.BY_RANGE.replace("ON r.start", "ON m.tid = r.tid AND r.start")
        assert "a thread of its own" in find("06.2").on(database).evaluate(alone).message


MISTAKES_OF_SQL = [
    ("SELECT count(*) FROM opp", "no table `opp`: did you mean op"),
    ("SELECT dration FROM kernels", "no column `dration`: did you mean"),
    (
        "SELECT stack_id FROM op",
        "no column `stack_id` in what you ask: the views kernels, memory_copies, regions have",
    ),
    ("SELECT o.strt FROM op o", "no column `o.strt`: did you mean start"),
    ("SELECT cout(*) FROM op", "no such function: cout"),
    ("SELECT count(*) FORM op", "can't read it at `op`"),
    ("SELECT count(*", "ends too early"),
    ("SELECT 'a", "quotation mark"),
    (
        "SELECT start FROM kernels k JOIN regions r ON r.id = k.id",
        "write the table before it, as in `o.start`",
    ),
    ("SELECT * FROM op WHERE count(*) > 1", "subquery"),
    ("SELECT max(lag(start) OVER (ORDER BY start)) FROM op", "subquery"),
    ("SELECT 1; SELECT 2", "One question at a time"),
    ("DELETE FROM rows_of_kernels", "Only questions"),
    ("ATTACH 'other.db' AS other", "Only questions"),
    ("SELECT load_extension('x')", "Only questions"),
    ("-- only a comment", "no question"),
    ("SELECT ?", "SQLite says"),
    ("SELECT \x00 FROM op", "SQLite says"),
    (7, "SQL text in quotes, this is a int"),
    (None, "SQL text in quotes, this is a NoneType"),
]


@pytest.mark.parametrize(("sql", "words"), MISTAKES_OF_SQL)
def test_wrong_sql_gets_advice_and_no_traceback(
    sql, words: str, by_hand: sqlite3.Connection
) -> None:
    result = find("06.1").on(by_hand).evaluate(sql)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_an_empty_name_is_called_so(by_hand: sqlite3.Connection) -> None:
    wrong = lesson.TOP_FIVE.replace("SELECT name", "SELECT ''")
    assert "The text is empty" in Query("SELECT 'a'", ("name",)).judge(
        "SELECT ''", wrong_query("SELECT 'a'")(by_hand), by_hand
    )
    assert find("06.1").on(by_hand).evaluate(wrong).outcome is Outcome.WRONG


def test_a_question_without_end_is_given_up(
    by_hand: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    )
    monkeypatch.setattr(trace_database, "TIME_LIMIT_S", 0.05)
    with pytest.raises(QuestionError, match="given up after"):
        answer_of(by_hand, endless)
    monkeypatch.setattr(trace_database, "MOST_ROWS", 24)
    with pytest.raises(QuestionError, match="condition missing in a JOIN"):
        answer_of(by_hand, "SELECT a.start FROM op a, op b")


def test_a_check_changes_nothing_even_where_the_learner_could(
    by_hand: sqlite3.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "hand.db"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    writing = sqlite3.connect(path)
    for sql in (
        "DROP VIEW kernels",
        "UPDATE rows_of_kernels SET start = 0",
        "CREATE VIEW v AS SELECT 1",
        "VACUUM",
    ):
        with pytest.raises(QuestionError):
            answer_of(writing, sql)
    assert writing.execute("PRAGMA user_version").fetchone() == (
        0,
    )  # the learner's connection is free again
    writing.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


PAIRS = Query(
    "SELECT 'a', 10 UNION ALL SELECT 'b', 20", ("name", "ns"), ordered=True, units=("", "ns")
)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 10", "Its columns are 1, asked are: name, ns."),
        ("SELECT 'a', 10 WHERE 0", "gives no row"),
        ("SELECT 'a', 10", "Its rows are too few: 1."),
        ("SELECT 'b', 20 UNION ALL SELECT 'a', 10", "their order is not"),
        ("SELECT 10, 'a' UNION ALL SELECT 20, 'b'", "order of the columns is not: name, ns"),
        (
            "SELECT 'a', 0.01 UNION ALL SELECT 'b', 0.02",
            "Row 1, ns: This is a thousand times too small.",
        ),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', 21", "Row 2, ns: 21 is too big."),
        ("SELECT 'a', 10 UNION ALL SELECT 'c', 20", "Row 2, name: It is not `c`."),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', NULL", "Row 2, ns: There is no value (NULL)."),
    ],
)
def test_the_first_difference_of_two_answers_is_named(
    sql: str, words: str, by_hand: sqlite3.Connection
) -> None:
    assert words in PAIRS.judge(sql, PAIRS.right(by_hand), by_hand)


def test_names_of_columns_and_a_semicolon_are_free(by_hand: sqlite3.Connection) -> None:
    same = "WITH t(x, y) AS (VALUES ('a', 10), ('b', 20.0)) SELECT x AS kernel, y FROM t;  -- done"
    assert PAIRS.judge(same, PAIRS.right(by_hand), by_hand) is None


def test_a_question_with_nothing_to_find_cannot_be_judged() -> None:
    empty = sqlite3.connect(":memory:")
    empty.executescript(schema_text())
    result = find("06.5").on(empty).evaluate("SELECT 1")
    assert (result.outcome, "holds nothing" in result.message) == (Outcome.NOT_ATTEMPTED, True)
    empty.close()


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), min_size=1, max_size=6)


def _values(rows: list[tuple[str, int]]) -> str:
    return "VALUES " + ", ".join(f"('{name}', {number})" for name, number in rows)


@settings(max_examples=40)
@given(ROWS, st.randoms(use_true_random=False), st.data())
def test_order_counts_only_where_it_is_asked_and_numbers_always(rows, random, data) -> None:
    database = sqlite3.connect(":memory:")
    shuffled = random.sample(rows, len(rows))
    free, ordered = (
        Query(_values(rows), ("name", "number"), ordered=order) for order in (False, True)
    )
    assert free.judge(_values(shuffled), free.right(database), database) is None
    assert (ordered.judge(_values(shuffled), ordered.right(database), database) is None) == (
        shuffled == rows
    )
    assert free.same(_values(shuffled), wrong_query(_values(rows))(database))
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [(name, number + 100 * (row == place)) for row, (name, number) in enumerate(rows)]
    assert free.judge(_values(changed), free.right(database), database)
    database.close()


def test_the_converter_of_the_lesson_is_there_beside_a_real_tracer(
    tmp_path: Path, recordings: Path
) -> None:
    tracer = tmp_path / "runTracer.sh"
    tracer.write_text("#!/bin/sh\n")
    tracer.chmod(0o755)
    environ = {"PATH": os.pathsep.join([str(tmp_path), os.defpath])}
    kinds = {found.tool: found.kind for found in append_to_path(environ)}
    assert (kinds["runTracer.sh"], kinds["rpd2tracing"]) == ("real", "stand-in")
    source, target = recordings / "rpd-mi200-matmul/matmul_result.rpd", tmp_path / "blog.json"
    subprocess.run(["rpd2tracing", source, target], env=environ, check=True, capture_output=True)
    assert len(tidyprof.read(target).device_events) == len(tidyprof.read(source).device_events)
