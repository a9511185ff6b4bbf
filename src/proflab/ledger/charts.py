"""The chart of a ledger: the way from the plain trainer to the final one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from proflab.errors import CourseError
from proflab.ledger.entries import Experiment, time_text, two_digits
from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, add_legend, axis_unit, new_figure, settings

VERDICT_LOOK = {
    "faster": (style.BLUISH_GREEN, ""),
    "faster in the model": (style.GREY, ""),
    "unproven": (style.YELLOW, "///"),
    "slower": (style.VERMILLION, "\\\\\\"),
    "slower in the model": (style.GREY, "\\\\\\"),
    "undecided": (style.GREY, "..."),
}
"""Verdict -> colour and hatch. Modelled times are grey, whatever the verdict."""

LARGEST_JUMP = 0.1
"""Largest relative difference, between the end of one experiment and the begin of the next, that
may come from the machine's own variation. Beyond it the two did not build on each other, as if each
change was tried on the plain trainer.
"""


def waterfall(experiments: Sequence[Experiment], title: str | None = None) -> TidyFigure:
    """Bars from each experiment's time before to its time after, between the first before and the
    last after.

    A speed-up without a green correctness gate is hatched and called unproven, and so is the final
    time after any such change. The text of a bar that makes the time longer begins with a plus.
    Raises CourseError for no experiments, for times per step and per image in one chart, and for
    changes that did not build on each other.
    """
    _refuse(experiments)
    spans = [(one.speed_up.before_ns, one.speed_up.after_ns) for one in experiments]
    proven = all(one.gate.green for one in experiments)
    longest = max(max(span) for span in spans)
    unit, size = axis_unit(longest)
    first, last = experiments[0], experiments[-1]
    begin, end = (style.GREY if one.modelled else style.BLUE for one in (first, last))
    rows = [
        ("plain trainer", (0, spans[0][0]), (begin, ""), time_text(spans[0][0], first.modelled))
    ]
    rows += [
        (one.change, span, _look(one), _text(one))
        for one, span in zip(experiments, spans, strict=True)
    ]
    final = time_text(spans[-1][1], last.modelled) + ("" if proven else ", unproven")
    rows.append(
        ("final", (0, spans[-1][1]), (end, "" if proven else VERDICT_LOOK["unproven"][1]), final)
    )
    origin = "; ".join(dict.fromkeys(experiment.origin for experiment in experiments))
    with settings():
        figure, (axes,) = new_figure(origin, height=1.9 + 0.55 * len(rows), title=title)
        for place, (_, span, look, text) in enumerate(rows):
            _bar(axes, place, span, size, look, text)
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, 1.7 * longest / size)  # room for the text at the longest bar
        axes.set_xlabel(f"median time per {experiments[0].per}, {unit}")
        axes.tick_params(axis="y", length=0)
        seen = {one.verdict: _look(one) for one in experiments}
        add_legend(axes, {name: seen[name] for name in VERDICT_LOOK if name in seen})
    figure.alternative_text = _words(experiments, proven)
    return figure


def _refuse(experiments: Sequence[Experiment]) -> None:
    if not experiments:
        raise CourseError(
            "there is no experiment to draw that was faster or is unproven; add one with ledger.add"
        )
    if len({experiment.per for experiment in experiments}) > 1:
        raise CourseError(
            "some experiments are per step, others per image; choose some by name: waterfall([...])"
        )
    for above, one in pairwise(experiments):
        end, begin = above.speed_up.after_ns, one.speed_up.before_ns
        if abs(begin - end) > LARGEST_JUMP * max(begin, end):
            raise CourseError(
                f"{one.change} does not begin where {above.change} ended: these do not add up;"
                " choose some"
            )


def _look(one: Experiment) -> tuple[str, str]:
    colour, hatch = VERDICT_LOOK[one.verdict]
    return (style.GREY if one.modelled else colour), hatch


def _text(one: Experiment) -> str:
    """The text at a bar: the time that it adds, if it does, the speed-up, the verdict, and below
    them the interval.
    """
    before, after = one.speed_up.before_ns, one.speed_up.after_ns
    added = f"+{time_text(after - before, one.modelled)}: " if after > before else ""
    ratio, _, interval = one.interval.partition(" (")
    return f"{added}{ratio}, {one.verdict}" + (f"\n({interval}" if interval else "")


def _bar(
    axes: Axes, place: int, span: tuple[int, int], size: float, look: tuple[str, str], text: str
) -> None:
    colour, hatch = look
    low, high = min(span) / size, max(span) / size
    axes.barh(
        place,
        high - low,
        left=low,
        height=0.6,
        color=colour,
        hatch=hatch,
        edgecolor=style.TEXT,
        linewidth=0.6,
    )
    axes.annotate(
        text, (high, place), xytext=(7, 0), textcoords="offset points", va="center_baseline"
    )


def _words(experiments: Sequence[Experiment], proven: bool) -> str:
    first, last = experiments[0], experiments[-1]
    begin, end = first.speed_up.before_ns, last.speed_up.after_ns
    modelled = any(one.modelled for one in experiments)
    whole = (
        f"{two_digits(begin / end)} times as fast in the model"
        if modelled
        else f"{begin / end:.2f} times as fast"
    )
    listed = ", ".join(
        (
            f"{one.change} {one.interval.partition(' (')[0]}, {one.verdict}"
            if one.modelled
            else f"{one.change} {one.speed_up.ratio:.2f} times, {one.verdict}"
        )
        for one in experiments
    )
    return (
        f"Waterfall from {time_text(begin, first.modelled)} per {first.per} in the plain trainer to"
        f" {time_text(end, last.modelled)} after {len(experiments)}"
        f" change{'s' if len(experiments) > 1 else ''},{'' if proven else ' unproven,'} {whole}. In"
        f" order: {listed}."
    )
