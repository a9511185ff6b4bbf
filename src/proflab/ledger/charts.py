"""Charts of what a learner found out: the way from the plain trainer to the final one, and how well they guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from proflab.errors import CourseError
from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, add_legend, axis_unit, duration_text, new_figure, settings

if TYPE_CHECKING:
    from proflab.ledger.entries import Experiment
    from proflab.predictions import Comparison

VERDICT_LOOK: Mapping[str, tuple[str, str]] = {
    "faster": (style.BLUISH_GREEN, ""),
    "unproven": (style.YELLOW, "///"),
    "slower": (style.VERMILLION, "\\\\\\"),
    "undecided": (style.GREY, "..."),
}
"""Verdict -> colour and hatch."""

TOTAL_LOOK = (style.BLUE, "")
MARKERS = "osD^vP<X>hd"
COLOURS = (style.BLUE, style.ORANGE, style.BLUISH_GREEN, style.REDDISH_PURPLE, style.VERMILLION, style.SKY_BLUE)
CLOSE = 2.0
"""A prediction within this factor counts as close."""

LARGEST_JUMP = 0.1
"""Relative difference between where one experiment ended and the next began that can be the machine's day. Beyond
it the two did not build on each other, such as two changes that were each tried on the plain trainer."""


def waterfall(experiments: Sequence[Experiment], title: str | None = None) -> TidyFigure:
    """Bars from each experiment's time before to its time after, between the first before and the last after.

    A speed-up whose correctness gate is not green is hatched and called unproven, and so is a final time that
    contains one. Where an experiment does not begin where the one above ended, the dashed line between them is not
    straight down; if they differ by more than LARGEST_JUMP, no overall speed-up is stated.
    Raises CourseError for no experiments and for times per step and per image in one chart.
    """
    if not experiments:
        raise CourseError("there is no experiment to draw that was faster or is unproven; add one with ledger.add")
    if len({experiment.per for experiment in experiments}) > 1:
        raise CourseError("some experiments are per step, others per image; choose some by name: waterfall([...])")
    spans = [(one.speed_up.before_ns, one.speed_up.after_ns) for one in experiments]
    longest = max(max(span) for span in spans)
    unit, size = axis_unit(longest)
    origin = "; ".join(dict.fromkeys(experiment.origin for experiment in experiments))
    with settings():
        figure, (axes,) = new_figure(origin, height=1.9 + 0.55 * (len(spans) + 2), title=title)
        _total(axes, 0, spans[0][0], size, TOTAL_LOOK, "")
        for place, (one, span) in enumerate(zip(experiments, spans, strict=True), start=1):
            _step(axes, place, one, span, size)
        last = len(spans) + 1
        _total(axes, last, spans[-1][1], size, *_final_look(experiments, spans))
        _links(axes, spans, size)
        axes.set_yticks(range(last + 1), ["plain trainer", *(_cut(one.change) for one in experiments), "final"])
        axes.set_ylim(last + 0.6, -0.6)
        axes.set_xlim(0, 1.5 * longest / size)  # room for the text at the longest bar
        axes.set_xlabel(f"median time per {experiments[0].per}, {unit}")
        axes.tick_params(axis="y", length=0)
        add_legend(axes, {name: VERDICT_LOOK[name] for name in VERDICT_LOOK if any(_is(name, experiments))})
    figure.alternative_text = _waterfall_words(experiments, spans)
    return figure


def _is(verdict: str, experiments: Sequence[Experiment]) -> list[bool]:
    return [one.verdict == verdict for one in experiments]


def _final_look(experiments: Sequence[Experiment], spans: Sequence[tuple[int, int]]) -> tuple[tuple[str, str], str]:
    """Look of the last bar and a remark: a chain is only as proven as its parts."""
    remark = "of this experiment alone" if _jump(experiments, spans) else ""
    if any(_is("unproven", experiments)):
        return (style.BLUE, VERDICT_LOOK["unproven"][1]), ", ".join(filter(None, ["unproven", remark]))
    return TOTAL_LOOK, remark


def _jump(experiments: Sequence[Experiment], spans: Sequence[tuple[int, int]]) -> str:
    """The first experiment that does not begin where the one above it ended; "" if all do."""
    for one, (_, end), (begin, _) in zip(experiments[1:], spans, spans[1:], strict=False):
        if abs(begin - end) > LARGEST_JUMP * max(begin, end):
            return one.change
    return ""


def _total(axes: Axes, place: int, time_ns: int, size: float, look: tuple[str, str], remark: str) -> None:
    _bar(axes, place, (0, time_ns), size, look)
    _beside(axes, place, time_ns / size, ", ".join(filter(None, [duration_text(time_ns), remark])))


def _step(axes: Axes, place: int, one: Experiment, span: tuple[int, int], size: float) -> None:
    _bar(axes, place, span, size, VERDICT_LOOK[one.verdict])
    found = one.speed_up
    text = f"{found.ratio:.2f} times ({found.low:.2f} to {found.high:.2f}), {one.verdict}"
    _beside(axes, place, max(span) / size, text)


def _bar(axes: Axes, place: int, span: tuple[float, float], size: float, look: tuple[str, str]) -> None:
    colour, hatch = look
    low, high = min(span) / size, max(span) / size
    axes.barh(place, high - low, left=low, height=0.6, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)


def _beside(axes: Axes, place: int, x: float, text: str) -> None:
    axes.annotate(text, (x, place), xytext=(7, 0), textcoords="offset points", va="center_baseline", fontsize=10)


def _links(axes: Axes, spans: Sequence[tuple[int, int]], size: float) -> None:
    """From where a bar ends to where the next begins."""
    ends = [spans[0][0], *(after for _, after in spans)]
    begins = [*(before for before, _ in spans), spans[-1][1]]
    for place, (end, begin) in enumerate(zip(ends, begins, strict=True)):
        line = [end / size, begin / size]
        axes.plot(line, [place + 0.3, place + 0.7], color=style.MUTED_TEXT, linewidth=1, linestyle="--")


def _waterfall_words(experiments: Sequence[Experiment], spans: Sequence[tuple[int, int]]) -> str:
    begin, end = spans[0][0], spans[-1][1]
    listed = ", ".join(f"{one.change} {one.speed_up.ratio:.2f} times, {one.verdict}" for one in experiments)
    proof = " unproven," if any(_is("unproven", experiments)) else ""
    jump = _jump(experiments, spans)
    overall = f"{begin / end:.2f} times as fast"
    if jump:
        overall = f"but no overall speed-up, since {jump} did not begin where the change above it ended"
    return (
        f"Waterfall from {duration_text(begin)} per {experiments[0].per} in the plain trainer to {duration_text(end)} "
        f"after {len(experiments)} change{'s' if len(experiments) > 1 else ''},{proof} {overall}. In order: {listed}."
    )


def _cut(name: str, longest: int = 34) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def calibration(comparisons: Sequence[Comparison], title: str | None = None) -> TidyFigure:
    """Predicted against found on logarithmic axes, a marker for each lesson; on the diagonal the guess was right.

    Words, zero, negative numbers and guesses made after the result have no place in it; the text alternative counts
    them. Raises CourseError if nothing is left.
    """
    shown = [one for one in comparisons if one.ratio is not None and not one.late]
    if not shown:
        raise CourseError(
            "no prediction in numbers has been compared with its result yet; predict(...) before a measurement and "
            "reveal(...) after it"
        )
    values = [value for one in shown for value in (one.predicted, one.found)]
    low, high = min(values) / 3, max(values) * 3
    with settings():
        figure, (axes,) = new_figure(_origin_of(shown), height=6.2, title=title)
        _guides(axes, low, high)
        lessons = list(dict.fromkeys(sorted(one.lesson for one in shown)))
        for place, lesson in enumerate(lessons):
            _points(axes, [one for one in shown if one.lesson == lesson], lesson, place)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axes.set_xlabel("found, in the unit of the prediction")
        axes.set_ylabel("predicted")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(6, len(lessons)), borderaxespad=0.3)
    figure.alternative_text = _calibration_words(shown, len(comparisons) - len(shown))
    return figure


def _guides(axes: Axes, low: float, high: float) -> None:
    """The diagonal, and the band of guesses that were close."""
    ends = [low, high]
    axes.plot(ends, ends, color=style.TEXT, linewidth=1.2, zorder=1)
    for factor in (CLOSE, 1 / CLOSE):
        axes.plot(ends, [end * factor for end in ends], color=style.MUTED_TEXT, linewidth=1, linestyle="--", zorder=1)
    axes.annotate("above the line: guessed too high", (0.02, 0.95), xycoords="axes fraction", color=style.MUTED_TEXT)
    axes.annotate(
        f"below it: too low; dashed: {CLOSE:g} times off", (0.98, 0.04), xycoords="axes fraction", ha="right",
        color=style.MUTED_TEXT,
    )  # fmt: skip


def _points(axes: Axes, comparisons: Sequence[Comparison], lesson: str, place: int) -> None:
    axes.scatter(
        [one.found for one in comparisons],
        [one.predicted for one in comparisons],
        s=60,
        marker=MARKERS[place % len(MARKERS)],
        color=COLOURS[place % len(COLOURS)],
        edgecolor=style.TEXT,
        linewidth=0.6,
        label=f"lesson {lesson}",
        zorder=2,
    )


def _origin_of(comparisons: Sequence[Comparison]) -> str:
    stated = list(dict.fromkeys(one.origin for one in comparisons if one.origin))
    silent = sum(not one.origin for one in comparisons)
    parts = ["predicted: your guesses", *(f"found: {origin}" for origin in stated)]
    if silent:
        parts.append(f"found: {silent} results that state no origin")
    return "; ".join(parts)


def _calibration_words(shown: Sequence[Comparison], left_out: int) -> str:
    close = sum(max(one.ratio, 1 / one.ratio) <= CLOSE for one in shown)
    worst = max(shown, key=lambda one: max(one.ratio, 1 / one.ratio))
    off = max(worst.ratio, 1 / worst.ratio)
    side = "high" if worst.ratio > 1 else "low"
    rest = f"; {left_out} words, zeros, negative numbers or late guesses are left out" if left_out else ""
    return (
        f"{len(shown)} predictions against their results on logarithmic axes, {close} of them within a factor of "
        f"{CLOSE:g}{rest}. The farthest off is {worst.id} ({worst.what or 'no description'}), "
        f"{off:.3g} times too {side}."
    )
