"""Lesson 14: the checks of its answers, and its figure."""

from __future__ import annotations

import pandas as pd
import pytest
from proflab.parts.own_parts import plot_own_parts

from proflab.exercises import exercises_of
from proflab.exercises.registry import selftest
from tidyprof import plots

lesson = exercises_of("14")

RUNS = pd.DataFrame(
    [(name, seconds + turn / 10) for turn in range(3)
     for name, seconds in (("before", 6.0), ("fixed", 1.9))],
    columns=["version", "seconds"],
)  # fmt: skip

SEEN = {
    "before": {"steps": 20, "step_ns": 60e6},
    "after": {"steps": 5, "step_ns": 80e6},
    "trace": {"steps": 3, "step_ns": 128e6},
}
"""The parts of run_rank0.json that the exercise is about: 64 ms per step, and twice that traced."""


@pytest.mark.parametrize(("number", "data"), [("14.1", SEEN), ("14.2", None), ("14.3", RUNS)])
def test_right_and_wrong_answers(number: str, data: object) -> None:
    selftest(number, data)


def test_the_numbers_of_the_exercises() -> None:
    assert lesson.overhead(SEEN) == pytest.approx(2)
    assert lesson.speedup(RUNS) == pytest.approx(6.0 / 2.1)


def test_own_parts_are_ordered_by_size_and_keep_their_names_and_origin() -> None:
    table = pd.DataFrame(
        {"data": [1.0, 1.0], "tokenize": [4.0, None], "forward": [5.0, 2.0]}, index=["old", "new"]
    )
    figure = plot_own_parts(table, "measured: here", title="A step")
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "forward",
        "tokenize",
        "data",
    ]
    assert plots.describe(figure).endswith(
        "old: 10.0 ms, the largest part is forward with 50%; new: 3.00 ms, the largest part is"
        " forward with 67%."
    )
    assert figure.origin == "measured: here"
