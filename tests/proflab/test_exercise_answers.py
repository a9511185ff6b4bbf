"""Kinds of answers: what passes, what does not, and what the learner is told."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proflab.display import inline_html, number
from proflab.exercises import Number, Property, Text
from proflab.exercises.answers import as_number, unit_hint

sizes = st.floats(1e-6, 1e12).flatmap(lambda size: st.sampled_from([size, -size]))


def judge(kind: object, answer: object, data: object = None) -> str | None:
    return kind.judge(answer, kind.right(data), data)


@given(expected=sizes, share=st.floats(-0.99, 0.99))
def test_number_within_the_tolerance_passes(expected: float, share: float) -> None:
    kind = Number(lambda data: data, unit="ms", relative=0.02)
    assert judge(kind, expected * (1 + 0.02 * share), expected) is None


@given(expected=sizes, factor=st.floats(1.03, 50) | st.floats(0.02, 0.97))
def test_number_outside_the_tolerance_fails_with_the_direction_or_a_hint(
    expected: float, factor: float
) -> None:
    kind = Number(lambda data: data, unit="", relative=0.02)
    found = judge(kind, expected * factor, expected)
    assert ("too big" if expected * factor > expected else "too small") in found


@given(
    expected=st.floats(1e-6, 1e9),
    asked=st.sampled_from(["ns", "us", "ms", "s"]),
    given_in=st.integers(0, 3),
)
def test_time_in_another_unit_is_recognised(expected: float, asked: str, given_in: int) -> None:
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
    other = list(scale)[given_in]
    hint = unit_hint(expected * scale[asked] / scale[other], expected, asked)
    if other == asked:
        assert hint is None
    else:
        assert f"This looks like {other}; {asked} is asked." in hint
        assert ("too big" in hint) == (scale[other] < scale[asked])


@pytest.mark.parametrize(
    ("answer", "expected", "unit", "message"),
    [
        (5200.0, 5.2, "ms", "This is a thousand times too big. This looks like us; ms is asked."),
        (5.2e6, 5.2, "ms", "This is a million times too big. This looks like ns; ms is asked."),
        (
            31.0,
            0.31,
            "fraction",
            "This is a hundred times too big. This looks like percent; fraction is asked.",
        ),
        (
            0.31,
            31.0,
            "percent",
            "This is a hundred times too small. This looks like fraction; percent is asked.",
        ),
        (0.31, 31.0, "%", "This looks like fraction; % is asked."),
        (0.69, 0.31, "fraction", "This is the rest"),
        (69.0, 31.0, "percent", "This is the rest"),
        (0.5, 2.0, "ratio", "This is upside down"),
        (-7.0, 7.0, "ms", "The size is right, the sign is not"),
        (2.0 * 1048576, 2.0, "MiB", "This looks like B; MiB is asked."),
        (2.0 * 1.048576, 2.0, "MiB", "This looks like MB; MiB is asked."),
        (5300.0, 5.3, "TB/s", "This looks like GB/s; TB/s is asked."),
        (12.5, 12500.0, "images/s", "This is a thousand times too small. Check the units"),
    ],
)
def test_hints_name_the_likely_mistake(
    answer: float, expected: float, unit: str, message: str
) -> None:
    assert message in unit_hint(answer, expected, unit)


def test_a_hint_without_a_round_factor_is_one_sentence() -> None:
    assert unit_hint(2.0 * 1.048576, 2.0, "MiB") == "This looks like MB; MiB is asked."


@pytest.mark.parametrize(
    ("answer", "expected", "unit"),
    [(3.0, 2.0, "ms"), (0.0, 2.0, "ms"), (7.0, 0.0, "ms"), (4e3, 4, "")],
)
def test_no_hint_where_nothing_is_likely(answer: float, expected: float, unit: str) -> None:
    assert unit_hint(answer, expected, unit) is None


@pytest.mark.parametrize(
    "answer",
    [
        3,
        3.0,
        "3",
        " 3.0 ",
        np.int64(3),
        np.float32(3),
        np.array(3.0),
        np.array([3]),
        pd.Series([3], index=["a"]),
    ],
)
def test_one_number_in_many_dresses(answer: object) -> None:
    assert as_number(answer) == 3.0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (True, "A number is asked, this is a bool."),
        (None, "A number is asked, and the answer is None: was it assigned?"),
        ("3 ms", "A bare number in ms is asked, this is the text `3 ms`."),
        (math.nan, "was something missing"),
        ("nan", "no number to work with"),
        (math.inf, "divided by zero"),
        (pd.NA, "A number is asked"),
        (pd.Timedelta("3ms"), "this is a Timedelta"),
        (np.array([1.0, 2.0]), "with 2 values"),
        (pd.Series([], dtype=float), "with 0 values"),
        (pd.DataFrame({"a": [1]}), "this is a DataFrame"),
        (3j, "A number is asked"),
        (lambda: 3, "A number is asked"),
    ],
)
def test_what_is_no_number_is_told_so(answer: object, message: str) -> None:
    assert message in as_number(answer, "ms")


def test_count_is_exact_and_absolute_tolerance_counts() -> None:
    count = Number(lambda data: 12, relative=0)
    assert judge(count, 12) is None
    assert judge(count, 12.001) == "12.001 is too big."
    zero = Number(lambda data: 0.0, unit="ms", absolute=0.5)
    assert judge(zero, -0.4) is None
    assert judge(zero, -0.6) == "-0.6 is too small."


def test_expected_number_must_be_finite() -> None:
    with pytest.raises(ValueError, match="the data gives nan"):
        Number(lambda data: float("nan")).right(None)


def test_text_ignores_case_and_spaces_and_accepts_several() -> None:
    kind = Text(lambda data: ("rank 3", "3"))
    assert judge(kind, "  RANK   3 ") is None
    assert judge(kind, "3") is None
    assert judge(kind, "rank 2") == "It is not `rank 2`."
    assert judge(kind, 3) == "A text is asked, this is an int."
    assert judge(Text(lambda data: "gemm"), "GEMM") is None


def test_what_is_none_of_the_choices_is_told_them() -> None:
    kind = Text(lambda data: "leave it", choices=("leave it", "change it"))
    assert judge(kind, "Leave  it") is None
    assert judge(kind, "change it") == "It is not `change it`."
    assert judge(kind, "leave") == "Write one of these as it stands: leave it; change it."


def test_property_takes_any_answer_that_has_it() -> None:
    def parts_sum_to_whole(answer: list[float], data: float) -> str | None:
        return None if math.isclose(sum(answer), data) else f"They sum to {sum(answer)}."

    kind = Property(parts_sum_to_whole, example=lambda data: [data])
    assert judge(kind, [1, 2, 3], 6) is None
    assert judge(kind, [6], 6) is None
    assert judge(kind, [1, 2], 6) == "They sum to 3."
    assert judge(Property(lambda answer, data: answer > data, lambda data: data + 1), 2, 1) is None
    assert "property" in judge(
        Property(lambda answer, data: answer > data, lambda data: data + 1), 1, 2
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (524_288.0, "524,288"),
        (524288, "524,288"),
        (10400.3, "10,400"),
        (1.04, "1.04"),
        (1.0004, "1.0004"),
        (2.00000001, "2.00000001"),
        (0.33333, "0.3333"),
        (-0.6, "-0.6"),
        (0.0, "0"),
        (4.2e15, "4.2e+15"),
        (np.int64(1200), "1,200"),
        (math.nan, "nan"),
        (True, "True"),
        ("gemm", "gemm"),
    ],
)
def test_numbers_are_shown_as_they_are(value: object, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("answer", ["SELECT `a`\n  FROM b", "", "\n", "x" * 500])
def test_an_answer_in_several_lines_stays_code_up_to_its_end(answer: str) -> None:
    said = judge(Text(lambda data: "gemm"), answer)
    assert re.fullmatch(r"It is not <code>[^`]{1,80}</code>\.", inline_html(said))
