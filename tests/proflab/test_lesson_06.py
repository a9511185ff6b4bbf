"""The exercises of lesson 06 on a file made by hand, what a learner is told of wrong SQL, and the
lesson's modules.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proflab.exercises import Outcome, exercises_of, find
from proflab.parts import trace_database
from proflab.parts.trace_database import Query, QuestionError, answer_of, wrong_query

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


MISTAKES_OF_SQL = [
    ("SELECT count(*) FROM opp", "no table `opp`: did you mean op"),
    ("SELECT dration FROM kernels", "no column `dration`: did you mean"),
    ("SELECT stack_id FROM op", "no column `stack_id`"),
    ("SELECT o.strt FROM op o", "no column `o.strt`: did you mean start"),
    ("SELECT cout(*) FROM op", "no such function: cout"),
    ("SELECT count(*) FORM op", "at `op`"),
    ("SELECT count(*", "incomplete"),
    ("SELECT 'a", "quotation mark"),
    ("SELECT start FROM kernels k JOIN regions r ON r.id = k.id", "`o.start`"),
    ("SELECT * FROM op WHERE count(*) > 1", "subquery"),
    ("SELECT max(lag(start) OVER (ORDER BY start)) FROM op", "subquery"),
    ("SELECT 1; SELECT 2", "`;`"),
    ("DELETE FROM rows_of_kernels", "SELECT or WITH"),
    ("ATTACH 'other.db' AS other", "SELECT or WITH"),
    ("SELECT load_extension('x')", "SELECT or WITH"),
    ("-- only a comment", "SELECT or WITH"),
    ("SELECT ?", "SQLite"),
    ("SELECT \x00 FROM op", "SQLite"),
    (7, "int"),
    (None, "NoneType"),
]


@pytest.mark.parametrize(("sql", "words"), MISTAKES_OF_SQL)
def test_wrong_sql_gets_advice_and_no_traceback(
    sql, words: str, by_hand: sqlite3.Connection
) -> None:
    result = find("06.1").on(by_hand).evaluate(sql)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_a_question_without_end_is_given_up(
    by_hand: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    )
    monkeypatch.setattr(trace_database, "TIME_LIMIT_S", 0.05)
    with pytest.raises(QuestionError, match="stopped after"):
        answer_of(by_hand, endless)
    monkeypatch.setattr(trace_database, "MAX_ROWS", 24)
    with pytest.raises(QuestionError, match="JOIN"):
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
    ("sql", "word"),
    [
        ("SELECT 10", "columns"),
        ("SELECT 'a', 10 WHERE 0", "no row"),
        ("SELECT 'a', 10", "too few"),
        ("SELECT 'b', 20 UNION ALL SELECT 'a', 10", "order"),
        ("SELECT 'a', 0.01 UNION ALL SELECT 'b', 0.02", "gave us"),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', 21", "Row 2, ns"),
        ("SELECT 'a', 10 UNION ALL SELECT 'c', 20", "Row 2, name"),
    ],
)
def test_the_first_difference_of_two_answers_is_named(
    sql: str, word: str, by_hand: sqlite3.Connection
) -> None:
    assert word in PAIRS.judge(sql, PAIRS.right(by_hand), by_hand)


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
