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
def test_where_a_rank_fails_one_line_says_why_and_the_others_end(tmp_path) -> None:
    (tmp_path / "rank0.json").write_text("of an earlier run")
    program = [sys.executable, "-c", FAILS, FOLDER, tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "rank 2: RuntimeError: no memory left",
        "one rank failed, so nothing is written that could be compared",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ranks", [2, 6, 16])
def test_bytes_and_memory_by_hand_at_other_sizes(ranks: int) -> None:
    facts = {"ranks": ranks, "parameters": 1_234_560}
    selftest("17.2", facts)
    assert lesson.once_mb(facts) == pytest.approx(4 * 1.23456 * (1 - 1 / ranks))


def reply(id: str, data: object, answer: object) -> str:
    return exercise(id, data).evaluate(answer).message


def test_what_a_learner_is_warned_of_gets_a_reply_of_its_own() -> None:
    assert reply("17.3", PUBLISHED, PUBLISHED["tool_bus"][0]).startswith(
        "That is the tool's own column."
    )
    assert "MiB" in reply("17.3", PUBLISHED, lesson.rate(PUBLISHED) * 1e6 / lesson.MIB)
    facts = {"ranks": 4, "parameters": 4_000_000}
    with_a_layer = lesson.held_mb(facts) + 4 * facts["parameters"] / 4 / 1e6
    assert "one gathered layer" in reply("17.2", facts, with_a_layer)
