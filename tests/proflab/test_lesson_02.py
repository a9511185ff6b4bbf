"""The exercises of lesson 02 on budgets made by hand, on the case of the H200 and on the
recordings.
"""

from __future__ import annotations

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find
from proflab.recordings import recording
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

lesson = exercises_of("02")


@pytest.fixture(scope="module")
def gpu() -> Profile:
    """The case as the lesson shows it where there is no GPU."""
    return tidyprof.read(recording("torch-h200-case-plain").path)


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
    parts = {part: budget[f"{part}_ns"].mean() for part in tidyprof.analyses.budget_parts(budget)}
    assert sorted(parts, key=parts.get)[-2:] == ["launch_bound", "data_wait"]
    untraced, added = (
        budget.attrs["unprofiled_step_ns"],
        budget["duration_ns"].mean() - budget.attrs["unprofiled_step_ns"],
    )
    assert added > 0.5 * untraced
    assert parts["data_wait"] - added > 0.7 * untraced, (
        "the verdict holds if all that the profiler adds is in it"
    )
    assert tidyprof.launches(gpu)["delay_ns"].median() < 100_000
    assert (gpu.events["name"] == "aten::item").sum() > 1000
