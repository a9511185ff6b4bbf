"""Kinds of answers: what passes, what does not, and which cause is named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from proflab.display import inline_html, number
from proflab.exercises import Number, Property, Text
from proflab.exercises.answers import as_number, unit_hint


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
    assert kind.same(answer, 100.0) == passes


def test_the_larger_of_both_tolerances_counts() -> None:
    assert judge(Number(lambda data: data, relative=0.01, absolute=0.5), 0.4, 0.0) is None
    with pytest.raises(ValueError, match="nan"):
        Number(lambda data: data).right(float("nan"))


@pytest.mark.parametrize(
    ("answer", "expected", "unit", "cause"),
    [
        (5200.0, 5.2, "ms", "like us; ms"),
        (5.2e6, 5.2, "ms", "like ns; ms"),
        (0.0052, 5.2, "ms", "like s; ms"),
        (0.5, 50, "percent", "like fraction; percent"),
        (5300.0, 5.3, "TB/s", "like GB/s; TB/s"),
        (1.0486, 1, "MiB", "like MB; MiB"),
        (-4, 4, "", "sign"),
        (30, 70, "percent", "rest"),
        (0.3, 0.7, "fraction", "rest"),
        (0.5, 2, "ratio", "upside down"),
        (7e3, 7, "FLOP/byte", "thousand times"),
        (3, 4, "ms", None),
        (1e3, 1, "", None),
        (0, 4, "ms", None),
    ],
)
def test_the_likely_cause_is_named(answer: float, expected: float, unit: str, cause: str | None):
    hint = unit_hint(answer, expected, unit)
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
