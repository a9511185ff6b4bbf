"""Feedback of lesson 13 on a small table, and its interval against the gate's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from proflab.exercises import exercises_of, find
from tidyprof.gate.intervals import ratio_of_totals

KERNELS = pd.DataFrame(
    [
        ("igemm conv", 400_000, 100_000),
        ("Winograd CONV", 0, 900_000),
        ("batched_transpose", 300_000, 200_000),
        ("add", 60_000, 61_000),
        ("tiny", 1_000, 4_000),
        ("norm", 50_000, 60_000),
        ("pool", 160_000, 60_000),
    ],
    columns=["kernel", "base_ns", "new_ns"],
).assign(difference_ns=lambda table: table["new_ns"] - table["base_ns"])


def message(number: int, data: object, answer: object) -> str:
    return find(f"13.{number}").on(data).evaluate(answer).message


def test_many_kernels_or_one():
    tables = {"one": KERNELS}
    assert message(3, tables, 1).startswith("Your answer isn't a function")
    assert "should be different" in message(3, tables, lambda kernels: 7)
    lesson = exercises_of("13")
    assert "includes chance" in message(3, tables, lesson.any_growth)
    assert "counted all large kernels" in message(
        3, tables, lambda kernels: len(lesson.large_ones(kernels))
    )
    assert "You compared `new_ns`" in message(3, tables, lesson.by_new_time)
    assert "returned a DataFrame" in message(3, tables, lambda kernels: kernels)
    assert "got shorter" in message(3, tables, lesson.changed)


def test_the_interval_is_the_gates():
    random = np.random.default_rng(3)
    new, old = random.uniform(45, 47, 5), random.uniform(42, 44, 5)
    gate = ratio_of_totals(tuple(new), tuple(old))
    assert exercises_of("13").interval(new, old) == pytest.approx((gate.low, gate.high), rel=0.005)
