"""Lesson 17: its program where a rank fails, exercises on other data, and published figures against
the model.
"""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

from proflab.exercises import exercise, exercises_of, selftest
from proflab.lessons import lessons
from tidyprof_tests.patience import PATIENCE_S

FOLDER = lessons()["17"].folder
PUBLISHED = pd.read_csv(FOLDER / "published_collectives.csv", comment="#")
lesson = exercises_of("17")

FAILS = """
import pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
import sharded

def train(rank, folder):
    if rank == 2:
        raise RuntimeError("no memory left\\nand a long story")
    signal.pause()

sharded.play(train, pathlib.Path(sys.argv[2]), 4)
"""


@pytest.mark.long
def test_if_a_rank_fails_the_first_line_gives_the_reason_and_the_others_end(tmp_path) -> None:
    (tmp_path / "rank0.json").write_text("from an earlier run")
    program = [sys.executable, "-c", FAILS, FOLDER, tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "rank 2: RuntimeError: no memory left"
    assert len(done.stdout.splitlines()) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ranks", [2, 6, 16])
def test_bytes_and_memory_at_other_sizes(ranks: int) -> None:
    facts = {"ranks": ranks, "parameters": 1_234_560}
    selftest("17.2", facts)
    assert lesson.once_mb(facts) == pytest.approx(4 * 1.23456 * (1 - 1 / ranks))


def mistake(id: str, data: object, answer: float) -> int | None:
    return exercise(id, data).evaluate(answer).mistake


def test_likely_mistakes_have_their_own_replies() -> None:
    facts = {"ranks": 4, "parameters": 4_000_000}
    with_a_layer = lesson.held_mb(facts) + 4 * facts["parameters"] / 4 / 1e6
    assert mistake("17.2", facts, with_a_layer) is not None
    assert mistake("17.3", PUBLISHED, PUBLISHED["tool_bus"][0]) is not None
    assert mistake("17.3", PUBLISHED, lesson.rate(PUBLISHED) * 1e6 / 2**20) is not None


def test_17_4_tells_apart_what_a_share_could_not() -> None:
    run = pd.read_csv(FOLDER / "published_timeline.csv", comment="#").iloc[0]
    run = pd.concat([run, pd.Series({"arrived_last": 420, "calls": 488})])
    selftest("17.4", run)
    exposed = run["exposed_communication_ms"]
    for whole in (run["total_ms"], run["total_ms"] - exposed, run["computation_ms"]):
        assert exercise("17.4", run).evaluate(100 * exposed / whole).outcome.value == "wrong"
