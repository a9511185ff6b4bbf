"""The chart of the clinic: what each patient's step has more or less of than the healthy one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, new_figure, settings

if TYPE_CHECKING:
    from proflab.parts.clinic import Patient


def change_chart(patients: Sequence[Patient], title: str | None = None) -> TidyFigure:
    """One panel per patient, each with its own scale: the change of every part of the step, in ms."""
    origin = str(patients[0].profile.meta["origin"])
    with settings():
        figure, panels = new_figure(origin, height=2.1 * len(patients) + 0.6, rows=len(patients), title=title)
        for axes, patient in zip(panels, patients, strict=True):
            values = patient.changes
            span = max(values.max(), 0) - min(values.min(), 0) or 1
            for place, (part, value) in enumerate(values.items()):
                colour, hatch = style.PART_LOOK[part]
                axes.barh(place, value, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)
                text = f" {value:+,.2f}" if abs(value) >= 0.005 else " 0"
                axes.text(max(value, 0) + 0.005 * span, place, text, va="center_baseline")
            axes.set_yticks(range(len(values)), [_label(part) for part in values.index])
            axes.invert_yaxis()
            axes.set_xlim(min(values.min(), 0) - 0.03 * span, max(values.max(), 0) + 0.12 * span)
            axes.axvline(0, color=style.TEXT, linewidth=0.8)
            axes.set_title(f"patient {patient.letter}", loc="left", fontsize=style.POINTS)
        panels[-1].set_xlabel("patient minus healthy run, ms per step (each panel has its own scale)")
    found = []
    for patient in patients:
        part = patient.changes.abs().idxmax()
        found.append(f"{patient.letter}: {_label(part)} {patient.changes[part]:+,.1f} ms")
    figure.alternative_text = f"Bars for each part of the step. The longest are {', '.join(found)}."
    return figure


def _label(part: str) -> str:
    return style.PART_LABELS.get(part, part.replace("_", " "))
