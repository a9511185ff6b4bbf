"""Predictions are stored before the result and shown beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from proflab import journal, predict, reveal
from proflab.errors import CourseError
from proflab.predictions import show_guesses, verdict


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_last_prediction_before_the_result_counts(bench: Path, capsys) -> None:
    predict("02.a", 0.3, unit="fraction", what="idle share")
    predict("02.a", 0.4, unit="fraction", what="idle share")
    predict("02.b", 1)
    shown(capsys)
    reveal("02.a", 0.8)
    predict("02.a", 0.8, unit="fraction")
    reveal("02.a", 0.8)
    assert shown(capsys).count("predicted 0.4 fraction result 0.8 fraction verdict too low") == 2
    events = [record["event"] for record in journal.read(bench / "predictions.jsonl")]
    assert events == ["predict", "predict", "predict", "reveal", "reveal"]


def test_without_a_prediction_the_result_is_shown_and_a_later_one_is_late(capsys) -> None:
    predict("02.b", ..., unit="k", what="kernels per step")
    reveal("02.b", 1234)
    assert "kernels per step is 1,234 k" in shown(capsys)
    predict("02.b", 1200, unit="k")
    reveal("02.b", 1234)
    assert "after you saw the result" in shown(capsys)


@pytest.mark.parametrize("guess", ["a lot", float("nan"), 0.5, True])
def test_a_guess_that_may_mean_something_else_is_not_noted(bench: Path, guess) -> None:
    predict("02.a", guess, unit="%")
    assert journal.read(bench / "predictions.jsonl") == []


@pytest.mark.parametrize(
    ("guess", "unit", "stored"),
    [
        ("65 %", "%", 65.0),
        ("0.5 %", "%", 0.5),
        (np.float32(2), "ms", 2.0),
        ("late", "", "late"),
        (1, "%", 1.0),
    ],
)
def test_a_guess_is_stored_as_a_number_or_a_word(bench: Path, guess, unit: str, stored) -> None:
    predict("02.a", guess, unit=unit)
    assert [record["value"] for record in journal.read(bench / "predictions.jsonl")] == [stored]


@pytest.mark.parametrize(
    ("predicted", "result", "words"),
    [
        (0.3, 0.6, "too low by a factor of 2"),
        (6, 0.6, "too high by a factor of 10"),
        (1.1, 1.0, "about right"),
        (-2.0, -1.0, "too low by a factor of 2"),
        (0, 3, "3 too low"),
        (1, -2, "3 too high"),
        (2, 2, "as predicted"),
        ("Late ", "late", "as predicted"),
        ("a", "b", "different"),
        ("a", 1, "not compared"),
        (1.0, "1", "as predicted"),
        (1.0, "0", "different"),
    ],
)
def test_verdict(predicted, result, words: str) -> None:
    assert verdict(predicted, result).startswith(words)


def test_guesses_in_numbers_are_shown_with_the_farthest_off_first(bench: Path, capsys) -> None:
    for id, guess, result in (("02.a", 1, 2), ("02.b", 1, 30), ("02.c", "x", "y"), ("02.d", 0, 1)):
        predict(id, guess)
        reveal(id, result, "recorded: here")
    reveal("02.e", 5)
    predict("02.e", 5)
    with (bench / "predictions.jsonl").open("a") as file:
        file.write('{"id": "02.f", "event": "reveal"}\n{"id": "02.f", "ev')
    shown(capsys)
    show_guesses()
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:3] == "02."]
    assert rows == [["02.b", "1", "30", "30"], ["02.a", "1", "2", "2"]]


def test_a_result_that_has_lost_its_origin_is_refused() -> None:
    with pytest.raises(CourseError):
        reveal("02.a", 1, object())
