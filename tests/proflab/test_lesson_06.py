"""The exercises of lesson 06 on files of the stand-ins, on the recording of AMD's blog and on a file made by hand."""

from __future__ import annotations

import hashlib
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from gpumodel.writers.rpd.writer import schema_text
from proflab.errors import CourseError
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.exercises.queries import Query, wrong_query
from proflab.parts import trace_database, witnesses
from proflab.parts.published_products import published_products
from proflab.parts.trace_database import QuestionError, TraceDatabase, open_trace
from proflab.parts.two_rankings import plot_two_rankings, two_rankings
from proflab.standins import append_to_path
from proflab.standins.__main__ import main as stand_in
from tests.proflab import played_runs
from tidyprof.tables.contract import Origin

lesson = exercises_of("06")

NAME = "rpd-mi200-matmul"
LADDER = tuple(f"06.{rung}" for rung in range(1, 11))
ON_RPD = ("06.1", "06.2", "06.4", "06.5", "06.6", "06.7", "06.9", "06.10")
SIMPLE_PARTS = """
WITH part AS (SELECT opType AS name, sum("end" - start) AS ns FROM op GROUP BY opType),
     wall AS (SELECT max("end") - min(start) AS ns FROM op)
SELECT name, ns FROM part
UNION ALL
SELECT 'idle', wall.ns - (SELECT sum(ns) FROM part) FROM wall
"""
"""Parts by subtraction, as the lesson does it: right as long as no operations overlap."""

LAUNCHERS = ("SLURM_JOB_ID", "SLURM_PROCID", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PROFLAB_RUN_WORKLOAD")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TraceDatabase]:
    """The files that the lesson's commands write where there is no GPU."""
    folder = tmp_path_factory.mktemp("lesson")
    commands = (
        f"runTracer.sh -o {folder}/large.rpd python -m cifar_train.matmul --x-shape 100000 50000 --w-shape 50000 800",
        f"runTracer.sh -o {folder}/train.rpd python -m cifar_train --max-steps 2",
        f"rocprofv3 --runtime-trace --output-format rocpd --output-directory {folder} --output-file train "
        "-- python -m cifar_train --max-steps 2",
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in LAUNCHERS:
            patch.delenv(name, raising=False)
        for command in commands:
            assert stand_in(shlex.split(command)) == 0
    files = {"large": "large.rpd", "train": "train.rpd", "rocpd": "train_results.db"}
    return {name: open_trace(folder / file) for name, file in files.items()}


@pytest.fixture(scope="module")
def blog(recordings: Path) -> TraceDatabase:
    return open_trace(recordings / NAME / "matmul_result.rpd", Origin("recorded", "MI200 series"))


def rpd_file(path: Path, operations: list[tuple], calls: list[tuple] = ()) -> TraceDatabase:
    """An .rpd file of schema 3. operations: type, name, start, end, number of the call; calls: name, start, end."""
    texts = {
        text: number
        for number, text in enumerate(
            sorted({"", *(t for row in [*operations, *calls] for t in row if isinstance(t, str))}), 1
        )
    }
    rows = {
        "rocpd_string": [{"id": number, "string": text} for text, number in texts.items()],
        "rocpd_op": [],
        "rocpd_api_ops": [],
        "rocpd_kernelapi": [],
    }
    rows["rocpd_ustring"] = [{"id": 1, "string": ""}]
    for number, (name, start, end) in enumerate(calls, 1):
        rows.setdefault("rocpd_api", []).append(
            {
                "id": number,
                "start": start,
                "end": end,
                "apiName_id": texts[name],
                "args_id": 1,
                "domain_id": texts[""],
                "category_id": texts[""],
            }
        )
    for number, (kind, name, start, end, call) in enumerate(operations, 1):
        rows["rocpd_op"].append(
            {
                "id": number,
                "gpuId": 2,
                "start": start,
                "end": end,
                "description_id": texts[name],
                "opType_id": texts[kind],
            }
        )
        rows["rocpd_api_ops"].append({"id": number, "api_id": call, "op_id": number})
        if kind == "KernelExecution":
            rows["rocpd_kernelapi"].append({"api_ptr_id": call, "kernelName_id": texts[name]})
    with sqlite3.connect(path) as connection:
        connection.executescript(schema_text(3))
        for table, filled in rows.items():
            names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
            marks = ", ".join("?" * len(names))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [[row.get(name, "") for name in names] for row in filled]
            )
    connection.close()
    return open_trace(path, Origin("modelled", "by hand"))


@pytest.fixture
def by_hand(tmp_path: Path) -> TraceDatabase:
    """Three kernels and two copies in 100 µs. The second copy runs beside a kernel; from 70 to 90 µs nothing runs."""
    return rpd_file(
        tmp_path / "hand.rpd",
        [
            ("CopyHostToDevice", "", 0, 10_000, 1),
            ("KernelExecution", "long", 10_000, 70_000, 2),
            ("CopyDeviceToHost", "", 30_000, 40_000, 3),
            ("KernelExecution", "short", 90_000, 95_000, 4),
            ("KernelExecution", "short", 95_000, 100_000, 5),
        ],
        [
            ("hipMemcpy", 0, 11_000),
            ("hipLaunchKernel", 5_000, 6_000),
            ("hipMemcpy", 20_000, 41_000),
            ("hipLaunchKernel", 42_000, 82_000),
            ("hipLaunchKernel", 82_000, 83_000),
        ],
    )


def test_every_rung_of_the_ladder_is_an_exercise() -> None:
    assert tuple(exercise.id for exercise in lesson.EXERCISES) == LADDER


@pytest.mark.parametrize("number", LADDER)
def test_right_and_wrong_answers_on_the_files_of_the_stand_ins(number: str, own: dict[str, TraceDatabase]) -> None:
    selftest(number, own[{"06.3": "large", "06.8": "rocpd"}.get(number, "train")], {})


@pytest.mark.parametrize("number", ON_RPD)
def test_right_and_wrong_answers_on_the_blogs_file(number: str, blog: TraceDatabase) -> None:
    selftest(number, blog, {})


@pytest.mark.parametrize("number", LADDER)
def test_without_the_file_nothing_is_judged(number: str) -> None:
    assert find(number).on(None).evaluate("SELECT 1").outcome is Outcome.NOT_ATTEMPTED


def test_answers_by_hand(by_hand: TraceDatabase) -> None:
    def values(sql: str) -> list[tuple]:
        return by_hand.answer(sql).rows

    assert values(lesson.COUNT) == [(5,)]
    assert values(lesson.COPIES) == [(2,)]
    by_type = [("CopyDeviceToHost", 1, 10_000), ("CopyHostToDevice", 1, 10_000), ("KernelExecution", 3, 70_000)]
    assert sorted(values(lesson.BY_TYPE)) == by_type
    assert values(lesson.TOP_FIVE) == [("long", 1, 60_000), ("short", 2, 10_000)]
    # The launch calls rank them the other way round: 1 µs against 40 + 1 µs.
    assert values(lesson.TWO_CLOCKS) == [("long", 60_000, 1_000), ("short", 10_000, 41_000)]
    assert values(lesson.SHORT_SHARE) == [(pytest.approx(100 * 10 / 70),)]
    assert values(lesson.SHORT_CALLS) == [(pytest.approx(100 * 2 / 3),)]


def test_overlapping_work_is_no_gap(by_hand: TraceDatabase) -> None:
    # The copy ends at 40 µs and the next kernel starts at 90, but the first kernel runs until 70.
    assert by_hand.answer(lesson.LONGEST_GAP).rows == [(50_000,)]
    assert by_hand.answer(lesson.TRUE_GAP).rows == [(20_000,)]
    assert by_hand.answer(lesson.WALL_AND_IDLE).rows == [(100_000, 20_000)]
    assert lesson.longest_gap_share(by_hand) == pytest.approx(20)
    wrong = find("06.9").on(by_hand).evaluate(lesson.LONGEST_GAP)
    assert wrong.message == "Two operations overlap here: compare with the latest end so far."
    selftest("06.9", by_hand)


def test_the_converter_of_the_lesson_is_there_beside_a_real_tracer(tmp_path: Path, blog: TraceDatabase) -> None:
    tracer = tmp_path / "runTracer.sh"
    tracer.write_text("#!/bin/sh\n")
    tracer.chmod(0o755)
    environ = {"PATH": os.pathsep.join([str(tmp_path), os.defpath])}
    kinds = {found.tool: found.kind for found in append_to_path(environ)}
    assert (kinds["runTracer.sh"], kinds["rpd2tracing"]) == ("real", "stand-in")
    target = tmp_path / "blog.json"
    subprocess.run(["rpd2tracing", blog.path, target], env=environ, check=True, capture_output=True)
    assert len(tidyprof.read(target).device_events) == len(blog.ask("SELECT id FROM op"))


def test_parts_of_overlapping_work_must_still_add_up(by_hand: TraceDatabase) -> None:
    question = find("06.10").on(by_hand)
    # Durations add up to 90 of 100 µs, so subtraction leaves 10 µs of idle time; in truth there are 20.
    assert "`idle` is not" in question.evaluate(SIMPLE_PARTS).message
    assert question.evaluate(lesson.PARTS).outcome is Outcome.PASSED
    # The second copy adds nothing to the time in which the kernel runs anyway.
    parts = {"CopyDeviceToHost": 0, "CopyHostToDevice": 10_000, "KernelExecution": 70_000, "idle": 20_000}
    assert dict(by_hand.answer(lesson.PARTS).rows) == parts
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
def test_parts_that_do_not_divide_the_time_are_named(answer, words: str, by_hand: TraceDatabase) -> None:
    result = find("06.10").on(by_hand).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


MISTAKES_OF_SQL = [
    ("SELECT count(*) FROM opp", "no table or view `opp`: did you mean op"),
    ("SELECT dration FROM kernel", "no column `dration`: did you mean duration?"),
    ("SELECT o.strt FROM op o", "no column `o.strt`: did you mean start"),
    ("SELECT cout(*) FROM op", "no function `cout`"),
    ("SELECT count(*) FORM op", "can't read it at `op`"),
    ("SELECT count(*", "ends too early"),
    ("SELECT 'a", "quotation mark"),
    ("SELECT start FROM op o JOIN api a ON a.id = o.id", "write the table before it, such as `o.start`"),
    ("SELECT * FROM op WHERE count(*) > 1", "HAVING"),
    ("SELECT max(lag(start) OVER (ORDER BY start)) FROM op", "subquery"),
    ("SELECT 1; SELECT 2", "One question at a time"),
    ("DELETE FROM rocpd_op", "Only questions"),
    ("ATTACH 'other.db' AS other", "Only questions"),
    ("SELECT load_extension('x')", "Only questions"),
    ("PRAGMA journal_mode = DELETE", "Only questions"),
    (" ; ", "empty"),
    ("-- only a comment", "no question"),
    ("SELECT ?", "SQLite says"),
    ("SELECT \x00 FROM op", "SQLite says"),
    (7, "SQL text in quotes, this is a int"),
    (None, "SQL text in quotes, this is a NoneType"),
]


@pytest.mark.parametrize(("sql", "words"), MISTAKES_OF_SQL)
def test_wrong_sql_gets_advice_and_no_traceback(sql, words: str, by_hand: TraceDatabase) -> None:
    result = find("06.1").on(by_hand).evaluate(sql)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_a_question_without_end_is_given_up(by_hand: TraceDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_database, "TIME_LIMIT_S", 0.05)
    with pytest.raises(QuestionError, match="given up after"):
        by_hand.ask("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")


def test_an_answer_without_end_is_refused(by_hand: TraceDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_database, "MOST_ROWS", 24)
    with pytest.raises(QuestionError, match="condition missing in a JOIN"):
        by_hand.ask("SELECT a.id FROM op a, op b")
    assert len(by_hand.ask("SELECT a.id FROM op a, op b LIMIT 24")) == 24


def test_asking_changes_no_byte_of_the_file(by_hand: TraceDatabase) -> None:
    before = hashlib.sha256(by_hand.path.read_bytes()).hexdigest()
    for sql in ("DROP TABLE rocpd_op", "UPDATE rocpd_op SET start = 0", "CREATE VIEW v AS SELECT 1", "VACUUM"):
        with pytest.raises(QuestionError):
            by_hand.ask(sql)
    by_hand.ask("SELECT * FROM op")
    assert hashlib.sha256(by_hand.path.read_bytes()).hexdigest() == before
    assert [path.name for path in by_hand.path.parent.iterdir()] == ["hand.rpd"]


def test_a_table_knows_its_origin_and_names_can_be_shortened(blog: TraceDatabase) -> None:
    table = blog.ask("SELECT short_name(Name) AS name, TotalCalls FROM top LIMIT 2")
    assert table["name"].tolist() == ["CopyHostToDevice", "GEMM NN fp32 MT128x64x16"]
    assert str(table.attrs["origin"]) == "recorded: MI200 series"
    assert len(blog.ask("PRAGMA table_info(top)")) == 5


def test_the_file_says_whether_it_is_modelled(own: dict[str, TraceDatabase], recordings: Path) -> None:
    assert {database.origin.kind for database in own.values()} == {"modelled"}
    assert str(open_trace(recordings / NAME / "matmul_result.rpd").origin) == "measured: this machine"


def test_files_that_are_no_trace_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no such file; run the cell"):
        open_trace(tmp_path / "missing.rpd")
    (tmp_path / "text.rpd").write_text("not a database, but long enough to look like one " * 20)
    with pytest.raises(CourseError, match="no SQLite file of rpd"):
        open_trace(tmp_path / "text.rpd")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(CourseError, match="no SQLite file of rpd"):
        open_trace(tmp_path / "other.db")


PAIRS = Query(lambda data: "SELECT 'a', 10 UNION ALL SELECT 'b', 20", ("name", "ns"), ordered=True, units=("", "ns"))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 10", "It gives 1, 2 columns asked: name, ns."),
        ("SELECT 'a', 10 WHERE 0", "gives no row"),
        ("SELECT 'a', 10", "It gives 1 row, which is too few."),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', 20 UNION ALL SELECT 'c', 30", "3 rows, which is too many"),
        ("SELECT 'b', 20 UNION ALL SELECT 'a', 10", "their order is not"),
        ("SELECT 10, 'a' UNION ALL SELECT 20, 'b'", "order of the columns is not: name, ns"),
        ("SELECT 'a', 0.01 UNION ALL SELECT 'b', 0.02", "Row 1, ns: This is a thousand times too small."),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', 21", "Row 2, ns: 21 is too big."),
        ("SELECT 'a', 10 UNION ALL SELECT 'c', 20", "Row 2, name: It is not `c`."),
        ("SELECT 'a', 10 UNION ALL SELECT 'b', NULL", "Row 2, ns: There is no value (NULL)."),
    ],
)
def test_the_first_difference_of_two_answers_is_named(sql: str, words: str, by_hand: TraceDatabase) -> None:
    assert words in PAIRS.judge(sql, PAIRS.right(by_hand), by_hand)


def test_names_of_columns_and_a_semicolon_are_free(by_hand: TraceDatabase) -> None:
    same = "WITH t(x, y) AS (VALUES ('a', 10), ('b', 20.0)) SELECT x AS kernel, y FROM t;  -- done"
    assert PAIRS.judge(same, PAIRS.right(by_hand), by_hand) is None


@pytest.mark.parametrize("name", ["train", "blog"])
def test_the_simple_ways_pass_where_nothing_overlaps(name: str, own: dict[str, TraceDatabase], blog) -> None:
    database = {**own, "blog": blog}[name]
    assert find("06.9").on(database).evaluate(lesson.LONGEST_GAP).outcome is Outcome.PASSED
    assert find("06.10").on(database).evaluate(SIMPLE_PARTS).outcome is Outcome.PASSED


def test_a_question_with_nothing_to_find_cannot_be_judged(own: dict[str, TraceDatabase], tmp_path: Path) -> None:
    nothing = rpd_file(tmp_path / "empty.rpd", [])
    for number in ("06.3", "06.5", "06.7", "06.9"):
        result = find(number).on(nothing).evaluate("SELECT 1")
        assert (result.outcome, "holds nothing" in result.message) == (Outcome.NOT_ATTEMPTED, True)


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), min_size=1, max_size=6)


def _values(rows: list[tuple[str, int]]) -> str:
    return "VALUES " + ", ".join(f"('{name}', {number})" for name, number in rows)


@settings(max_examples=40)
@given(ROWS, st.randoms(use_true_random=False))
def test_order_counts_only_where_it_is_asked(tmp_path_factory, rows, random) -> None:
    database = _shared_file(tmp_path_factory)
    shuffled = random.sample(rows, len(rows))
    free = Query(lambda data: _values(rows), ("name", "number"))
    ordered = Query(lambda data: _values(rows), ("name", "number"), ordered=True)
    assert free.judge(_values(shuffled), free.right(database), database) is None
    assert (ordered.judge(_values(shuffled), ordered.right(database), database) is None) == (shuffled == rows)
    assert free.same(_values(shuffled), wrong_query(_values(rows))(database))


@settings(max_examples=40)
@given(ROWS, st.data())
def test_any_changed_number_is_found(tmp_path_factory, rows, data) -> None:
    database = _shared_file(tmp_path_factory)
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [(name, number + 100 * (row == place)) for row, (name, number) in enumerate(rows)]
    kind = Query(lambda data: _values(rows), ("name", "number"))
    assert kind.judge(_values(changed), kind.right(database), database)


def _shared_file(tmp_path_factory: pytest.TempPathFactory) -> TraceDatabase:
    path = tmp_path_factory.getbasetemp() / "shared-by-examples.rpd"
    return open_trace(path, Origin("modelled", "by hand")) if path.exists() else rpd_file(path, [])


def test_the_published_runs_by_hand(blog: TraceDatabase) -> None:
    smaller, larger = (row for _, row in published_products().iterrows())
    # 8.0e11 operations in 26.211 ms, and ten times as many in 532.802 ms.
    assert smaller.tflops_per_second == pytest.approx(30.5, abs=0.05)
    assert larger.tflops_per_second == pytest.approx(15.0, abs=0.05)
    assert (smaller.busy, larger.busy) == (pytest.approx(0.062049, abs=1e-6), pytest.approx(0.427849, abs=1e-6))
    # What the blog prints comes out of the file that AMD published beside it.
    found = blog.ask("SELECT GpuTime, WallTime, Busy FROM busy").iloc[0]
    assert (found.GpuTime, found.WallTime) == (smaller.gpu_ns, smaller.wall_ns)
    kernel = blog.ask("SELECT kernelName, duration FROM kernel ORDER BY duration DESC LIMIT 1").iloc[0]
    assert kernel.duration // 1000 == smaller.kernel_ns // 1000
    assert smaller.tile in kernel.kernelName


def test_ktop_ranks_by_launch_calls(blog: TraceDatabase, manifest: dict[str, dict]) -> None:
    truth = manifest[NAME]["truth"]["matmul_result.rpd"]
    table = two_rankings(blog)
    top = truth["top_kernel_by_gpu_time"]
    assert (table["name"].iloc[0], table["gpu_ns"].iloc[0]) == (top["name"], top["total_ns"])
    assert (table["launch_place"].iloc[0], len(table)) == (15, 20)
    launched = table.sort_values("launch_place").iloc[0]
    ktop = truth["ktop_view_first_row"]
    assert (launched["name"], launched["launch_ns"] // 1000) == (ktop["Name"], ktop["TotalDuration_us"])
    own_view = blog.ask("SELECT Name, TotalDuration FROM ktop").set_index("Name")["TotalDuration"]
    assert (table.set_index("name")["launch_ns"] // 1000).to_dict() == own_view.to_dict()


def test_the_figure_of_two_rankings_says_what_it_shows(by_hand: TraceDatabase) -> None:
    figure = plot_two_rankings(two_rankings(by_hand), title="Two clocks")
    assert "long takes 60.0 µs on the GPU, place 1, and is at place 2 by launch calls" in figure.alternative_text
    assert figure.origin == "modelled: by hand"
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["long", "short"]
    assert [bar.get_width() for bar in right.patches] == [1, 41]


def test_two_rankings_of_nothing_and_without_origin_are_refused(by_hand: TraceDatabase) -> None:
    table = two_rankings(by_hand)
    with pytest.raises(ValueError, match="no kernel with a launch record"):
        plot_two_rankings(table.iloc[:0])
    table.attrs.clear()
    with pytest.raises(ValueError, match="does not say where its numbers come from"):
        plot_two_rankings(table)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpumodel.simulation", SimpleNamespace(simulate=played_runs.simulate))
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def test_all_witnesses_saw_the_same_run(played, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert witnesses.main([str(tmp_path), "--max-steps", "2"]) == 0
    assert capsys.readouterr().out.count("file") == 6
    seen = witnesses.read_witnesses(tmp_path)
    assert list(seen) == ["rpd", "rocpd", "csv", "sys", "torch", "compute"]
    table = tidyprof.reconcile(seen)
    kernels = table[~table["category"].isin(["copy", "fill"])]
    assert len(kernels)
    assert set(kernels["reason"]) == {"agree"}
    totals = {name: int(profile.device_events["duration_ns"].sum()) for name, profile in seen.items()}
    # rocprof-compute lists what runs on compute units, so copies by the copy engines are not in it.
    copies = seen["csv"].device_events
    copies = copies[copies["name"].astype(str).str.startswith("MEMORY_COPY")]
    assert totals.pop("compute") == totals["csv"] - copies["duration_ns"].sum()
    assert len(set(totals.values())) == 1


def test_witnesses_refuse_what_the_trainer_refuses(played, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert witnesses.main([str(tmp_path), "--max-steps", "0"]) == 2
    assert "max-steps" in capsys.readouterr().err
    missing = r"no files of rpd, rocpd, csv, sys, torch, compute; run `python -m proflab.parts.witnesses"
    with pytest.raises(CourseError, match=missing):
        witnesses.read_witnesses(tmp_path)
