"""What lesson 13 leaves in Python: the checks of its answers, by hand, and the runs that it plays."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts import upgrades
from tests.conftest import REPOSITORY
from tidyprof.gate.runs import repeats_in, run_times

lesson = exercises_of("13")

KERNELS = pd.DataFrame(
    [("igemm conv", 400_000, 100_000), ("Winograd CONV", 0, 900_000), ("batched_transpose", 300_000, 200_000),
     ("add", 60_000, 61_000), ("tiny", 1_000, 4_000), ("norm", 50_000, 60_000)],
    columns=["kernel", "base_ns", "new_ns"],
).assign(difference_ns=lambda table: table["new_ns"] - table["base_ns"])  # fmt: skip


def message(number: int, data: object, answer: object) -> str:
    return find(f"13.{number}").on(data).evaluate(answer).message


def test_many_kernels_or_one():
    tables = {"one": KERNELS}
    assert message(4, tables, 1).startswith("A function of a table")
    assert "not the number of kernels" in message(4, tables, lambda kernels: 7)


def test_validators_that_fail(tmp_path: Path):
    files = {name: tmp_path / name for name in ("tuned_llama", "expected_later")}
    files["tuned_llama"].write_text(
        "# source\nValidator,A,1\nValidator,B,2-x\nValidator,OLD,3\nGemm,tn_1,Default,0.1\n"
    )
    files["expected_later"].write_text("name,value\nA,1\nB,2-y\nNEW,4\n")
    assert message(5, files, {"B"}).startswith("2 more differ")
    assert message(5, files, "B").startswith("A set of names")
    assert find("13.5").on(files).evaluate(["NEW", "B", "OLD"]).outcome is Outcome.PASSED


def test_known_mistakes_about_the_last_batch_get_their_message():
    selftest("13.6", pd.read_csv(lesson_of("13").folder / "published_rates.csv", comment="#"))


def test_runs_of_one_side_differ_and_can_be_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path))
    monkeypatch.setattr(upgrades, "STEPS", 2)
    seconds = []
    for _ in range(2):
        folder = upgrades.record("second", repeats=2)
        seconds.append([run_times(path).step_ns for path in repeats_in(folder)])
    assert seconds[0] == seconds[1]
    assert seconds[0][0] != seconds[0][1]


def test_the_lesson_names_the_slow_downs_of_the_gates_page():
    """Those of 5 and 20 repeats, without noise and at 5 %."""
    page = (REPOSITORY / "docs/gate.md").read_text(encoding="utf-8").partition("How often it is wrong")[0]
    rows = {row[0]: re.findall(r"(\d+) % \(", row[1]) for row in re.findall(r"^\| (\d+) (\|.*)$", page, re.MULTILINE)}
    source = (REPOSITORY / "lessons/13_slower_after_upgrade/lesson.py").read_text(encoding="utf-8")
    named = dict(re.findall(r"^# \| (5|20) (\|.*)$", source, re.MULTILINE))
    assert {side: re.findall(r"(\d+) %", row) for side, row in named.items()} == {
        side: [rows[side][0], rows[side][2]] for side in ("5", "20")
    }
