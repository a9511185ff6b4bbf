"""The chart of the clinic: what each patient's step has more or less of than the healthy one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, new_figure, settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from proflab.parts.clinic import Patient


_LINEAR_MS = 1.0
"""The scale is linear up to here and logarithmic beyond, so that 0 and both signs have a place."""


def change_chart(patients: Sequence[Patient], title: str | None = None) -> TidyFigure:
    """One panel per patient, all with one scale: the change of every part of the step, in ms."""
    origin = str(patients[0].profile.meta["origin"])
    least = min(0, *(patient.changes.min() for patient in patients))
    most = max(0, *(patient.changes.max() for patient in patients))
    with settings():
        figure, panels = new_figure(origin, height=2.1 * len(patients) + 0.6, rows=len(patients), title=title)
        for axes, patient in zip(panels, patients, strict=True):
            _draw(axes, patient)
            axes.set_xlim(1.5 * min(least, -_LINEAR_MS), 6 * max(most, _LINEAR_MS))  # numbers stand right of the bars
        panels[-1].set_xlabel(f"patient minus healthy run, ms per step (logarithmic beyond {_LINEAR_MS:g})")
    found = []
    for patient in patients:
        part = patient.changes.abs().idxmax()
        found.append(f"{patient.letter}: {_label(part)} {patient.changes[part]:+,.1f} ms")
    figure.alternative_text = f"Bars for each part of the step. The longest are {', '.join(found)}."
    return figure


def _draw(axes: Axes, patient: Patient) -> None:
    axes.set_xscale("symlog", linthresh=_LINEAR_MS)
    axes.xaxis.set_major_formatter("{x:,g}")
    values = patient.changes
    for place, (part, value) in enumerate(values.items()):
        colour, hatch = style.PART_LOOK[part]
        axes.barh(place, value, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)
        text = f" {value:+,.2f}" if abs(value) >= 0.005 else " 0"
        axes.text(max(value, 0), place, text, va="center_baseline")
    axes.set_yticks(range(len(values)), [_label(part) for part in values.index])
    axes.invert_yaxis()
    axes.axvline(0, color=style.TEXT, linewidth=0.8)
    axes.set_title(f"patient {patient.letter}", loc="left", fontsize=11)


def _label(part: str) -> str:
    return style.PART_LABELS.get(part, part.replace("_", " "))
