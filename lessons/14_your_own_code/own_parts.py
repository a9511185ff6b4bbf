"""Draw the parts of a step under the names that a script gave them."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from tidyprof.plots import style
from tidyprof.plots.bars import stack
from tidyprof.plots.figure import TidyFigure, axis_unit, duration_text, new_figure, settings

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Origin

_OTHER_LOOKS = (
    (style.REDDISH_PURPLE, "\\\\\\"),
    (style.ORANGE, "xx"),
    (style.YELLOW, "///"),
    (style.GREY, "..."),
)
"""Color and hatch of parts that the course has no style for."""


def plot_own_parts(
    table: pd.DataFrame, origin: Origin | str, title: str | None = None
) -> TidyFigure:
    """Return a figure with a stacked bar for each row, and the largest parts first.

    table -- a row for each bar, named in its index, and a column for each part, in ms. A part that
             a bar lacks is <NA>.
    """
    # All bars have the same order, so that readers can compare parts. Plots expect times in ns.
    ordered = table.fillna(0)[table.sum().sort_values(ascending=False, kind="stable").index] * 1e6
    spare = cycle(_OTHER_LOOKS)
    looks = {part: style.PART_LOOK.get(part) or next(spare) for part in ordered.columns}
    totals = ordered.sum(axis=1)
    unit, size = axis_unit(totals.max())
    with settings():
        figure, (axes,) = new_figure(str(origin), height=1.7 + 0.45 * len(ordered), title=title)
        stack(
            axes,
            ordered,
            looks,
            [*ordered.index],
            [duration_text(total) for total in totals],
            size,
            room=1.12,
        )
        axes.set_xlabel(f"time, {unit}")
    said = [
        f"{run}: {duration_text(total)}, the largest part is {parts.idxmax()} with"
        f" {100 * parts.max() / total:.0f}%"
        for (run, parts), total in zip(ordered.iterrows(), totals, strict=True)
    ]
    figure.alternative_text = f"Stacked bars of a step's parts. {'; '.join(said)}."
    return figure
