"""Predictions are stored before the result and shown beside it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proflab import journal, predict, reveal
from proflab.predictions import compared, show_guesses, verdict


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_prediction_stands_beside_the_result(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict("02.a", 0.3, unit="fraction", what="share of the step without a kernel")
    assert shown(capsys) == "Noted: you expect 0.3 fraction for share of the step without a kernel."
    reveal("02.a", 0.6)
    out = shown(capsys)
    assert out.startswith("02.a: share of the step without a kernel")
    assert "predicted 0.3 fraction result 0.6 fraction verdict 2 times too low" in out
    assert [record["event"] for record in journal.read(bench / "predictions.jsonl")] == [
        "predict",
        "reveal",
    ]


def test_not_predicted_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    predict("02.a", 0.3)
    predict("02.b", ..., unit="k", what="kernels a step")
    assert "Replace the `...` with your guess of kernels a step" in shown(capsys)
    reveal("02.b", 1234)
    assert shown(capsys).startswith(
        "Not predicted: the result for kernels a step is 1,234 k. Next time"
    )
    reveal("02.c", 5)
    assert shown(capsys).startswith("Not predicted: the result is 5. Next time")


def test_last_prediction_before_the_result_stands(capsys: pytest.CaptureFixture[str]) -> None:
    predict("02.a", 0.3)
    predict("02.a", 0.4)
    reveal("02.a", 0.6)
    shown(capsys)
    predict("02.a", 0.6)
    assert "your prediction stays 0.4" in shown(capsys)
    reveal("02.a", 0.6)
    out = shown(capsys)
    assert "predicted 0.4" in out
    assert "after the result" not in out


def test_prediction_after_the_result_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    reveal("02.a", 0.6)
    predict("02.a", 0.6)
    reveal("02.a", 0.6)
    assert "made after the result had been shown" in shown(capsys)


def test_words_can_be_predicted_too(capsys: pytest.CaptureFixture[str]) -> None:
    predict("01.a", "the data loader")
    reveal("01.a", "The data loader")
    assert "verdict as predicted" in shown(capsys)


@given(result=st.floats(1e-6, 1e6), factor=st.floats(1.16, 1000))
def test_verdict_gives_factor_and_direction(result: float, factor: float) -> None:
    high, low = verdict(result * factor, result), verdict(result / factor, result)
    assert high.endswith("times too high")
    assert low.endswith("times too low")
    for said in (high, low):
        number = said.split()[0].replace(",", "")
        assert float(number) == pytest.approx(factor, rel=0.05)
        assert len(number.replace(".", "").rstrip("0")) <= 2


@given(result=st.floats(1e-6, 1e6), factor=st.floats(1.001, 1.149))
def test_a_guess_near_the_result_is_about_right(result: float, factor: float) -> None:
    assert {verdict(result * factor, result), verdict(result / factor, result)} == {"about right"}


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (
            0.65,
            "%",
            'Not noted: For 65 % write 65. If you mean less than 1 %: "0.65 %". (the wait)',
        ),
        (np.float64(0.25), "%", 'For 25 % write 25. If you mean less than 1 %: "0.25 %".'),
        (
            "most of it",
            "%",
            "`most of it` can't be compared with the result: guess a number, in %.",
        ),
        ("most", "ms", "`most` can't be compared with the result: guess a number, in ms."),
        ([60, 70], "times", "guess a number, in times."),
        (None, "W", "guess a number, in W."),
        (True, "%", "guess a number, in %."),
        (float("nan"), "%", "guess a number, in %."),
    ],
)
def test_a_guess_that_may_mean_something_else_is_asked_again(
    bench: Path, capsys: pytest.CaptureFixture[str], value: object, unit: str, said: str
) -> None:
    predict("02.a", value, unit=unit, what="the wait")
    assert said in shown(capsys)
    predict("02.a", 65, unit=unit, what="the wait")
    reveal("02.a", 65)
    assert [record["value"] for record in journal.read(bench / "predictions.jsonl")] == [65.0, 65.0]


@pytest.mark.parametrize(
    ("value", "unit", "stored"),
    [
        ("65 %", "%", 65),
        ("65", "%", 65),
        ("0.65 %", "%", 0.65),
        ("7 ms", "ms", 7),
        (1, "%", 1),
        (0.65, "times", 0.65),
    ],
)
def test_a_guess_that_is_clear_is_noted(
    bench: Path, value: float | str, unit: str, stored: float
) -> None:
    predict("02.a", value, unit=unit)
    assert [record["value"] for record in journal.read(bench / "predictions.jsonl")] == [stored]


@pytest.mark.parametrize(
    ("predicted", "result", "words"),
    [
        (3.0, 3.0, "as predicted"),
        (0.0, 201.0, "201 registers too low"),
        (-1.0, 1.0, "2 registers too low"),
        (2.0, 0.0, "2 registers too high"),
        ("a", "b", "different"),
        ("most", 7.0, "not compared: one is a number, the other is not"),
        (7.0, "data", "not compared: one is a number, the other is not"),
    ],
)
def test_verdict_without_a_factor(predicted: float | str, result: float | str, words: str) -> None:
    assert verdict(predicted, result, "registers") == words


def test_line_cut_off_by_a_crash_is_left_out(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict("02.a", 0.3)
    with (bench / "predictions.jsonl").open("a") as file:
        file.write(
            '[1]\n{"id": "02.a"}\n{"id": "02.a", "event": "predict"}\n{"id": "02.a", "event": "pre'
        )
    reveal("02.a", 0.6)
    assert "predicted 0.3" in shown(capsys)


def test_a_line_after_a_cut_one_is_kept(bench: Path) -> None:
    bench.mkdir(exist_ok=True)
    (bench / "predictions.jsonl").write_text('{"id": "02.a", "event": "pre')
    predict("02.a", 0.3)
    reveal("02.a", 0.6)
    assert [one.predicted for one in compared()] == [0.3]
    assert (bench / "predictions.jsonl").read_text().count("\n") == 3


def test_the_first_result_counts_and_a_late_guess_is_marked() -> None:
    predict("01.a", 2)
    reveal("01.a", 4)
    reveal("01.a", 2)
    reveal("01.b", 4)
    predict("01.b", 4)
    reveal("01.b", 4)
    first, second = compared()
    assert (first.predicted, first.found, first.ratio, first.late, first.lesson) == (
        2,
        4,
        0.5,
        False,
        "01",
    )
    assert second.late


def test_the_guesses_are_shown_the_farthest_off_first(capsys: pytest.CaptureFixture[str]) -> None:
    show_guesses()
    assert "No guess yet" in shown(capsys)
    for id, guess, result in (("01.a", 2, 4), ("01.b", 30, 3), ("01.c", "host", "host")):
        predict(id, guess, what=f"what {id} asks")
        reveal(id, result)
    shown(capsys)
    show_guesses()
    out = shown(capsys)
    assert out.index("01.b what 01.b asks 30 3 10") < out.index("01.a what 01.a asks 2 4 2")
    assert "01.c" not in out


def test_damaged_lines_of_the_journal_are_left_out(bench: Path) -> None:
    predict("01.a", 2)
    with (bench / "predictions.jsonl").open("a") as file:
        file.write(
            '{"event": "reveal", "value": 3}\n{"id": "01.a", "event": "reveal", "value": [1]}\n'
        )
        file.write('{"id": "01.a", "event": "reveal", "value": true}\n')
    assert compared() == []
    reveal("01.a", 2)
    assert [one.found for one in compared()] == [2]


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\r", "\x0b", "\ud800", "\n"])
def test_no_character_of_a_text_costs_its_record(
    bench: Path, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    predict("00.a", f"a{odd}b")
    predict("00.b", 1.0)
    reveal("00.a", f"a{odd}b")
    assert "verdict as predicted" in shown(capsys)
    records, damaged = journal.records_and_damaged(bench / "predictions.jsonl")
    assert [record["value"] for record in records] == [f"a{odd}b", 1.0, f"a{odd}b"]
    assert damaged == 0


def test_a_record_of_any_length_is_one_write(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that none of another process comes between."""
    sizes: list[int] = []
    write = os.write
    monkeypatch.setattr(
        os, "write", lambda file, content: sizes.append(len(content)) or write(file, content)
    )
    for size in (10, 20_000, 2_000_000):
        journal.append("long.jsonl", {"text": "x" * size})
        assert sizes[-1] > size
    assert len(sizes) == 3
    assert [len(record["text"]) for record in journal.read(bench / "long.jsonl")] == [
        10,
        20_000,
        2_000_000,
    ]


def test_a_record_that_fits_only_in_part_is_told(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:9]))
    journal.append("full.jsonl", {"a": 1})
    monkeypatch.undo()
    monkeypatch.setenv("PROFLAB_RUNS", str(bench))
    assert "No space left on device" in capsys.readouterr().err
    journal.append("full.jsonl", {"a": 2})
    records, damaged = journal.records_and_damaged(bench / "full.jsonl")
    assert ([record["a"] for record in records], damaged) == ([2], 1)


def test_an_empty_line_is_no_damage(bench: Path) -> None:
    bench.mkdir()
    (bench / "many.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    assert journal.records_and_damaged(bench / "many.jsonl") == ([{"a": 1}, {"a": 2}], 0)


@pytest.mark.parametrize(
    ("result", "text"),
    [(94.533, "94.5"), (0.99731, "0.997"), (2425.4, "2,425"), (50.0, "50"), (1.0004, "1.0004")],
)
def test_a_result_has_three_digits(
    result: float, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    predict("07.z", 10, "%", "a share")
    reveal("07.z", result)
    assert f"result     {text} %" in capsys.readouterr().out
