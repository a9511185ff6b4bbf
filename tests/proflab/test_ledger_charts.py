"""Charts of the ledger and of predictions: what they draw, what they say, what they refuse."""

from __future__ import annotations

import io
import re

import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from proflab import ledger, predict, reveal
from proflab.correctness_gate import REQUIRED, CorrectnessGate, Part
from proflab.errors import CourseError
from proflab.predictions import compared
from tidyprof import plots
from tidyprof.tables.contract import Origin

GREEN = CorrectnessGate(tuple(Part(name, True, "looked at") for name in REQUIRED))
HAND = Origin("modelled", "by hand")


def add(change: str, before_ms: float, after_ms: float, gate: CorrectnessGate | None = GREEN, **keywords) -> None:
    ledger.add(
        f"{change} helps", [before_ms / 1e3] * 5, [after_ms / 1e3] * 5, gate, change=change, origin=HAND, **keywords
    )


def bars(figure: Figure) -> list[tuple[float, float, str]]:
    """Begin, end and hatch of each bar from top to bottom."""
    containers = [part for part in figure.axes[0].containers if isinstance(part, BarContainer)]
    patches = [patch for container in containers for patch in container]
    found = sorted(patches, key=lambda patch: patch.get_y())
    return [(round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6), bar.get_hatch() or "") for bar in found]


def colours(figure: Figure) -> list[tuple]:
    return [bar.get_facecolor() for part in figure.axes[0].containers for bar in part]


def words_in(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def corner(figure: Figure) -> str:
    (text,) = [text for text in figure.texts if text.get_gid() == "origin"]
    return text.get_text()


def sentences(text: str) -> int:
    return len(re.findall(r"\.(?= [A-Z]|$)", text))


class TestWaterfall:
    def test_steps_from_the_plain_to_the_final_trainer(self) -> None:
        add("channels last", 100, 80)
        add("batched transforms", 80, 40)
        figure = ledger.waterfall()
        assert bars(figure) == [(0, 100, ""), (80, 100, ""), (40, 80, ""), (0, 40, "")]
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert labels == ["plain trainer", "channels last", "batched transforms", "final"]
        assert corner(figure) == "modelled: by hand"
        assert figure.alternative_text == (
            "Waterfall from 100 ms per step in the plain trainer to 40.0 ms after 2 changes, 2.50 times as fast. "
            "In order: channels last 1.25 times, faster, batched transforms 2.00 times, faster."
        )
        plots.save(figure, io.BytesIO(), "png")

    def test_speed_up_without_a_green_gate_is_hatched_and_called_unproven(self) -> None:
        add("channels last", 100, 80)
        add("a Triton norm", 80, 20, gate=None)
        figure = ledger.waterfall()
        assert [hatch for _, _, hatch in bars(figure)] == ["", "", "///", "///"]
        assert "4.00 times (4.00 to 4.00), unproven" in words_in(figure)
        assert "20.0 ms, unproven" in words_in(figure)
        legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        assert legend == ["faster", "unproven"]
        assert "after 2 changes, unproven, 5.00 times as fast" in figure.alternative_text
        assert sentences(figure.alternative_text) == 2

    def test_what_did_not_help_is_left_out_unless_it_is_asked_for(self) -> None:
        add("channels last", 100, 80)
        add("prints", 80, 90)
        add("a lamp", 80, 80)
        assert len(bars(ledger.waterfall())) == 3
        figure = ledger.waterfall(["channels last", "prints", "a lamp"])
        assert [hatch for _, _, hatch in bars(figure)] == ["", "", "\\\\\\", "...", ""]
        assert len(set(colours(figure))) == 4  # the totals, and one for each verdict

    def test_changes_that_do_not_build_on_each_other_have_no_overall_speed_up(self) -> None:
        add("channels last", 100, 80)
        add("batched transforms", 100, 50)
        figure = ledger.waterfall()
        assert "times as fast" not in figure.alternative_text
        assert "no overall speed-up, since batched transforms did not begin where" in figure.alternative_text
        assert "50.0 ms, of this experiment alone" in words_in(figure)

    def test_a_few_percent_between_two_days_are_no_jump(self) -> None:
        add("channels last", 100, 80)
        add("batched transforms", 84, 42)
        assert "2.38 times as fast" in ledger.waterfall().alternative_text

    def test_refusals(self) -> None:
        with pytest.raises(CourseError, match="no experiment to draw"):
            ledger.waterfall()
        add("channels last", 100, 80)
        add("a larger batch", 10, 8, per="image")
        with pytest.raises(CourseError, match="per step, others per image"):
            ledger.waterfall()
        assert len(bars(ledger.waterfall(["a larger batch"]))) == 3


class TestCalibration:
    def test_points_by_lesson(self) -> None:
        predict("00.a", 5, what="first step")
        predict("02.a", 0.3)
        predict("02.b", 40)
        reveal("00.a", 10, origin=HAND)
        reveal("02.b", 4, origin="recorded: one MI300X, AMD")
        reveal("02.a", 0.3)
        figure = ledger.calibration("How well I guessed")
        points = [collection.get_offsets().tolist() for collection in figure.axes[0].collections]
        assert points == [[[10.0, 5.0]], [[4.0, 40.0], [0.3, 0.3]]]
        legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        assert legend == ["lesson 00", "lesson 02"]
        assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
        assert figure.axes[0].get_xlim() == figure.axes[0].get_ylim()
        assert figure.alternative_text == (
            "3 predictions against their results on logarithmic axes, 2 of them within a factor of 2. "
            "The farthest off is 02.b (no description), 10 times too high."
        )
        assert " ".join(corner(figure).split()) == (
            "predicted: your guesses; found: modelled: by hand; found: recorded: one MI300X, AMD; "
            "found: 1 results that state no origin"
        )
        plots.save(figure, io.BytesIO(), "png")

    def test_what_has_no_place_on_logarithmic_axes_is_counted(self) -> None:
        for id, guess, result in (
            ("01.a", "the loader", "the loader"),
            ("01.b", 3, 0),
            ("01.c", -1, 2),
            ("01.d", 2, 3),
        ):
            predict(id, guess)
            reveal(id, result)
        reveal("01.e", 5)
        predict("01.e", 5)
        reveal("01.e", 5)
        predict("01.f", 7)
        figure = ledger.calibration()
        assert "1 predictions" in figure.alternative_text
        assert "4 words, zeros, negative numbers or late guesses are left out" in figure.alternative_text

    def test_first_result_counts(self) -> None:
        predict("01.a", 2)
        reveal("01.a", 4)
        reveal("01.a", 2)
        (found,) = compared()
        assert (found.predicted, found.found, found.ratio, found.lesson) == (2, 4, 0.5, "01")

    def test_late_guess_is_marked(self) -> None:
        reveal("01.a", 4)
        predict("01.a", 4)
        reveal("01.a", 4)
        assert [one.late for one in compared()] == [True]

    def test_damaged_journal_lines_are_left_out(self, bench) -> None:
        predict("01.a", 2)
        with (bench / "predictions.jsonl").open("a") as file:
            file.write('{"event": "reveal", "value": 3}\n{"id": "01.a", "event": "reveal", "value": [1]}\n')
            file.write('{"id": "01.a", "event": "reveal", "value": true}\n')
        assert compared() == []
        reveal("01.a", 2)
        assert [one.found for one in compared()] == [2]

    def test_nothing_to_show(self) -> None:
        predict("01.a", 2)
        with pytest.raises(CourseError, match="no prediction in numbers"):
            ledger.calibration()

    def test_a_learner_who_guessed_nothing_gets_a_notice_and_no_error(self, capsys) -> None:
        reveal("01.a", 4)
        ledger.show_calibration()
        said = " ".join(capsys.readouterr().out.split())
        assert "No chart of your guesses" in said
        assert "predict(...) before a measurement" in said

    def test_shown_with_its_words(self, capsys) -> None:
        predict("01.a", 2)
        reveal("01.a", 4)
        ledger.show_calibration("How well I guessed")
        assert ledger.calibration("How well I guessed").alternative_text in capsys.readouterr().out
