"""Kinds of answers: what passes, what does not, and which cause is named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from proflab.display import inline_html, number
from proflab.exercises import Number, Property, Text
from proflab.exercises.answers import as_number, likely_mistake


def judge(kind: object, answer: object, data: object = None) -> str | None:
    return kind.judge(answer, kind.right(data), data)


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (100.0, True),
        (101.9, True),
        (98.1, True),
        ("100", True),
        (np.float32(100), True),
        (pd.Series([100]), True),
        (103.0, False),
        (-100.0, False),
        (0, False),
        ("100 ms", False),
        (True, False),
        (None, False),
        (float("nan"), False),
        ([100], False),
        (np.array([1, 2]), False),
    ],
)
def test_a_number_passes_within_its_tolerance(answer: object, passes: bool) -> None:
    kind = Number(lambda data: data, unit="ms", relative=0.02)
    assert (judge(kind, answer, 100.0) is None) == passes


@pytest.mark.parametrize(("answer", "made"), [(13.77, True), (13.7734, True), (14, False)])
def test_a_mistake_is_recognized_by_its_value_only(answer: float, made: bool) -> None:
    assert Number(lambda data: data, relative=0.05).same(answer, 13.7734) == made


def test_the_larger_of_both_tolerances_counts() -> None:
    assert judge(Number(lambda data: data, relative=0.01, absolute=0.5), 0.4, 0.0) is None
    with pytest.raises(ValueError, match="nan"):
        Number(lambda data: data).right(float("nan"))


@pytest.mark.parametrize(
    ("answer", "expected", "unit", "cause"),
    [
        (5200.0, 5.2, "ms", "us"),
        (5.2e6, 5.2, "ms", "ns"),
        (0.0052, 5.2, "ms", "s, but"),
        (0.5, 50, "percent", "fraction"),
        (5300.0, 5.3, "TB/s", "GB/s"),
        (1.0486, 1, "MiB", "MB"),
        (-4, 4, "", "sign"),
        (30, 70, "percent", "remaining"),
        (0.3, 0.7, "fraction", "remaining"),
        (0.5, 2, "times", "inverse"),
        (0.4464, 2.24, "times", "inverse"),
        (125.0, 80, "percent", "inverse"),
        (2, 0.5, "GB/s", "inverse"),
        (224, 2.24, "times", "a percentage"),
        (124, 2.24, "times", "increase in percent"),
        (1.24, 2.24, "times", "increase"),
        (55.36, 2.24, "times", "saved share"),
        (13.8, 13.77, "ms", "rounded"),
        (8, 8.42, "", "rounded"),
        (7e3, 7, "FLOP/byte", "thousand times"),
        (3, 4, "ms", None),
        (1.25, 2.24, "times", None),
        (29, 70, "percent", None),
        (1e3, 1, "", None),
        (0, 4, "ms", None),
    ],
)
def test_the_likely_cause_is_named(answer: float, expected: float, unit: str, cause: str | None):
    hint = likely_mistake(answer, expected, unit)
    assert hint is None if cause is None else cause in hint


def test_texts_are_compared_without_case_and_spaces() -> None:
    kind = Text(lambda data: ("Late data", "input"), choices=("late data", "input", "compute"))
    for answer, passes in ((" late  DATA", True), ("input", True), ("compute", False), (3, False)):
        assert (judge(kind, answer) is None) == passes
    assert judge(kind, "misspelt") != judge(kind, "compute")
    assert kind.same("Compute", "compute")


@pytest.mark.parametrize(
    ("verdict", "passes"), [(None, True), (True, True), (False, False), ("It is odd.", False)]
)
def test_a_property_says_itself_what_is_wrong(verdict: object, passes: bool) -> None:
    kind = Property(lambda answer, data: verdict, example=lambda data: data)
    said = judge(kind, 1, 2)
    assert (said is None) == passes
    assert said == verdict or not isinstance(verdict, str)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (524_288, "524,288"),
        (1.04, "1.04"),
        (1.0004, "1.0004"),
        (94.512, "94.51"),
        (1e13, "1e+13"),
        (float("nan"), "nan"),
        ("words", "words"),
        (True, "True"),
    ],
)
def test_number_as_text(value: object, text: str) -> None:
    assert number(value) == text


def test_code_is_set_and_text_is_escaped() -> None:
    assert inline_html("`a<b` & *c*") == "<code>a&lt;b</code> &amp; *c*"
    assert isinstance(as_number("x", "ms"), str)
