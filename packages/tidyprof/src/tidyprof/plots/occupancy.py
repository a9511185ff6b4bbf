"""A plot of the busy time per device, compared with the sum of durations."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import (
    TidyFigure,
    duration_text,
    new_figure,
    origin_of,
    place_label,
    require,
    settings,
)

_ROOM_PERCENT = 40
"""Minimum length of a bar in percent for its name to be inside the bar."""


def busy(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Plot the share of time when each device was busy, and the sum of durations below it.

    The sum isn't a share of time because it counts overlapping events several times. `table` comes
    from `analyses.busy`. Raises ValueError if the table is empty or has no origin.
    """
    require(table, ["rank", "device", "span_ns", "busy_percent", "sum_percent"], "busy")
    origin = origin_of(table)
    with settings():
        figure, (axes,) = new_figure(origin, height=1.6 + 0.9 * len(table), title=title)
        for position, row in enumerate(table.itertuples()):
            _busy_bar(axes, position - 0.19, row.busy_percent, "busy (union)", style.BLUE)
            _busy_bar(axes, position + 0.19, row.sum_percent, "sum of durations", style.GREY)
        axes.axvline(100, color=style.TEXT, linewidth=1.2, linestyle="--", zorder=1)
        labels = [place_label(row.rank, row.device, len(table) > 1) for row in table.itertuples()]
        axes.set_yticks(range(len(table)), labels)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(table) - 0.45, -0.55)
        axes.set_xlim(0, 1.3 * max(100, table["sum_percent"].max()))
        axes.set_xlabel("share of the time between the first and last device event, %")
    figure.alternative_text = _busy_words(table)
    return figure


def _busy_words(table: pd.DataFrame) -> str:
    several = len(table) > 1
    first = table.iloc[0]
    begin = (
        f"Bars for {len(table)} device{'s' if several else ''} over"
        f" {duration_text(table['span_ns'].max())}: busy for {first['busy_percent']:.0f}% of the"
        f" time{' on the first device' if several else ''}, but the durations add up to"
        f" {first['sum_percent']:.0f}%."
    )
    if not several:
        surplus = first["sum_percent"] - first["busy_percent"]
        return f"{begin} The sum is larger by {surplus:.0f} percentage points."
    least = table.loc[table["busy_percent"].idxmin()]
    where = place_label(least["rank"], least["device"], True)
    return f"{begin} The least busy device is {where} with {least['busy_percent']:.0f}%."


def _busy_bar(axes: Axes, y: float, share: float, name: str, color: str) -> None:
    """Draw a bar. The bar's name is inside the bar if it fits, and otherwise after the bar.

    The name is never on the line at 100%.
    """
    axes.barh(y, share, height=0.34, color=color, edgecolor=style.TEXT, linewidth=0.6)
    inside = share > _ROOM_PERCENT
    place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center_baseline"}
    ground = style.text_on(color if inside else style.GROUND)
    axes.annotate(f"{name} {share:.0f}%", (0 if inside else share, y), color=ground, **place)
