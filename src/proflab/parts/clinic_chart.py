"""The chart of the clinic: what each patient's step has more or less of than the healthy one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidyprof.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from proflab.parts.clinic import Patient
    from tidyprof.plots import TidyFigure


def change_chart(patients: Sequence[Patient], title: str | None = None) -> TidyFigure:
    """One panel per patient, each with its own scale: the change of every part of the step, in ms.

    Raises ValueError without patients.
    """
    from tidyprof.plots.figure import new_figure, origin_of, settings

    if not patients:
        raise ValueError("there is no patient to draw")
    with settings():
        figure, panels = new_figure(
            origin_of(patients[0].changes), height=2.1 * len(patients) + 0.6, rows=len(patients), title=title
        )
        for axes, patient in zip(panels, patients, strict=True):
            _panel(axes, patient)
        panels[-1].set_xlabel("patient minus healthy run, ms per step (each panel has its own scale)")
    figure.alternative_text = _words(patients)
    return figure


def _panel(axes: Axes, patient: Patient) -> None:
    table = patient.changes
    values = table["change_ns"] / 1e6
    looks = [style.PART_LOOK[part] for part in table["part"]]
    places = range(len(table))
    bars = axes.barh(places, values, color=[colour for colour, _ in looks], edgecolor=style.TEXT, linewidth=0.6)
    for bar, (_, hatch), place, value in zip(bars, looks, places, values, strict=True):
        bar.set_hatch(hatch)
        axes.annotate(
            f"{value:+,.2f}" if abs(value) >= 0.005 else "0",
            (max(value, 0), place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center_baseline",
        )
    axes.set_yticks(places, [_label(part) for part in table["part"]])
    axes.invert_yaxis()
    span = max(values.max(), 0) - min(values.min(), 0) or 1
    axes.set_xlim(min(values.min(), 0) - 0.03 * span, max(values.max(), 0) + 0.12 * span)
    axes.axvline(0, color=style.TEXT, linewidth=0.8)
    axes.set_title(f"patient {patient.letter}", loc="left", fontsize=11)


def _label(part: str) -> str:
    return style.PART_LABELS.get(part, part.replace("_", " "))


def _words(patients: Sequence[Patient]) -> str:
    found = []
    for patient in patients:
        part, change_ms = patient.largest_change
        found.append(f"{patient.letter}: {_label(part)} {change_ms:+,.1f} ms")
    return (
        f"Bars of what each part of the step takes more or less than in the healthy run, for {len(found)} patients. "
        f"The largest change of each is {'; '.join(found)}."
    )
