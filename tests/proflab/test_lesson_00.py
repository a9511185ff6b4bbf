"""Lesson 00: what its checks say of reports and numbers, and the rule by which it says that it
can't tell.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from proflab.case import measured
from proflab.exercises import Outcome, exercise, exercises_of, selftest

lesson = exercises_of("00")
honest_report = lesson.honest_report


@pytest.fixture
def runs() -> dict[str, pd.DataFrame]:
    """The case on a real GPU, without loaders and with two, as the lesson gives them to its
    exercises.
    """
    table = measured()
    return {run: table[table["traced"] & (table["run"] == run)] for run in ("plain", "loaders")}


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
    "answer", [3, "fast", {"median_ms": 31.3}, dict.fromkeys(("median_ms", "conditions"))]
)
def test_no_report_at_all_is_wrong(runs: dict[str, pd.DataFrame], answer: object) -> None:
    assert exercise("00.4", runs["loaders"]).evaluate(answer).outcome is Outcome.WRONG
