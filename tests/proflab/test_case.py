"""The case of lessons 00 to 08 and its sheet."""

from __future__ import annotations

import html
import json
import os
import re
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyBboxPatch

import tidyprof
from cifar_train.config import parse
from proflab import __main__ as bench
from proflab import case, ledger, start
from proflab.correctness_gate import REQUIRED, CorrectnessGate, Part
from proflab.display import page
from proflab.errors import CourseError
from proflab.ledger.entries import is_modelled
from proflab.lessons import lessons, method, place
from proflab.recordings import recording
from proflab.sources import brief, errors
from tidyprof import Origin
from tools import case_lines

GREEN = CorrectnessGate(tuple(Part(name, True, "looked at") for name in REQUIRED))
FOUND = {
    "rules_out": "the GPU",
    "because": "A clock can't tell.",
    "next": "01",
    "origin": "modelled: MI300X",
}


@pytest.fixture(autouse=True)
def no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CASE", raising=False)


def test_every_stage_is_a_command_that_the_trainer_takes() -> None:
    program, stages = case.stages()
    assert [stage.lesson for stage in stages] == sorted({stage.lesson for stage in stages})
    for stage in stages:
        parse(stage.options.split())
    assert case.command("00") == case.command("03") == f"{program} {stages[0].options}"
    assert case.command("04").endswith(stages[1].options)
    assert case.command("14").endswith(stages[-1].options)


def test_a_lesson_sets_the_case_and_leaves_what_the_learner_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start("03")
    assert os.environ["CASE"] == case.command("03")
    start("05")
    assert os.environ["CASE"] == case.command("05")
    monkeypatch.setenv("CASE", "python -m cifar_train --model vit")
    start("03")
    assert os.environ["CASE"] == "python -m cifar_train --model vit"


def test_a_line_goes_into_the_sheet_with_its_change_and_the_last_attempt_counts(capsys) -> None:
    tried = ledger.add(
        "h", [2.0] * 5, [1.0, 1.1, 1.0, 1.0, 1.0], change="workers", origin="recorded: MI300X"
    )
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    case.conclude("00", "A step takes 57 ms.", **FOUND, changes=[tried])
    assert [(line.evidence, here) for line, here in case.lines("00")] == [
        ("A step takes 57 ms.", True)
    ]
    row = case.table("00").rows[0]
    assert row[0] == "00"
    assert (
        row[1]
        == "A step takes 57 ms. [modelled, a]\nChanged: workers: 2.00 -> 1.00 s per image, 2.00x,"
        " unproven [recorded, b]"
    )
    assert row[3] == "A clock can't tell. Lesson 01."
    assert "A step takes 57 ms." in capsys.readouterr().out


def test_an_origin_stands_once_below_the_sheet_with_a_letter_where_there_are_several() -> None:
    tried = ledger.add("h", [2.0] * 5, [0.5] * 5, change="workers", origin="measured: here")
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    assert case.table("00").note == FOUND["origin"]
    case.conclude("01", "Busy for 16 %.", **FOUND | {"next": "02"}, changes=[tried])
    table = case.table("01")
    assert table.note == "[a] modelled: MI300X\n[b] measured: here"
    assert [row[1].splitlines() for row in table.rows] == [
        ["A step takes 56 ms. [modelled, a]"],
        [
            "Busy for 16 %. [modelled, a]",
            "Changed: workers: 2.00 s -> 500 ms per image, 4.0x, unproven [measured, b]",
        ],
    ]


def test_a_notebook_folds_all_lessons_but_the_last_two_and_a_page_none() -> None:
    sheet = case.table("08")
    folded, shown = sheet._repr_html_().split("</details>")
    assert "earlier lessons" in folded
    assert [number for number in lessons() if f">{number} (shipped)<" in folded] == [
        f"{n:02}" for n in range(7)
    ]
    assert [number for number in lessons() if f">{number} (shipped)<" in shown] == ["07", "08"]
    assert "<code>python -m cifar_train" in folded
    assert "<details>" not in page(sheet) + case.table("01")._repr_html_()


def test_the_sheet_as_text_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proflab.display.terminal_width", lambda: 80)
    text = str(case.table("08"))
    assert max(map(len, text.splitlines())) <= 80
    assert not [line for line in text.splitlines() if line.lstrip().startswith("%")]
    for line in case.shipped():
        for words in (
            line.evidence,
            line.rules_out,
            line.because,
            brief(line.origin),
            *map(str, line.changes),
        ):
            assert words in " ".join(text.split())
    for error in {error for line in case.shipped() for error in errors(line.origin)}:
        assert " ".join(text.split()).count(error) == 1


def test_no_shipped_line_calls_a_modelled_number_a_gain_or_gives_it_an_interval() -> None:
    sheet = case.table("08")
    for line, (_, shown, *_) in zip(case.shipped(), sheet.rows, strict=True):
        assert "interval" not in shown
        evidence, *below = shown.splitlines()
        assert evidence.startswith(line.evidence)
        changed = [text for text in below if text.startswith("Changed: ")]
        measured = [one for one in line.changes if not is_modelled(one.origin)]
        assert len(changed) == len(measured)
        played = [one.change for one in line.changes if is_modelled(one.origin)]
        assert below[len(changed) :] == ([below[-1]] if played else [])
        if played:
            heading, _, ratios = below[-1].partition(": ")
            assert heading == "Modelled, not counted as a gain"
            assert re.sub(r" [\d.]+x( \[[\w ]+, \w\])?(?=;|$)", "", ratios) == "; ".join(played)


def test_what_only_a_model_tried_stands_apart_from_what_was_changed_in_two_digits(
    tmp_path: Path,
) -> None:
    before, after = [218.7e-6, 218.8e-6, 218.9e-6, 219e-6, 219.1e-6], [78.7e-6] * 5
    tried = [
        ledger.add("Loaders help", sides[0], sides[1], GREEN, change=change, origin=origin)
        for change, sides, origin in (
            ("loaders", (before, after), "modelled: MI300X"),
            ("workers", (before, after), "recorded: MI300X"),
            ("channels last", (after, before), "recorded: AMD; modelled: MI300X"),
            ("cores", (before, after), "measured: here"),
        )
    ]
    case.conclude("00", "A step takes 56 ms.", **FOUND, changes=tried)
    rows = case.table("00").rows[0][1].splitlines()
    assert rows == [
        "A step takes 56 ms. [modelled, a]",
        "Changed: workers: 219 -> 78.7 µs per image, 2.8x, faster [recorded, b]",
        "Changed: cores: 219 -> 78.7 µs per image, 2.8x, faster [measured, d]",
        "Modelled, not counted as a gain: loaders 2.8x; channels last 0.36x"
        " [recorded and modelled, c]",
    ]
    assert bench.main(["case", "--html", str(tmp_path / "case.html")]) == 0
    page = (tmp_path / "case.html").read_text()
    text = " ".join(str(case.table("00")).split())
    for row in rows:
        assert row in text
        assert html.escape(row) in page
        assert html.escape(row) in case.table("00")._repr_html_()


def test_a_lesson_that_was_not_done_shows_its_shipped_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = case.Line(
        "01", "Busy for 16 %.", "modelled: MI300X", "the GPU", "Sensors can't tell.", "02"
    )
    monkeypatch.setattr(case, "shipped", lambda: [line])
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    assert [row[0] for row in case.table("01").rows] == ["00", "01 (shipped)"]
    assert case.table("01").note == f"modelled: MI300X\n{case.SHIPPED_NOTE}"
    assert case.table("00").note == "modelled: MI300X"


@pytest.mark.parametrize("wrong", [{"next": "77"}, {"origin": None}, {"evidence": " "}])
def test_a_line_needs_evidence_an_origin_and_a_lesson_to_go_on_with(wrong: dict) -> None:
    found = {"evidence": "A step takes 56 ms."} | FOUND | wrong
    with pytest.raises(CourseError):
        case.conclude("00", found.pop("evidence"), **found)
    assert case.lines("00") == [] or not case.lines("00")[0][1]


def test_a_line_that_was_changed_by_hand_is_left_out(bench: Path) -> None:
    case.conclude("00", "A step takes 56 ms.", **FOUND)
    with (bench / case.FILE).open("a") as file:
        file.write('{"lesson": "00", "evidence": 7}\n')
        changed = case.Changed("c", "image", 2e9, 0, "", "faster", "green", "o")
        file.write(json.dumps(asdict(case.Line("00", "e", "o", "r", "b", "01", (changed,)))))
    assert [line.evidence for line, here in case.lines("00") if here] == ["A step takes 56 ms."]


def test_the_command_prints_the_sheet_and_writes_one_page(tmp_path: Path, capsys) -> None:
    case.conclude("00", "A step takes <56> ms.", **FOUND)
    assert bench.main(["case"]) == 0
    assert "A step takes <56> ms." in capsys.readouterr().out
    assert bench.main(["case", "--html", str(tmp_path / "case.html")]) == 0
    page = (tmp_path / "case.html").read_text()
    assert "A step takes &lt;56&gt; ms." in page
    assert page.startswith("<!doctype html>")


def test_no_text_of_the_method_s_picture_meets_another_or_leaves_its_box() -> None:
    canvas = FigureCanvasAgg(method("00"))
    canvas.draw()
    (axes,) = canvas.figure.axes
    places = {
        text.get_text(): text.get_window_extent(canvas.get_renderer())
        for text in axes.texts
        if text.get_text()
    }
    pairs = [
        (one, other)
        for one, other in combinations(places, 2)
        if places[one].overlaps(places[other])
    ]
    assert pairs == []
    boxes = [box.get_window_extent() for box in axes.patches if isinstance(box, FancyBboxPatch)]
    cut = [(text, box) for text in places for box in boxes if places[text].overlaps(box)]
    assert len(cut) == 3 * len(boxes)
    for text, box in cut:
        inside = places[text]
        assert box.x0 < inside.x0 < inside.x1 < box.x1, text
        assert box.y0 <= inside.y0 < inside.y1 <= box.y1, text


def test_the_picture_and_the_line_mark_the_lesson() -> None:
    assert "lesson 03" in method("03").alternative_text
    assert "**03 " in place("03")
    assert place("03").endswith(" Lesson 02 could not tell what runs between operators.")
    assert "could not tell" not in place("00")


class TestShippedLines:
    CHAIN = tuple(
        case.Line(
            f"0{number}", "e", "modelled: MI300X", "r", "b", f"0{number + 1}" if number < 8 else ""
        )
        for number in range(9)
    )

    def test_a_chain_from_00_to_08_is_fine(self) -> None:
        assert list(case_lines.problems(self.CHAIN, self.CHAIN)) == []

    @pytest.mark.parametrize(
        ("place", "change", "said"),
        [
            (
                2,
                {"next": "07"},
                "lesson 02: its evidence asks for 07, and the course goes on with 03",
            ),
            (
                8,
                {"next": "03"},
                "lesson 08: its evidence asks for 03, and the course goes on with nothing",
            ),
            (4, {"origin": "measured: this machine"}, "must not depend on the machine"),
            (5, {"evidence": "other"}, "is not what the lessons find"),
            (6, {"evidence": "name  3\nDtype: int64"}, "lesson 06: its evidence has a line break"),
        ],
    )
    def test_what_is_wrong_is_named(self, place: int, change: dict, said: str) -> None:
        found = [
            *self.CHAIN[:place],
            replace(self.CHAIN[place], **change),
            *self.CHAIN[place + 1 :],
        ]
        assert any(said in problem for problem in case_lines.problems(found, self.CHAIN))

    def test_a_lesson_without_a_line_is_named(self) -> None:
        assert "lesson 03 adds no line to the case" in list(
            case_lines.problems(self.CHAIN[:3], self.CHAIN[:3])
        )


def test_the_case_on_a_gpu_has_each_step_of_each_run_and_says_where_it_ran() -> None:
    table = case.measured()
    assert table.attrs["origin"] == Origin("recorded", "NVIDIA H200")
    steps = table.groupby(["run", "traced"]).agg(
        count=("step", "count"), profiled=("profiled", "sum")
    )
    assert (steps["count"] == 20).all()
    assert ((steps["profiled"] > 0) == steps.index.get_level_values("traced")).all()
    plain = table[
        (table["run"] == "plain")
        & table["traced"]
        & (table["part"] == "steady")
        & ~table["profiled"]
    ]
    trace = tidyprof.read(recording("torch-h200-case-plain").path)
    (stated,) = trace.meta["untraced"].values()
    assert stated["step_ns"] == pytest.approx(plain["duration_ns"].mean()), (
        "the trace states what its run took"
    )
