"""The waterfall of the ledger: what is proven, what is not, and what adds up."""

from __future__ import annotations

import io

import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from proflab import ledger
from proflab.correctness_gate import REQUIRED, CorrectnessGate, Part
from proflab.errors import CourseError
from tidyprof import plots
from tidyprof.tables.contract import Origin

GREEN = CorrectnessGate(tuple(Part(name, True, "looked at") for name in REQUIRED))


def add(
    change: str,
    before_ms: float,
    after_ms: float,
    gate: CorrectnessGate | None = GREEN,
    per="step",
    by="recorded",
) -> None:
    sides = [before_ms / 1e3] * 5, [after_ms / 1e3] * 5
    ledger.add(
        f"{change} helps", *sides, gate, change=change, per=per, origin=Origin(by, "by hand")
    )


def bars(figure: Figure) -> list[tuple[float, float, str]]:
    """Begin, end and hatch of each bar from top to bottom."""
    containers = [part for part in figure.axes[0].containers if isinstance(part, BarContainer)]
    patches = sorted(
        (patch for container in containers for patch in container), key=lambda patch: patch.get_y()
    )
    return [
        (round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6), bar.get_hatch() or "")
        for bar in patches
    ]


def words_in(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_steps_from_the_plain_to_the_final_trainer() -> None:
    add("channels last", 100, 80)
    add("batched transforms", 80, 40)
    figure = ledger.waterfall()
    assert bars(figure) == [(0, 100, ""), (80, 100, ""), (40, 80, ""), (0, 40, "")]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["plain trainer", "channels last", "batched transforms", "final"]
    assert figure.origin == "recorded: by hand"
    assert (
        figure.alternative_text
        == "Waterfall from 100 ms per step in the plain trainer to 40.0 ms after 2 changes, 2.50"
        " times as fast. In order: channels last 1.25 times, faster, batched transforms 2.00"
        " times, faster."
    )
    plots.save(figure, io.BytesIO(), "png")


def test_speed_up_without_a_green_gate_is_hatched_and_called_unproven() -> None:
    add("channels last", 100, 80)
    add("a Triton norm", 80, 20, gate=None)
    figure = ledger.waterfall()
    assert [hatch for _, _, hatch in bars(figure)] == ["", "", "///", "///"]
    assert "4.00 times, unproven\n(95 % interval 4.00 to 4.00)" in words_in(figure)
    assert "20.0 ms, unproven" in words_in(figure)
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["faster", "unproven"]
    assert "after 2 changes, unproven, 5.00 times as fast" in figure.alternative_text


def test_a_modelled_ladder_is_grey_and_has_no_interval() -> None:
    add("loaders", 56.4, 20.2, by="modelled")
    add("channels last", 20.2, 24.7, by="modelled")
    figure = ledger.waterfall(["loaders", "channels last"])
    assert words_in(figure)[:3] == [
        "56 ms",
        "2.8 times, faster in the model",
        "+4.5 ms: 0.82 times, slower in the model",
    ]
    assert (
        "from 56 ms per step in the plain trainer to 25 ms after 2 changes, 2.3 times as fast in"
        " the model" in (figure.alternative_text)
    )
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["faster in the model", "slower in the model"]
    assert len(bars(ledger.waterfall())) == 3  # what was slower in the model is left out, too
    add("a larger batch", 24.7, 10, gate=None, by="modelled")
    last = ledger.waterfall(["loaders", "channels last", "a larger batch"])
    colours = {patch.get_facecolor() for box in last.axes[0].containers for patch in box}
    assert len(colours) == 1


def test_a_loss_without_a_gate_is_a_loss_and_the_end_stays_unproven() -> None:
    add("channels last", 100, 80)
    add("a larger batch", 80, 100, gate=None)
    figure = ledger.waterfall(["channels last", "a larger batch"])
    assert [hatch for _, _, hatch in bars(figure)] == ["", "", "\\\\\\", "///"]
    assert "+20.0 ms: 0.80 times, slower\n(95 % interval 0.80 to 0.80)" in words_in(figure)
    assert "100 ms, unproven" in words_in(figure)


def test_what_did_not_help_is_left_out_unless_it_is_asked_for() -> None:
    add("channels last", 100, 80)
    add("prints", 80, 86)
    add("a lamp", 86, 86)
    assert len(bars(ledger.waterfall())) == 3
    figure = ledger.waterfall(["channels last", "prints", "a lamp"])
    assert [hatch for _, _, hatch in bars(figure)] == ["", "", "\\\\\\", "...", ""]


def test_refusals() -> None:
    with pytest.raises(CourseError, match="no experiment to draw"):
        ledger.waterfall()
    add("channels last", 100, 80)
    add("a larger batch", 10, 8, per="image")
    with pytest.raises(CourseError, match="per step, others per image"):
        ledger.waterfall()
    assert len(bars(ledger.waterfall(["a larger batch"]))) == 3


def test_changes_that_do_not_build_on_each_other_are_refused() -> None:
    add("channels last", 100, 80)
    add("batched transforms", 84, 50)  # a few percent between two days are no jump
    assert "2.00 times as fast" in ledger.waterfall().alternative_text
    add("fused", 100, 50)
    with pytest.raises(CourseError, match="fused does not begin where batched transforms ended"):
        ledger.waterfall()
