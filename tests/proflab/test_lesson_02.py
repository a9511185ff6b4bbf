"""The exercises of lesson 02 on budgets made by hand, on the case of the H200 and on the
recordings.
"""

from __future__ import annotations

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.recordings import fetch, recording
from tests.public_recordings import Mirror
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals
from tidyprof_tests.analyses.test_analyses import event, profile_of

lesson = exercises_of("02")

RANK = "torch-mi300x-resnet-ddp-rank0"


@pytest.fixture(scope="module")
def gpu() -> Profile:
    """The case as the lesson shows it where there is no GPU."""
    return tidyprof.read(recording("torch-h200-case-plain").path)


@pytest.fixture(params=["cut", pytest.param("mirror", marks=pytest.mark.long)])
def recorded(request: pytest.FixtureRequest, recordings: Mirror, monkeypatch: pytest.MonkeyPatch):
    """What reads a recording by its name, the course's cut of it and the whole one."""
    if request.param == "mirror":
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    found = recording if request.param == "cut" else fetch

    def read(name: str) -> Profile:
        assert found(name).source == request.param
        return tidyprof.read(found(name).path)

    return read


def test_every_mistake_is_refused_on_the_case(gpu: Profile) -> None:
    selftest("02.2", gpu)


def test_communication_alone_by_hand_and_not_by_sums() -> None:
    # A collective of 40, of which a kernel hides 10 and two at once hide 10 more: 20 of it are
    # alone, half.
    by_hand = profile_of(
        event("kernel", "first", 100, 120),
        event("collective", "nccl", 110, 150),
        event("kernel", "second", 140, 160),
        event("kernel", "third", 140, 160),
    )
    assert lesson.alone(by_hand) == pytest.approx(50)
    summed = 100 * (100 - 60) / 40
    assert lesson.alone(by_hand, summed="sum of ") == pytest.approx(summed)
    wrong = find("02.1").on(by_hand).evaluate(summed)
    assert wrong.outcome is Outcome.WRONG
    assert "You added durations" in wrong.message


def test_every_mistake_is_refused_on_a_recording_in_full_and_cut(recorded) -> None:
    selftest("02.1", recorded(RANK))


def test_what_the_profiler_adds_is_not_idle_without_it() -> None:
    # Two steps of 50 and 54, of which 24 and 26 are idle for launches; one takes 36 without the
    # profiler.
    budget = pd.DataFrame(
        {"duration_ns": [50, 54], "launch_bound_ns": [24, 26], "compute_ns": [22, 22]}
    )
    budget.attrs["untraced_ns"] = 36.0
    assert lesson.launches_left(budget) == pytest.approx(100 * (25 - (52 - 36)) / 36)
    selftest("02.3", budget)
    traced = find("02.3").on(budget).evaluate(100 * 25 / 52)
    assert "*traced*" in traced.message


def test_the_h200_s_resnet_is_busy_without_the_profiler() -> None:
    budget = tidyprof.step_budget(
        tidyprof.read(recording("torch-h200-resnet50").path), timeline="device"
    )
    assert lesson.launches_traced(budget, 1) > 40
    assert 10 < lesson.launches_left(budget) < 25
    selftest("02.3", budget)


def test_budget_accepts_any_division_that_adds_up(gpu: Profile) -> None:
    parts = lesson.second_step_parts(gpu)
    question = find("02.2").on(gpu)
    assert question.evaluate(pd.Series(parts)).outcome is Outcome.PASSED
    half, other = parts["copy"] // 2, parts["copy"] - parts["copy"] // 2
    assert question.evaluate({**parts, "copy": half, "rest": other}).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: sum(parts.values()), "A dictionary of parts"),
        (
            lambda parts: parts | {"idle": Intervals.window(0, parts["idle"])},
            "`idle` is a set of time",
        ),
        (lambda parts: parts | {"idle": "much"}, "`idle` is a str: a number is asked"),
        (lambda parts: {**parts, "idle": -1, "more": parts["idle"] + 1}, "A part is negative"),
        (
            lambda parts: {**parts, "compute": 0, "idle": parts["idle"] + parts["compute"]},
            "`compute` is not",
        ),
        (
            lambda parts: {**parts, "data_wait": 0, "idle": parts["idle"] + parts["data_wait"]},
            "`data_wait` is not",
        ),
        (
            lambda parts: {**parts, "more": 5_000_000},
            "counted twice, or lies outside of `whole_step`.",
        ),
        (lambda parts: {"kernels": 1, "copies": 2, "idle": 3}, "No part is called `compute`"),
        (lambda parts: {**parts, "idle": 0, "rest": parts["idle"]}, "`idle` is not"),
    ],
)
def test_budget_names_what_is_wrong(change, words: str, gpu: Profile) -> None:
    result = find("02.2").on(gpu).evaluate(change(lesson.second_step_parts(gpu)))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_the_case_on_a_gpu_shows_what_the_lesson_says_of_it(gpu: Profile) -> None:
    budget = tidyprof.step_budget(gpu, timeline="device")
    parts = {part: budget[f"{part}_ns"].mean() for part in tidyprof.analyses.parts_of(budget)}
    assert sorted(parts, key=parts.get)[-2:] == ["launch_bound", "data_wait"]
    untraced, added = (
        budget.attrs["untraced_ns"],
        budget["duration_ns"].mean() - budget.attrs["untraced_ns"],
    )
    assert added > 0.5 * untraced
    assert parts["data_wait"] - added > 0.7 * untraced, (
        "the verdict holds if all that the profiler adds is in it"
    )
    assert tidyprof.launches(gpu)["delay_ns"].median() < 100_000
    assert (gpu.events["name"] == "aten::item").sum() > 1000
