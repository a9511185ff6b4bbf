"""Lesson 00: what its checks say of reports and numbers, and the rule by which it says that it can't tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from proflab.case import options
from proflab.exercises import Outcome, exercise, exercises_of, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.clinic_runs import modelled
from proflab.training import TrainingRun, training_run
from tests.proflab.training_records import write_run

lesson = exercises_of("00")
honest_report = lesson.honest_report


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    times = [2000, 400, 300, 250, 31, 30, 33, 32, 90, 35, 34, 36]
    return training_run(write_run(tmp_path, times, warmup=4))


def test_known_mistakes_get_their_message_on_a_run_without_noise(run: TrainingRun) -> None:
    selftest("00.6", run)  # on a run that was measured the lesson can't do this


@pytest.mark.parametrize("part_ns", [200, 350, 500, 900])
def test_what_a_part_can_give_is_not_its_share(part_ns: int) -> None:
    selftest("00.2", {"part_ns": part_ns, "steps_ns": 1000})


def test_known_mistakes_get_their_message_on_the_published_lines() -> None:
    lines = pd.read_csv(lesson_of("00").folder / "published_rates.csv", comment="#")
    lines["duration_ns"] = 256 / lines["images_per_second"] * 1e9
    told = {"case_ns": 256e9 / modelled(options("00")).images_per_second, "lines": lines}
    selftest("00.3", lines)
    selftest("00.4", told)
    mean_of_all_rates = told["case_ns"] * lines["images_per_second"].mean() / 256e9
    assert "Take the median" in exercise("00.4", told).evaluate(mean_of_all_rates).message


@pytest.mark.parametrize(("times", "next_lesson"), [(2.8, "01"), (1.05, ""), (0.9, "")])
def test_a_case_that_is_not_slower_needs_no_next_lesson(times: float, next_lesson: str) -> None:
    assert cell_with("def decide(")["decide"](times) == next_lesson


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": "resnet, automixed, batch 8"}, "name the device"),
        ({"conditions": "resnet, bfloat16, batch 8, Test GPU"}, "name the precision"),
        ({"conditions": None}, "name the model"),
        ({"median_ms": 33_500_000}, "in milliseconds"),
        ({"quartiles_ms": (35.25, 31.75)}, "in this order"),
        ({"quartiles_ms": (31.0,)}, "hides the spread"),
        ({"images_per_second": 8 / 2.0}, "not the rate of the steady steps"),
        ({"images_per_second": 8 / 0.0335}, "it leaves out how long the slow steps took"),
    ],
)
def test_a_report_that_lacks_something_is_told_what(run: TrainingRun, changes: dict[str, Any], message: str) -> None:
    result = exercise("00.6", run).evaluate(honest_report(run, **changes))
    assert result.outcome is Outcome.WRONG
    assert message in result.message


@pytest.mark.parametrize("answer", [3, "fast", {"median_ms": 33.5}, dict.fromkeys(("median_ms", "conditions"))])
def test_no_report_at_all_is_wrong(run: TrainingRun, answer: object) -> None:
    assert exercise("00.6", run).evaluate(answer).outcome is Outcome.WRONG


def cell_with(words: str) -> dict[str, Any]:
    """The functions of the lesson's cell that has these words."""
    source = lesson_of("00").source.read_text(encoding="utf-8")
    cell = next(cell for cell in source.split("\n# %%") if words in cell)
    defined: dict[str, Any] = {}
    exec(cell.partition("\n\n\ntypical_ns = ")[0], defined)
    return defined


def steps(*durations_ms: int, images: int = 8) -> pd.DataFrame:
    return pd.DataFrame({"duration_ns": [value * 10**6 for value in durations_ms], "images": images})


@pytest.mark.parametrize(
    ("third", "same_work", "verdict"),
    [
        (steps(30, 33, 36), (steps(10, 11, 12), steps(12, 13, 14)), "slower"),
        (steps(5, 5, 6), (steps(10, 11, 12), steps(12, 13, 14)), "faster"),
        (steps(40, 44, 48, images=64), (steps(10, 11, 12), steps(12, 13, 14)), "faster"),
        (steps(10, 30, 50), (steps(12, 13, 31), steps(12, 13, 31)), "can't tell"),  # the middle halves overlap
        (steps(20, 20, 20), (steps(10, 10, 10), steps(90, 90, 90)), "can't tell"),  # between two runs of the same work
        (steps(99, 99, 99), (steps(10, 10, 10), steps(60, 60, 60)), "can't tell"),  # apart by less than these two are
        (steps(10, 10, 10), (steps(10, 10, 10), steps(10, 10, 10)), "can't tell"),
    ],
)
def test_a_difference_counts_only_beyond_the_noise(third: pd.DataFrame, same_work: tuple, verdict: str) -> None:
    ratios, found = cell_with("def compare(")["compare"](third, same_work)
    assert found == verdict
    assert ratios[0] <= ratios[1]
