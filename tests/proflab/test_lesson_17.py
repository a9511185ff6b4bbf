"""Lesson 17: its program where a rank fails, exercises on other data, and published figures against
the model.
"""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

from gpumodel import ShardedStep
from gpumodel.play.product import operators_of_sharded_step
from gpumodel.play.waits import GATHER, SCATTER
from proflab.exercises import exercise, exercises_of, find, selftest
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


@pytest.mark.long
def test_what_the_ranks_and_the_tracker_say_before_a_training(tmp_path) -> None:
    subprocess.run(
        [sys.executable, FOLDER / "sharded.py", tmp_path, "before"], check=True, timeout=PATIENCE_S
    )
    facts = pd.read_json(tmp_path / "before3.json", typ="series")
    assert facts["parameters"] == facts["layers"] * facts["layer_parameters"]
    predicted = pd.read_json(tmp_path / "predicted.json")
    share = 4 * facts["parameters"] / facts["ranks"]
    assert (predicted.loc["Sharded Param"] / share).to_dict() == {
        "fsdp": 1,
        "fsdp_keep": 1,
        "hsdp": 2,
    }
    assert predicted["fsdp_keep"]["Unsharded Param"] == 4 * facts["parameters"]


@pytest.mark.parametrize("ranks", [2, 6, 16])
def test_bytes_and_memory_by_hand_at_other_sizes(ranks: int) -> None:
    facts = {"ranks": ranks, "parameters": 1_234_560}
    selftest("17.2", facts)
    assert lesson.once_mb(facts) == pytest.approx(4 * 1.23456 * (1 - 1 / ranks))


def test_exercises_about_the_published_run_on_other_figures() -> None:
    selftest("17.3", PUBLISHED.assign(in_mib=100.0, transfer_us=2_000.0))
    run = {
        "exposed_communication_ms": 5.0,
        "idle_ms": 2.0,
        "total_ms": 90.0,
        "communication_ms": 30.0,
    }
    selftest("17.4", pd.Series({**run, "came_last": 7, "calls": 9}))
    assert "7 of 9" in find("17.4").insight({"came_last": 7, "calls": 9})


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


def test_the_published_messages_and_calls_are_those_of_the_modelled_step() -> None:
    step = ShardedStep()
    sizes = {"a layer": step.layer_parameters, "embedding and head": step.outer_parameters}
    share = {"all-gather": 1 / step.ranks, "reduce-scatter": 1}
    kinds = {GATHER: "all-gather", SCATTER: "reduce-scatter"}
    sent: dict[tuple[str, int], int] = {}
    for operator in operators_of_sharded_step(step):
        if "collective" in operator.scalars:
            key = kinds[operator.scalars["collective"]], operator.inputs[0].shape[0]
            sent[key] = sent.get(key, 0) + 1
    for row in PUBLISHED.itertuples():
        elements = sizes[row.unit] * share[row.collective]
        assert row.in_mib == pytest.approx(elements * row.item_bytes / 2**20, abs=1e-4)
        assert row.calls == 2 * sent[row.collective, round(elements)]
