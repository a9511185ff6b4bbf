"""The figure of rpd's `ktop` trap: kernels by time on the GPU beside the time of their launch calls on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, duration_text, legend_above, new_figure, settings

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Origin

SHOWN = 5
"""Kernels from the top of each ranking in the figure."""

_COLUMNS = {
    "gpu_ns": (style.BLUE, "o", "time on the GPU"),
    "launch_ns": (style.VERMILLION, "^", "launch calls on the host (ktop)"),
}
"""Column -> colour, marker and name of its points."""

_ROOM = 150.0
"""The axis goes on by this factor beyond the first and the last point, for the texts beside them."""


def plot_two_rankings(table: pd.DataFrame, origin: Origin | str, title: str | None = None) -> TidyFigure:
    """Two points for each of the first kernels of both rankings, on one axis: times differ by a factor of 1,000.

    table -- a row for each kernel: short_name, gpu_ns and launch_ns. Raises ValueError for a table without rows.
    """
    if not len(table):
        raise ValueError("there is nothing to plot: the file has no kernel with a launch record")
    places = {column: table[column].rank(ascending=False, method="first").astype(int) for column in _COLUMNS}
    shown = table[(places["gpu_ns"] <= SHOWN) | (places["launch_ns"] <= SHOWN)].sort_values("gpu_ns", ascending=False)
    with settings():
        figure, (axes,) = new_figure(str(origin), height=1.5 + 0.36 * len(shown), title=title)
        times = shown[list(_COLUMNS)] / 1e6
        axes.hlines(range(len(shown)), times.min(axis=1), times.max(axis=1), color=style.GREY, zorder=1)
        for column, (colour, marker, name) in _COLUMNS.items():
            axes.plot(times[column], range(len(shown)), marker, color=colour, markersize=8, label=name)
            longer = times[column] >= times.drop(columns=column).iloc[:, 0]
            _label(axes, shown[column], places[column], longer)
        axes.set_yticks(range(len(shown)), shown["short_name"], parse_math=False)
        axes.set(xscale="log", xlim=(times.min(axis=None) / _ROOM, times.max(axis=None) * _ROOM), xlabel="time")
        axes.xaxis.set_major_formatter(lambda ms, _: duration_text(1e6 * ms))
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        legend_above(axes, axes.get_lines())
    first, launched = (table.loc[places[column].idxmin()] for column in _COLUMNS)
    figure.alternative_text = (
        f"Two points for each of {len(shown)} kernels of {len(table)}, by time on the GPU and by time of their launch "
        f"calls. {first.short_name} takes {duration_text(first.gpu_ns)} on the GPU, place 1, and is at place "
        f"{places['launch_ns'][first.name]} by launch calls, where {launched.short_name} comes first with "
        f"{duration_text(launched.launch_ns)}."
    )
    return figure


def _label(axes: Axes, times: pd.Series, places: pd.Series, longer: pd.Series) -> None:
    """The time and the place beside each point: behind the longer of the two, before the shorter."""
    for row, (index, time) in enumerate(times.items()):
        text, side = f"{duration_text(time)}, place {places[index]}", 1 if longer[index] else -1
        place = {"xytext": (8 * side, 0), "textcoords": "offset points", "ha": "left" if side > 0 else "right"}
        axes.annotate(text, (time / 1e6, row), va="center_baseline", **place)
