"""The exercises of lesson 02 on profiles checked by hand, on the modelled case and on the recordings."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab import case
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts.modelled_trace import modelled_trace
from proflab.recordings import fetch, recording
from tests.tidyprof.analyses.test_analyses import event, profile_of
from tidyprof.tables.contract import Profile

lesson = exercises_of("02")

RANK = "torch-mi300x-resnet-ddp-rank0"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Profile:
    """The case as the lesson shows it where there is no GPU."""
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path))
    return modelled_trace(case.options("02"))


@pytest.fixture(params=["cut", pytest.param("mirror", marks=pytest.mark.long)])
def recorded(request: pytest.FixtureRequest, recordings: Path, monkeypatch: pytest.MonkeyPatch):
    """What reads a recording by its name, the course's cut of it and the whole one."""
    if request.param == "mirror":
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings))
    found = recording if request.param == "cut" else fetch

    def read(name: str) -> Profile:
        assert found(name).source == request.param
        return tidyprof.read(found(name).path)

    return read


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
    ranges_counted = find("02.1").on(own_run).evaluate(100 * 300 / 800)
    assert "is_user_annotation" in ranges_counted.message


def test_every_mistake_is_refused_on_the_modelled_case(gpu: Profile) -> None:
    for number in ("02.2", "02.4"):
        selftest(number, gpu)


def test_every_mistake_is_refused_on_a_recording_in_full_and_cut(recorded) -> None:
    selftest("02.3", recorded(RANK))


def test_what_the_profiler_adds_is_not_idle_without_it() -> None:
    # Two steps of 50 and 54, of which 24 and 26 are idle for launches; one takes 36 without the profiler.
    budget = pd.DataFrame({"duration_ns": [50, 54], "launch_bound_ns": [24, 26], "compute_ns": [22, 22]})
    budget.attrs["untraced_ns"] = 36.0
    assert lesson.launches_left(budget) == pytest.approx(100 * (25 - (52 - 36)) / 36)
    selftest("02.5", budget)
    traced = find("02.5").on(budget).evaluate(100 * 25 / 52)
    assert "*traced*" in traced.message


def test_the_h200_s_resnet_is_busy_without_the_profiler() -> None:
    budget = tidyprof.step_budget(tidyprof.read(recording("torch-h200-resnet50").path), timeline="device")
    assert lesson.launches_traced(budget, 1) > 40
    assert 10 < lesson.launches_left(budget) < 25
    selftest("02.5", budget)


def test_shapes_of_the_largest_kernel_by_hand() -> None:
    # One long call, three short ones, and two whose sum is the largest; another kernel counts for nothing.
    calls = [("[[9]]", 50), ("[[1]]", 10), ("[[1]]", 10), ("[[1]]", 10), ("[[4]]", 40), ("[[4]]", 40)]
    events = [event("kernel", "other", 1000, 1099)]
    for number, (_, length) in enumerate(calls, start=11):
        events.append(event("operator", "aten::norm", 100 * number, 100 * number + 5))
        events.append(event("kernel", "norm", 100 * number, 100 * number + length))
    twice = [number for number in range(len(calls)) for _ in ("operator", "kernel")]
    more = {"external_id": [0, *twice], "input_shapes": [None, *(calls[number][0] for number in twice)]}
    plain = profile_of(*events)
    profile = Profile(plain.events.assign(**more), meta=plain.meta)
    firsts = [lesson.shapes_of_the_largest(profile, value)[0] for value in ("sum", "mean", "size")]
    assert firsts == ["[[4]]", "[[9]]", "[[1]]"]


def test_budget_accepts_any_division_that_adds_up(gpu: Profile) -> None:
    parts = lesson.second_step_parts(gpu)
    question = find("02.4").on(gpu)
    assert question.evaluate(pd.Series(parts)).outcome is Outcome.PASSED
    half, other = parts["copy"] // 2, parts["copy"] - parts["copy"] // 2
    assert question.evaluate({**parts, "copy": half, "rest": other}).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: sum(parts.values()), "A dictionary of parts"),
        (lambda parts: {**parts, "idle": -1, "more": parts["idle"] + 1}, "A part is negative"),
        (lambda parts: {**parts, "compute": 0, "idle": parts["idle"] + parts["compute"]}, "`compute` is not"),
        (lambda parts: {**parts, "data_wait": 0, "idle": parts["idle"] + parts["data_wait"]}, "`data_wait` is not"),
        (lambda parts: {**parts, "more": 5_000_000}, "some time is counted twice."),
        (lambda parts: {"kernels": 1, "copies": 2, "idle": 3}, "No part is called `compute`"),
        (lambda parts: {**parts, "idle": 0, "rest": parts["idle"]}, "`idle` is not"),
    ],
)
def test_budget_names_what_is_wrong(change, words: str, gpu: Profile) -> None:
    result = find("02.4").on(gpu).evaluate(change(lesson.second_step_parts(gpu)))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_the_modelled_case_shows_what_the_lesson_says_of_it(gpu: Profile) -> None:
    assert gpu.origin.kind == "modelled"
    budget = tidyprof.step_budget(gpu, timeline="device")
    parts = {part: budget[f"{part}_ns"].sum() for part in tidyprof.analyses.parts_of(budget)}
    assert sorted(parts, key=parts.get)[-2:] == ["launch_bound", "data_wait"]
    assert tidyprof.launches(gpu)["delay_ns"].median() < 100_000
    assert tidyprof.kernels(gpu)["short_name"].iloc[0] == "MIOpenBatchNormFwdTrainSpatial"
