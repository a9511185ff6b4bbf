"""The figure of rpd's `ktop` trap: kernels by time on the GPU beside the time of their launch calls on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, axis_unit, duration_text, new_figure, settings

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Origin

SHOWN = 5
"""Kernels from the top of each ranking in the figure."""

_COLUMNS = {
    "gpu_ns": (style.BLUE, "", "time on the GPU"),
    "launch_ns": (style.VERMILLION, "///", "launch calls on the host (ktop)"),
}
"""Column -> colour, hatch and title of its bars."""


def plot_two_rankings(table: pd.DataFrame, origin: Origin | str, title: str | None = None) -> TidyFigure:
    """Bars for the first kernels of both rankings.

    table -- a row for each kernel: short_name, gpu_ns and launch_ns. Raises ValueError for a table without rows.
    """
    if not len(table):
        raise ValueError("there is nothing to plot: the file has no kernel with a launch record")
    places = {column: table[column].rank(ascending=False, method="first").astype(int) for column in _COLUMNS}
    shown = table[(places["gpu_ns"] <= SHOWN) | (places["launch_ns"] <= SHOWN)].sort_values("gpu_ns", ascending=False)
    with settings():
        figure, (left,) = new_figure(str(origin), height=1.5 + 0.42 * len(shown), title=title)
        left.remove()
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, column in ((left, "gpu_ns"), (right, "launch_ns")):
            _bars(axes, shown[column], places[column], *_COLUMNS[column])
        left.set_yticks(range(len(shown)), shown["short_name"], parse_math=False)
        left.invert_yaxis()
    first, launched = (table.loc[places[column].idxmin()] for column in _COLUMNS)
    figure.alternative_text = (
        f"Two bars for each of {len(shown)} kernels of {len(table)}, by time on the GPU and by time of their launch "
        f"calls. {first.short_name} takes {duration_text(first.gpu_ns)} on the GPU, place 1, and is at place "
        f"{places['launch_ns'][first.name]} by launch calls, where {launched.short_name} comes first with "
        f"{duration_text(launched.launch_ns)}."
    )
    return figure


def _bars(axes: Axes, times: pd.Series, places: pd.Series, colour: str, hatch: str, title: str) -> None:
    unit, size = axis_unit(times.max())
    axes.barh(range(len(times)), times / size, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)
    for row, (index, time) in enumerate(times.items()):
        text, place = f"{duration_text(time)}, place {places[index]}", (time / size, row)
        axes.annotate(text, place, (5, 0), textcoords="offset points", va="center_baseline")
    axes.set_xlim(0, times.max() / size * 2.1)  # room for the text at the end of the longest bar
    axes.set_title(title, fontsize=style.POINTS)
    axes.set_xlabel(unit)
    axes.tick_params(axis="y", length=0)
