"""The exercises on paper: each with its solution, and all that is said to who errs."""

from __future__ import annotations

import re

import pytest

from proflab.exercises import all_exercises
from tools.answer_sheet import main, sheet, spoken


def test_each_exercise_has_a_question_a_solution_and_its_mistakes() -> None:
    text = "\n".join(sheet([]))
    for one in all_exercises():
        own = text.partition(f"**{one.id}**, ")[2].partition("\n**")[0].partition("\n## ")[0]
        assert re.match(r"(Rung \d, )?\d+ minutes?.*\n\n```python\n", own), one.id
        assert own.count("\n- ") == len(one.mistakes), one.id


def test_a_lesson_or_an_exercise_alone() -> None:
    text = "\n".join(sheet(["02", "03.3"]))
    assert {*re.findall(r"\*\*(\d\d)\.\d+\*\*", text)} == {"02", "03"}
    assert re.findall(r"\*\*(03\.\d+)\*\*", text) == ["03.3"]


def test_what_does_not_exist_is_said(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["answer_sheet", "90_minutes"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("error: 90_minutes is neither a lesson")


def test_of_an_open_question_the_whole_reply_stands_there() -> None:
    text = "\n".join(sheet(["02.2"]))
    assert "- ... some time is in no part, or not in ns." in text


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("As it is.", "As it is."),
        (lambda data: f"The {len(data)} overlap: merge them.", "The ... overlap: merge them."),
        (lambda data: f"That is {data:.1f} ms", "That is ... ms"),
        (str.upper, "(said with numbers from the learner's data)"),
    ],
)
def test_dots_stand_for_numbers_of_a_learner(message: object, told: str) -> None:
    assert spoken(message) == told
