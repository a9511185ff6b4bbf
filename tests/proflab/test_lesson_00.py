"""The exercises of lesson 00: right answers pass, known mistakes get their message, `...` is not attempted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from proflab.exercises import Outcome, exercise, exercises_of, selftest
from proflab.parts.published_rates import published_rates
from proflab.training import TrainingRun, training_run
from tests.proflab.training_records import write_run

lesson = exercises_of("00")
EXERCISES = lesson.EXERCISES
honest_report = lesson.honest_report


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    times = [2000, 400, 300, 250, 31, 30, 33, 32, 90, 35, 34, 36]
    return training_run(write_run(tmp_path, times, warmup=4))


def test_every_exercise_proves_itself(run: TrainingRun) -> None:
    one_gpu, parallel, step_ns = published_rates("one GPU"), published_rates("parallel"), 20_020_836
    given = {"00.1": step_ns, "00.2": run, "00.3": one_gpu, "00.4": None, "00.5": parallel, "00.6": run}
    assert [item.id for item in EXERCISES] == sorted(given)
    for id, data in given.items():
        selftest(id, data)


def test_answers_are_the_ones_worked_out_by_hand(run: TrainingRun) -> None:
    assert exercise("00.2", run).evaluate(2000 / 33.5).outcome is Outcome.PASSED
    assert exercise("00.3", published_rates("one GPU")).evaluate(6024).outcome is Outcome.PASSED
    assert exercise("00.5", published_rates("parallel")).evaluate(3115.56 * 136 / 256).outcome is Outcome.PASSED


def test_units_are_recognised() -> None:
    assert "microseconds" in exercise("00.1", 20_020_836).evaluate(20_020.836).message
    assert "upside down" in exercise("00.2", None).exercise.answer.judge(0.1, 10.0, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": "resnet, automixed, batch 8"}, "name the device"),
        ({"conditions": "resnet, bfloat16, batch 8, Test GPU"}, "name the precision"),
        ({"conditions": None}, "name the model"),
        ({"median_ms": 33_500_000}, "in milliseconds"),
        ({"quartiles_ms": (35.25, 31.75)}, "in this order"),
        ({"quartiles_ms": (31.0,)}, "hides the spread"),
        ({"images_per_second": 8 / 2.0}, "belongs to other steps"),
    ],
)
def test_a_report_that_lacks_something_is_told_what(run: TrainingRun, changes: dict[str, Any], message: str) -> None:
    result = exercise("00.6", run).evaluate({**honest_report(run), **changes})
    assert result.outcome is Outcome.WRONG
    assert message in result.message


@pytest.mark.parametrize("answer", [3, "fast", {"median_ms": 33.5}, dict.fromkeys(("median_ms", "conditions"))])
def test_no_report_at_all_is_wrong(run: TrainingRun, answer: object) -> None:
    assert exercise("00.6", run).evaluate(answer).outcome is Outcome.WRONG


def test_a_half_written_report_is_not_attempted(run: TrainingRun) -> None:
    assert exercise("00.6", run).evaluate({**honest_report(run), "quartiles_ms": ...}).outcome is Outcome.NOT_ATTEMPTED


def test_a_run_without_steady_steps_is_not_the_learners_fault(tmp_path: Path) -> None:
    short = training_run(write_run(tmp_path / "short", [2000, 400], warmup=2))
    assert exercise("00.2", short).evaluate(5.0).outcome is Outcome.NOT_ATTEMPTED
    assert math.isnan(short.steady["duration_ns"].median())
