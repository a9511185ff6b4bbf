"""Lesson 00: what its checks say of reports and numbers, and the rule by which it says that it
can't tell.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from proflab.case import measured
from proflab.exercises import Outcome, exercise, exercises_of, selftest
from proflab.lessons import lesson as lesson_of

lesson = exercises_of("00")
honest_report = lesson.honest_report


@pytest.fixture
def runs() -> dict[str, pd.DataFrame]:
    """The case on a real GPU, without loaders and with two, as the lesson gives them to its
    exercises.
    """
    table = measured()
    return {run: table[table["traced"] & (table["run"] == run)] for run in ("plain", "loaders")}


@pytest.mark.parametrize("part_ns", [200, 350, 600, 900])
def test_what_a_part_can_give_is_not_its_share(part_ns: int) -> None:
    told = {"part_ns": part_ns, "steps_ns": 1000}
    selftest("00.1", told)
    assert "what is left without it" in exercise("00.1", told).evaluate(1000 / part_ns).message


def test_known_mistakes_get_their_message_on_the_recorded_runs(
    runs: dict[str, pd.DataFrame],
) -> None:
    selftest("00.2", runs)
    selftest("00.4", runs["loaders"])
    # Half of the steps are short, and the others hold most of the time.
    assert "You compared medians" in exercise("00.2", runs).evaluate(231.6 / 31.26).message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": "resnet, automixed, batch 256, 2 loaders"}, "name the device"),
        ({"conditions": "resnet, float32, batch 256, H200, 2 loaders"}, "name the precision"),
        ({"conditions": "resnet, mixed, H200, 2 loaders"}, "name the batch size"),
        ({"conditions": "resnet, mixed, batch 256, H200"}, "name the loaders"),
        ({"conditions": None}, "name the model"),
        ({"median_ms": 31_257_792}, "divide by a million"),
        ({"median_ms": 49.84}, "This is the mean"),
        ({"median_ms": 12}, "not the median of the steady steps"),
        ({"quartiles_ms": (51.7, 30.4)}, "in this order"),
        ({"quartiles_ms": (30.4,)}, "hides the spread"),
        ({"images_per_second": 256 / 0.0312577}, "leaves out how long the slow steps took"),
        ({"images_per_second": 5.137}, "divided by all their time in seconds"),
    ],
)
def test_a_report_that_lacks_something_is_told_what(
    runs: dict[str, pd.DataFrame], changes: dict[str, Any], message: str
) -> None:
    run = runs["loaders"]
    result = exercise("00.4", run).evaluate(honest_report(run, **changes))
    assert result.outcome is Outcome.WRONG
    assert message in result.message


@pytest.mark.parametrize(
    "conditions",
    [
        "resnet, fp16, batch 256, h200, 2 workers",
        "ResNet-50, AMP, 256 images, one H200, two loaders",
    ],
)
def test_conditions_are_named_in_other_words_and_numbers_may_be_rounded(
    runs: dict[str, pd.DataFrame], conditions: str
) -> None:
    report = {
        "median_ms": 31.3,
        "quartiles_ms": (30.4, 51.7),
        "images_per_second": 5_140,
        "conditions": conditions,
    }
    assert exercise("00.4", runs["loaders"]).evaluate(report).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "answer", [3, "fast", {"median_ms": 31.3}, dict.fromkeys(("median_ms", "conditions"))]
)
def test_no_report_at_all_is_wrong(runs: dict[str, pd.DataFrame], answer: object) -> None:
    assert exercise("00.4", runs["loaders"]).evaluate(answer).outcome is Outcome.WRONG


def cell_with(words: str) -> dict[str, Any]:
    """The functions of the lesson's cell that has these words."""
    source = lesson_of("00").source.read_text(encoding="utf-8")
    cell = next(cell for cell in source.split("\n# %%") if words in cell)
    defined: dict[str, Any] = {}
    exec(cell, defined)
    return defined


def steps(*durations_ms: int, images: int = 8) -> pd.DataFrame:
    return pd.DataFrame(
        {"duration_ns": [value * 10**6 for value in durations_ms], "images": images}
    )


@pytest.mark.parametrize(
    ("third", "same_work", "verdict"),
    [
        (steps(30, 33, 36), (steps(10, 11, 12), steps(12, 13, 14)), "slower"),
        (steps(5, 5, 6), (steps(10, 11, 12), steps(12, 13, 14)), "faster"),
        (steps(40, 44, 48, images=64), (steps(10, 11, 12), steps(12, 13, 14)), "faster"),
        (
            steps(10, 30, 50),
            (steps(12, 13, 31), steps(12, 13, 31)),
            "can't tell",
        ),  # the middle halves overlap
        (
            steps(20, 20, 20),
            (steps(10, 10, 10), steps(90, 90, 90)),
            "can't tell",
        ),  # between two runs of the same work
        (
            steps(99, 99, 99),
            (steps(10, 10, 10), steps(60, 60, 60)),
            "can't tell",
        ),  # apart by less than these two are
        (steps(10, 10, 10), (steps(10, 10, 10), steps(10, 10, 10)), "can't tell"),
    ],
)
def test_a_difference_counts_only_beyond_the_noise(
    third: pd.DataFrame, same_work: tuple, verdict: str
) -> None:
    ratios, found = cell_with("def compare(")["compare"](third, same_work)
    assert found == verdict
    assert ratios[0] <= ratios[1]
