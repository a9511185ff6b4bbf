"""Tests of the answer sheet: each exercise with its solution and the replies to mistakes."""

from __future__ import annotations

import re

from proflab.exercises import all_exercises, exercises_of
from tools.answer_sheet import sheet


def test_each_exercise_has_a_question_a_solution_and_its_mistakes() -> None:
    text = "\n".join(sheet([]))
    for one in (*all_exercises(), *exercises_of("90").EXERCISES):
        own = text.partition(f"**{one.id}**, ")[2].partition("\n**")[0].partition("\n## ")[0]
        assert re.match(r"\d+ minutes?.*\n\n```python\n", own), one.id
        assert own.count("\n- ") == len(one.mistakes), one.id


def test_a_lesson_or_an_exercise_alone() -> None:
    text = "\n".join(sheet(["02", "03.3"]))
    assert {*re.findall(r"\*\*(\d\d)\.\d+\*\*", text)} == {"02", "03"}
    assert re.findall(r"\*\*(03\.\d+)\*\*", text) == ["03.3"]


def test_the_workshop_is_listed_with_a_title() -> None:
    assert re.search(r"^## 90 \w", sheet_of("90"), re.MULTILINE)
    assert {*re.findall(r"\*\*(\d\d\.\d+)\*\*", sheet_of("90"))} == {"90.1", "90.2"}
    assert re.findall(r"\*\*(\d\d\.\d+)\*\*", sheet_of("00.1", "90.1")) == ["00.1", "90.1"]


def sheet_of(*asked: str) -> str:
    return "\n".join(sheet(asked))
