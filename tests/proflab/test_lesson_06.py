"""The exercises of lesson 06 on a file made by hand, what a learner is told of wrong SQL, and the lesson's modules."""

from __future__ import annotations

import gzip
import hashlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from gpumodel import writers
from gpumodel.simulation import simulate
from gpumodel.writers.rpd.writer import schema_text
from proflab.case import options
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.exercises.queries import Query, wrong_query
from proflab.manifest import shipped_folder
from proflab.parts import trace_database
from proflab.parts.trace_database import QuestionError, answer_of
from proflab.parts.two_rankings import plot_two_rankings
from proflab.standins import append_to_path
from proflab.standins.play import understand
from proflab.standins.run_tracer import SCHEMA

lesson = exercises_of("06")

CALLS = [
    ("hipMemcpy", 0, 11_000),
    ("hipLaunchKernel", 5_000, 6_000),
    ("hipMemcpy", 20_000, 41_000),
    ("hipLaunchKernel", 42_000, 82_000),
    ("hipLaunchKernel", 82_000, 83_000),
    ("UserMarker", 0, 1_000),
    ("UserMarker", 80_000, 81_000),
]

OPERATIONS = [
    ("CopyHostToDevice", "", 0, 10_000, 1),
    ("KernelExecution", "long", 10_000, 70_000, 2),
    ("CopyDeviceToHost", "", 30_000, 40_000, 3),
    ("KernelExecution", "short", 90_000, 95_000, 4),
    ("KernelExecution", "short", 95_000, 100_000, 5),
]
"""Type, name, start, end, number of the call. The second copy runs beside a kernel; from 70 to 90 µs nothing runs."""


def rpd_file(path: Path, copies: str = "") -> sqlite3.Connection:
    """CALLS and OPERATIONS as an .rpd file of schema 3. copies -- what copies of all directions are called."""
    operations = [(copies if copies and kind[:4] == "Copy" else kind, *rest) for kind, *rest in OPERATIONS]
    texts = sorted({"", "data", *(word for row in [*operations, *CALLS] for word in row if isinstance(word, str))})
    number = {text: place for place, text in enumerate(texts, 1)}
    rows = {"rocpd_string": [{"id": place, "string": text} for text, place in number.items()]}
    rows["rocpd_ustring"] = [{"id": 1, "string": ""}, {"id": 2, "string": "data"}]
    common = {"domain_id": number[""], "category_id": number[""]}
    rows["rocpd_api"] = [
        {"id": place, "start": start, "end": end, "apiName_id": number[name], "args_id": 1 + (name == "UserMarker")}
        | common
        for place, (name, start, end) in enumerate(CALLS, 1)
    ]
    names = [{"description_id": number[name], "opType_id": number[kind]} for kind, name, *_ in operations]
    times = [{"id": place, "gpuId": 2, "start": row[2], "end": row[3]} for place, row in enumerate(operations, 1)]
    rows["rocpd_op"] = [left | right for left, right in zip(names, times, strict=True)]
    rows["rocpd_api_ops"] = [{"id": n, "api_id": row[4], "op_id": n} for n, row in enumerate(operations, 1)]
    rows["rocpd_kernelapi"] = [
        {"api_ptr_id": call, "kernelName_id": number[name]} for kind, name, _, _, call in operations if name
    ]
    with sqlite3.connect(path) as connection:
        connection.executescript(schema_text(3))
        for table, filled in rows.items():
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
            marks = ", ".join("?" * len(columns))
            values = [[row.get(name, "") for name in columns] for row in filled]
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
    connection.close()
    return sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = rpd_file(tmp_path / "hand.rpd")
    yield connection
    connection.close()


def values(connection: sqlite3.Connection, sql: str) -> list[tuple]:
    return answer_of(connection, sql).rows


def test_answers_by_hand(by_hand: sqlite3.Connection) -> None:
    assert values(by_hand, lesson.OTHERS) == [(2,)]
    by_type = [("CopyDeviceToHost", 1, 10_000), ("CopyHostToDevice", 1, 10_000), ("KernelExecution", 3, 70_000)]
    assert sorted(values(by_hand, lesson.BY_TYPE)) == by_type
    assert values(by_hand, lesson.TOP_FIVE) == [("long", 1, 60_000), ("short", 2, 10_000)]
    # The launch calls rank them the other way round: 1 µs against 40 + 1 µs.
    assert values(by_hand, lesson.TWO_CLOCKS) == [("long", 60_000, 1_000), ("short", 10_000, 41_000)]
    assert values(by_hand, lesson.SHORT_SHARE) == [(pytest.approx(100 * 10 / 70),)]
    # The second range `data` begins at 80 µs: after it come the short kernels alone.
    assert values(by_hand, lesson.SHORT_SHARE + lesson.STEADY) == [(100.0,)]
    assert values(by_hand, lesson.COPY_SHARE) == [(pytest.approx(100 * 20 / 90),)]


def test_copies_are_found_whatever_the_tracer_calls_them(tmp_path: Path, by_hand: sqlite3.Connection) -> None:
    newer = rpd_file(tmp_path / "sdk.rpd", copies="MEMORY_COPY_HOST_TO_DEVICE")
    for sql in (lesson.OTHERS, lesson.COPY_SHARE):
        assert values(newer, sql) == values(by_hand, sql)
    newer.close()


def test_overlapping_work_is_no_gap(by_hand: sqlite3.Connection) -> None:
    # The copy ends at 40 µs and the next kernel starts at 90, but the first kernel runs until 70.
    assert values(by_hand, lesson.IDLE_BY_LAG) == [(50_000,)]
    assert values(by_hand, lesson.IDLE) == [(20_000,)]
    assert values(by_hand, lesson.WALL_AND_IDLE) == [(100_000, 20_000)]
    selftest("06.8", by_hand, mistakes=False)


def played(folder: Path, command: str) -> sqlite3.Connection:
    """The file that the lesson's runTracer.sh writes of a command, played by the model."""
    run = simulate(understand(command.split(), {}).workload)
    writers.write("rpd", run, folder, name="played.rpd", schema=SCHEMA, tracer="rocprofiler-sdk")
    return sqlite3.connect(f"file:{folder / 'played.rpd'}?mode=ro", uri=True)


def opened(path: Path, folder: Path) -> sqlite3.Connection:
    """A database, unpacked into the folder if it is packed."""
    if path.suffix == ".gz":
        plain = folder / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path = plain
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


@pytest.mark.parametrize("origin", ["full", "cut"])
@pytest.mark.parametrize(
    ("name", "numbers"),
    [("rpd-mi200-matmul/matmul_result.rpd", "145"), ("rpd-vllm-mytrace/mytrace.rpd.gz", ("10",))],
)
def test_public_recordings_refuse_a_query_without_the_word_of_its_rung(
    name: str, numbers: Sequence[str], origin: str, recordings: Path, tmp_path: Path
) -> None:
    folder = recordings if origin == "full" else shipped_folder() / "cuts"
    with closing(opened(folder / name, tmp_path)) as database:
        for number in numbers:
            selftest(f"06.{number}", database)


WITHOUT_THE_WORD = [
    ("06.1", "SELECT count(*) FROM op WHERE opType LIKE '%copy%'", "These are the copies."),
    ("06.4", lesson.TOP_FIVE_OF_ALL, "Copies are in it"),
    ("06.5", lesson.TWO_CLOCKS.replace("WHERE o.opType = 'KernelExecution'", ""), "The row without a name"),
]


@pytest.mark.parametrize(("number", "sql", "words"), WITHOUT_THE_WORD)
def test_what_a_rung_teaches_is_named_to_who_leaves_it_out(number, sql, words, recordings: Path) -> None:
    with closing(sqlite3.connect(recordings / "rpd-mi200-matmul/matmul_result.rpd")) as database:
        result = find(number).on(database).evaluate(sql)
    assert (result.outcome, words in result.message) == (Outcome.WRONG, True)


def test_the_played_run_on_four_gpus_refuses_what_holds_only_without_overlap(tmp_path: Path) -> None:
    four = "torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 4"
    with closing(played(tmp_path, four)) as database:
        selftest("06.8", database)
        selftest("06.9", database)
        assert "`lag` knows one row" in find("06.8").on(database).evaluate(lesson.IDLE_BY_LAG).message
        assert "count each ns once" in find("06.9").on(database).evaluate(lesson.SUMMED_PARTS).message


def test_the_played_product_refuses_whole_numbers(tmp_path: Path) -> None:
    large = "python -m cifar_train.matmul --x-shape 100000 50000 --w-shape 50000 800"
    with closing(played(tmp_path, large)) as database:
        selftest("06.2", database)
        result = find("06.2").on(database).evaluate(lesson.RATE.replace("2.0", "2"))
    assert result.message == "Whole numbers stay whole when SQL divides them: write `2.0`."


def test_the_played_training_proves_its_rungs(tmp_path: Path) -> None:
    with closing(played(tmp_path, f"python -m cifar_train {options('06')} --max-steps 4 --roctx")) as database:
        selftest("06.3", database)
        selftest("06.6", database)


def test_parts_of_overlapping_work_must_still_add_up(by_hand: sqlite3.Connection) -> None:
    question = find("06.9").on(by_hand)
    # Durations add up to 90 of 100 µs, so subtraction leaves 10 µs of idle time; in truth there are 20.
    assert "`idle` is not" in question.evaluate(lesson.SUMMED_PARTS).message
    # The second copy adds nothing to the time in which the kernel runs anyway.
    parts = {"CopyDeviceToHost": 0, "CopyHostToDevice": 10_000, "KernelExecution": 70_000, "idle": 20_000}
    assert dict(values(by_hand, lesson.PARTS)) == parts
    right = "SELECT 'kernels', 70000 UNION SELECT 'copies alone', 10000 UNION SELECT 'idle', 20000"
    assert question.evaluate(right).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("SELECT 'idle', 20000 UNION ALL SELECT 'rest', 80000", "at least three rows"),
        ("SELECT 'a', 1 UNION ALL SELECT 'a', 2 UNION ALL SELECT 'idle', 3", "different names"),
        ("SELECT 'a', -1 UNION ALL SELECT 'b', 100001 UNION ALL SELECT 'idle', 0", "negative"),
        ("SELECT 'a', NULL", "Two columns are asked"),
        ("SELECT 'a', 1 FORM op", "can't read it at `op`"),
        (12, "SQL text in quotes"),
    ],
)
def test_parts_that_do_not_divide_the_time_are_named(answer, words: str, by_hand: sqlite3.Connection) -> None:
    result = find("06.9").on(by_hand).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


MISTAKES_OF_SQL = [
    ("SELECT count(*) FROM opp", "no table `opp`: did you mean op"),
    ("SELECT dration FROM kernel", "no column `dration`: did you mean duration or"),
    ("SELECT o.strt FROM op o", "no column `o.strt`: did you mean start"),
    ("SELECT cout(*) FROM op", "no such function: cout"),
    ("SELECT count(*) FORM op", "can't read it at `op`"),
    ("SELECT count(*", "ends too early"),
    ("SELECT 'a", "quotation mark"),
    ("SELECT start FROM op o JOIN api a ON a.id = o.id", "write the table before it, as in `o.start`"),
    ("SELECT * FROM op WHERE count(*) > 1", "subquery"),
    ("SELECT max(lag(start) OVER (ORDER BY start)) FROM op", "subquery"),
    ("SELECT 1; SELECT 2", "One question at a time"),
    ("DELETE FROM rocpd_op", "Only questions"),
    ("ATTACH 'other.db' AS other", "Only questions"),
    ("SELECT load_extension('x')", "Only questions"),
    ("-- only a comment", "no question"),
    ("SELECT ?", "SQLite says"),
    ("SELECT \x00 FROM op", "SQLite says"),
    (7, "SQL text in quotes, this is a int"),
    (None, "SQL text in quotes, this is a NoneType"),
]


@pytest.mark.parametrize(("sql", "words"), MISTAKES_OF_SQL)
def test_wrong_sql_gets_advice_and_no_traceback(sql, words: str, by_hand: sqlite3.Connection) -> None:
    result = find("06.1").on(by_hand).evaluate(sql)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_an_empty_name_is_called_so(by_hand: sqlite3.Connection) -> None:
    wrong = lesson.TOP_FIVE.replace("kernelName", "''")
    assert "The text is empty" in Query("SELECT 'a'", ("name",)).judge(
        "SELECT ''", wrong_query("SELECT 'a'")(by_hand), by_hand
    )
    assert find("06.4").on(by_hand).evaluate(wrong).outcome is Outcome.WRONG


def test_a_question_without_end_is_given_up(by_hand: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    monkeypatch.setattr(trace_database, "TIME_LIMIT_S", 0.05)
    with pytest.raises(QuestionError, match="given up after"):
        answer_of(by_hand, endless)
    monkeypatch.setattr(trace_database, "MOST_ROWS", 24)
    with pytest.raises(QuestionError, match="condition missing in a JOIN"):
        answer_of(by_hand, "SELECT a.id FROM op a, op b")


def test_a_check_changes_nothing_even_where_the_learner_could(by_hand: sqlite3.Connection, tmp_path: Path) -> None:
    path = tmp_path / "hand.rpd"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    writing = sqlite3.connect(path)
    for sql in ("DROP TABLE rocpd_op", "UPDATE rocpd_op SET start = 0", "CREATE VIEW v AS SELECT 1", "VACUUM"):
        with pytest.raises(QuestionError):
            answer_of(writing, sql)
    assert writing.execute("PRAGMA user_version").fetchone() == (0,)  # the learner's connection is free again
    writing.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


PAIRS = Query("SELECT 'a', 10 UNION ALL SELECT 'b', 20", ("name", "ns"), ordered=True, units=("", "ns"))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 10", "Its columns are 1, asked are: name, ns."),
        ("SELECT 'a', 10 WHERE 0", "gives no row"),
        ("SELECT 'a', 10", "Its rows are too few: 1."),
        ("SELECT 'b', 20 UNION ALL SELECT 'a', 10", "their order is not"),
        ("SELECT 10, 'a' UNION ALL SELECT 20, 'b'", "order of the columns is not: name, ns"),
        ("SELECT 'a', 0.01 UNION ALL SELECT 'b', 0.02", "Row 1, ns: This is a thousand times too small."),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', 21", "Row 2, ns: 21 is too big."),
        ("SELECT 'a', 10 UNION ALL SELECT 'c', 20", "Row 2, name: It is not `c`."),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', NULL", "Row 2, ns: There is no value (NULL)."),
    ],
)
def test_the_first_difference_of_two_answers_is_named(sql: str, words: str, by_hand: sqlite3.Connection) -> None:
    assert words in PAIRS.judge(sql, PAIRS.right(by_hand), by_hand)


def test_names_of_columns_and_a_semicolon_are_free(by_hand: sqlite3.Connection) -> None:
    same = "WITH t(x, y) AS (VALUES ('a', 10), ('b', 20.0)) SELECT x AS kernel, y FROM t;  -- done"
    assert PAIRS.judge(same, PAIRS.right(by_hand), by_hand) is None


def test_a_question_with_nothing_to_find_cannot_be_judged() -> None:
    empty = sqlite3.connect(":memory:")
    empty.executescript(schema_text(3))
    for number in ("06.2", "06.4", "06.6", "06.8"):
        result = find(number).on(empty).evaluate("SELECT 1")
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
    free, ordered = (Query(_values(rows), ("name", "number"), ordered=order) for order in (False, True))
    assert free.judge(_values(shuffled), free.right(database), database) is None
    assert (ordered.judge(_values(shuffled), ordered.right(database), database) is None) == (shuffled == rows)
    assert free.same(_values(shuffled), wrong_query(_values(rows))(database))
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [(name, number + 100 * (row == place)) for row, (name, number) in enumerate(rows)]
    assert free.judge(_values(changed), free.right(database), database)
    database.close()


def test_the_figure_of_two_rankings_says_what_it_shows() -> None:
    table = pd.DataFrame({"short_name": ["long", "short"], "gpu_ns": [60_000, 10_000], "launch_ns": [1_000, 41_000]})
    figure = plot_two_rankings(table, "modelled: by hand", title="Two clocks")
    assert "long takes 60.0 µs on the GPU, place 1, and is at place 2 by launch calls" in figure.alternative_text
    assert figure.origin == "modelled: by hand"
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["long", "short"]
    assert [bar.get_width() for bar in right.patches] == [1, 41]
    with pytest.raises(ValueError, match="no kernel with a launch record"):
        plot_two_rankings(table.iloc[:0], "modelled: by hand")


def test_the_converter_of_the_lesson_is_there_beside_a_real_tracer(tmp_path: Path, recordings: Path) -> None:
    tracer = tmp_path / "runTracer.sh"
    tracer.write_text("#!/bin/sh\n")
    tracer.chmod(0o755)
    environ = {"PATH": os.pathsep.join([str(tmp_path), os.defpath])}
    kinds = {found.tool: found.kind for found in append_to_path(environ)}
    assert (kinds["runTracer.sh"], kinds["rpd2tracing"]) == ("real", "stand-in")
    source, target = recordings / "rpd-mi200-matmul/matmul_result.rpd", tmp_path / "blog.json"
    subprocess.run(["rpd2tracing", source, target], env=environ, check=True, capture_output=True)
    assert len(tidyprof.read(target).device_events) == len(tidyprof.read(source).device_events)
