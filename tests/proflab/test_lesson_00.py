"""Lesson 00: replies of its checks to reports and numbers."""

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
    """The example run on an H200 without loaders and with two, as in the lesson."""
    table = measured()
    return {run: table[~table["traced"] & (table["run"] == run)] for run in ("plain", "loaders")}


def test_known_mistakes_get_their_message_on_the_recorded_runs(
    runs: dict[str, pd.DataFrame],
) -> None:
    selftest("00.2", runs)
    selftest("00.4", runs["loaders"])
    medians = exercise("00.2", runs).evaluate(226.1 / 70.42)
    assert medians.mistake == 0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"conditions": "resnet, automixed, batch 256, 2 loaders"}, "device"),
        ({"conditions": "resnet, float32, batch 256, H200, 2 loaders"}, "precision"),
        ({"conditions": "resnet, mixed, H200, 2 loaders"}, "batch size"),
        ({"conditions": "resnet, mixed, batch 256, H200"}, "loaders"),
        ({"conditions": None}, "network"),
        ({"median_ms": 70_416_000}, "ns"),
        ({"median_ms": 99.5}, lesson.MEAN_FOR_MEDIAN),
        ({"median_ms": 12}, "median_ms"),
        ({"quartiles_ms": (145.9, 47.6)}, lesson.QUARTILES),
        ({"quartiles_ms": (30.4,)}, lesson.NO_SPREAD),
        ({"images_per_second": 256 / 0.0704}, lesson.RATE_OF_MEDIAN),
        ({"images_per_second": 2.573}, "thousand"),
    ],
)
def test_a_report_that_lacks_something_is_told_what(
    runs: dict[str, pd.DataFrame], changes: dict[str, Any], word: str
) -> None:
    run = runs["loaders"]
    result = exercise("00.4", run).evaluate(honest_report(run, **changes))
    assert result.outcome is Outcome.WRONG
    assert word in result.message


@pytest.mark.parametrize(
    "answer", [3, "fast", {"median_ms": 31.3}, dict.fromkeys(("median_ms", "conditions"))]
)
def test_no_report_at_all_is_wrong(runs: dict[str, pd.DataFrame], answer: object) -> None:
    assert exercise("00.4", runs["loaders"]).evaluate(answer).outcome is Outcome.WRONG
