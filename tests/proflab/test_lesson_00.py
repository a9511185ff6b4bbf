"""Lesson 00: what its checks say of reports and numbers, and the rule by which it says that it can't tell."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from proflab.case import options
from proflab.exercises import Outcome, exercise, exercises_of, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.clinic_runs import modelled

lesson = exercises_of("00")
honest_report = lesson.honest_report


@pytest.fixture
def lines() -> pd.DataFrame:
    """AMD's lines, as the lesson reads them."""
    table = pd.read_csv(lesson_of("00").folder / "published_rates.csv", comment="#")
    return table.assign(duration_ns=256 / table["images_per_second"] * 1e9)


@pytest.mark.parametrize("part_ns", [200, 350, 500, 900])
def test_what_a_part_can_give_is_not_its_share(part_ns: int) -> None:
    selftest("00.2", {"part_ns": part_ns, "steps_ns": 1000})


def test_known_mistakes_get_their_message_on_the_published_lines(lines: pd.DataFrame) -> None:
    told = {"case_ns": 256e9 / modelled(options("00")).images_per_second, "lines": lines}
    selftest("00.3", lines)
    selftest("00.6", lines)
    selftest("00.4", told)
    mean_of_all_rates = told["case_ns"] * lines["images_per_second"].mean() / 256e9
    assert "Take the median" in exercise("00.4", told).evaluate(mean_of_all_rates).message


@pytest.mark.parametrize(("times", "next_lesson"), [(2.8, "01"), (1.05, ""), (0.9, "")])
def test_a_case_that_is_not_slower_needs_no_next_lesson(times: float, next_lesson: str) -> None:
    assert cell_with("def decide(")["decide"](times) == next_lesson


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": "resnet, automixed, batch 256"}, "name the device"),
        ({"conditions": "resnet, float32, batch 256, MI300X"}, "name the precision"),
        ({"conditions": None}, "name the model"),
        ({"median_ms": 20_020_836}, "in milliseconds"),
        ({"quartiles_ms": (20.75, 19.79)}, "in this order"),
        ({"quartiles_ms": (19.79,)}, "hides the spread"),
        ({"images_per_second": 11.66}, "divided by all their time in seconds"),
    ],
)
def test_a_report_that_lacks_something_is_told_what(lines: pd.DataFrame, changes: dict[str, Any], message: str) -> None:
    result = exercise("00.6", lines).evaluate(honest_report(lines, **changes))
    assert result.outcome is Outcome.WRONG
    assert message in result.message


@pytest.mark.parametrize("conditions", ["resnet, fp16, batch 256, mi300x", "ResNet-50, AMP, 256 images, one MI300X"])
def test_conditions_are_named_in_other_words_and_numbers_may_be_rounded(lines: pd.DataFrame, conditions: str) -> None:
    report = {"median_ms": 20.02, "quartiles_ms": (19.8, 20.75), "images_per_second": 11_658, "conditions": conditions}
    assert exercise("00.6", lines).evaluate(report).outcome is Outcome.PASSED


@pytest.mark.parametrize("answer", [3, "fast", {"median_ms": 20.02}, dict.fromkeys(("median_ms", "conditions"))])
def test_no_report_at_all_is_wrong(lines: pd.DataFrame, answer: object) -> None:
    assert exercise("00.6", lines).evaluate(answer).outcome is Outcome.WRONG


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
