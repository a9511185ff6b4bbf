"""The exercises of lesson 02 on profiles checked by hand, and the modelled rank that stands in for a recording."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts.modelled_trace import RANK_OF_EIGHT, modelled_trace
from tests.tidyprof.analyses.test_analyses import event, profile_of
from tidyprof.tables.contract import Profile

lesson = exercises_of("02")

NAME = "torch-mi300x-resnet-ddp-rank0"


@pytest.fixture(scope="module")
def gpu(recordings: Path) -> Profile:
    return tidyprof.read(recordings / NAME / "resnet_act_checkpoint.json.gz")


def test_shares_of_convolutions_by_hand() -> None:
    # Self times: conv2d 20, mkldnn 180, add 50, ConvolutionBackward0 100, sum 250; the range around them has 100.
    own_run = profile_of(
        event("annotation", "forward", 1050, 1850),
        event("operator", "aten::conv2d", 1050, 1250),
        event("operator", "aten::mkldnn_convolution", 1060, 1240),
        event("operator", "aten::add_", 1300, 1350),
        event("operator", "ConvolutionBackward0", 1400, 1500),
        event("operator", "aten::sum", 1500, 1750),
    )
    assert lesson.convolutions(own_run)["percent"].sum() == pytest.approx(50)
    assert lesson.convolution_totals(own_run) == pytest.approx(100 * (200 + 180 + 100) / 600)
    assert lesson.convolution_share_with_ranges(own_run) == pytest.approx(100 * 300 / 800)
    selftest("02.1", own_run)


def test_budget_accepts_any_division_that_adds_up(gpu: Profile) -> None:
    parts = lesson.second_step_parts(gpu)
    question = find("02.5").on(gpu)
    assert question.evaluate(pd.Series(parts)).outcome is Outcome.PASSED
    half, other = parts["idle"] // 2, parts["idle"] - parts["idle"] // 2
    assert question.evaluate({**parts, "idle": half, "rest": other}).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: sum(parts.values()), "A dictionary of parts"),
        (lambda parts: {**parts, "idle": -1, "more": parts["idle"] + 1}, "A part is negative"),
        (lambda parts: {**parts, "compute": 0, "idle": parts["idle"] + parts["compute"]}, "`compute` is not"),
        (lambda parts: {"kernels": 1, "copies": 2, "idle": 3}, "call one of them `compute`"),
    ],
)
def test_budget_names_what_is_wrong(change, words: str, gpu: Profile) -> None:
    result = find("02.5").on(gpu).evaluate(change(lesson.second_step_parts(gpu)))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_the_modelled_rank_shows_what_the_recording_shows(monkeypatch, tmp_path: Path) -> None:
    """What the lesson says of the recording must hold where the model stands in for it."""
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path))
    rank = modelled_trace(RANK_OF_EIGHT, ranks=8)
    assert rank.origin.kind == "modelled"
    assert len(tidyprof.steps(rank)) == 3
    busy, parts = tidyprof.busy(rank, ["kernel", "collective"]).iloc[0], tidyprof.overlap(rank).iloc[0]
    assert busy["sum_percent"] > 100 > busy["union_percent"] > 90
    assert parts["exposed_communication_ns"] > parts["computation_ns"] > 10 * parts["idle_ns"]
    assert tidyprof.launches(rank)["delay_ns"].median() > 1e6
    assert rank.meta["device_events_without_launch"] > 0
    for number in ("02.2", "02.3", "02.4", "02.5"):
        selftest(number, rank, mistakes=False)
