"""The example run of lessons 00 to 08 and its findings log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cifar_train.config import parse
from proflab import __main__ as bench
from proflab import case, start
from proflab.display import page
from proflab.errors import CourseError
from proflab.lessons import lessons, place
from tidyprof import Origin
from tools import case_lines

FOUND = {
    "rules_out": "the GPU",
    "because": "A clock can't tell.",
    "next": "01",
    "origin": "modeled: MI300X",
}


@pytest.fixture(autouse=True)
def no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXAMPLE", raising=False)


def test_every_stage_is_a_command_that_the_trainer_takes() -> None:
    program, stages = case.stages()
    for stage in stages:
        parse(stage.options.split())
    assert case.command("00") == case.command("03") == f"{program} {stages[0].options}"
    assert case.command("14").endswith(stages[-1].options)


def test_a_lesson_sets_the_case_and_leaves_what_the_learner_set(monkeypatch) -> None:
    for number in ("03", "05"):
        start(number)
        assert os.environ["EXAMPLE"] == case.command(number)
    monkeypatch.setenv("EXAMPLE", "python -m cifar_train --model vit")
    start("03")
    assert os.environ["EXAMPLE"] == "python -m cifar_train --model vit"


def test_the_last_line_counts_and_each_origin_has_a_letter(tmp_path: Path, capsys) -> None:
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    case.conclude("00", "A step takes 57 ms.", **FOUND)
    case.conclude("01", "The GPU is idle.", **FOUND | {"origin": "measured: <here>"})
    assert [(line.evidence, here) for line, here in case.lines("00")] == [
        ("A step takes 57 ms.", True)
    ]
    assert [row[1] for row in case.table("01").rows] == [
        "A step takes 57 ms. [modeled, a]",
        "The GPU is idle. [measured, b]",
    ]
    assert case.table("01").note == "[a] modeled: MI300X\n[b] measured: <here>"
    assert bench.main(["findings", "--html", str(tmp_path / "case.html")]) == 0
    assert "&lt;here&gt;" in (tmp_path / "case.html").read_text()


def test_a_lesson_that_was_not_done_shows_its_shipped_line() -> None:
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    assert [row[0] for row in case.table("01").rows] == ["00", "01 (shipped)"]
    sheet = case.table("08")
    folded, shown = sheet._repr_html_().split("</details>")
    assert shown.count("(shipped)<") == 1
    assert folded.count("(shipped)<") == 7
    assert "<details>" not in page(sheet)


@pytest.mark.parametrize("wrong", [{"next": "77"}, {"origin": None}, {"evidence": " "}])
def test_a_line_needs_evidence_an_origin_and_a_lesson_to_go_on_with(wrong: dict) -> None:
    found = {"evidence": "A step takes 56 ms."} | FOUND | wrong
    with pytest.raises(CourseError):
        case.conclude("00", found.pop("evidence"), **found)


def test_a_line_that_was_changed_by_hand_is_left_out(bench: Path) -> None:
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    with (bench / case.FILE).open("a") as file:
        file.write('{"lesson": "00", "evidence": 7}\n')
    assert [line.evidence for line, here in case.lines("00") if here] == ["A step takes 56 ms."]


def test_the_line_marks_the_lesson() -> None:
    assert "**03 " in place("03")
    assert lessons()["02"].blind in place("03")


CHAIN = tuple(
    case.Line(f"0{number}", "e", "modeled: MI300X", "r", "b", f"0{number + 1}" * (number < 8))
    for number in range(9)
)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (2, {"next": "07"}),
        (8, {"next": "03"}),
        (4, {"origin": "measured: this machine"}),
        (5, {"evidence": "other"}),
        (6, {"evidence": "name  3\nDtype: int64"}),
    ],
)
def test_shipped_lines_are_checked(number: int, change: dict) -> None:
    assert list(case_lines.problems(CHAIN, CHAIN)) == []
    found = [*CHAIN[:number], replace(CHAIN[number], **change), *CHAIN[number + 1 :]]
    assert list(case_lines.problems(found, CHAIN))
    assert list(case_lines.problems(CHAIN[:3], CHAIN[:3]))


def test_the_case_on_a_gpu_has_each_step_of_each_run() -> None:
    table = case.measured()
    assert table.attrs["origin"] == Origin("recorded", "NVIDIA H200")
    steps = table.groupby(["run", "traced"]).agg(
        count=("step", "count"), profiled=("profiled", "sum")
    )
    assert (steps["count"] == 20).all()
    assert ((steps["profiled"] > 0) == steps.index.get_level_values("traced")).all()
