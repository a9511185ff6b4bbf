"""Power against busy: where a GPU stands says more than either number alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from tidyprof.plots import style

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.plots import TidyFigure

LOOKS = (
    (style.BLUE, "o"),
    (style.VERMILLION, "s"),
    (style.BLUISH_GREEN, "^"),
    (style.REDDISH_PURPLE, "D"),
    (style.BLACK, "P"),
)
"""Colour and marker of each run in order."""

NEAR_PERCENT = 60
"""Labels of points to the right of this stand to the left of them, so that they stay inside."""


def power_map(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One point per run and GPU: busy share to the right, power upwards.

    table has the columns run, device, busy_percent and power_watt, and limit_watt with limit_from: each limit that is
    known is drawn as a line that says who states it; see `watched_runs.one_table`. Raises ValueError for a table that
    is empty or does not state its origin.
    """
    from tidyprof.plots.figure import new_figure, origin_of, settings

    if not len(table):
        raise ValueError("there is no run to draw")
    origin, table = origin_of(table), table.reset_index(drop=True)
    with settings():
        figure, (axes,) = new_figure(origin, 4.6, title=title)
        for place, (run, rows) in enumerate(table.groupby("run", sort=False)):
            colour, marker = LOOKS[place % len(LOOKS)]
            axes.scatter(rows["busy_percent"], rows["power_watt"], s=70, color=colour, marker=marker, zorder=3)
            for where in _groups(rows):
                _label(axes, str(run) if len(rows) == 1 else f"{run}, GPU {_numbers(where)}", where, place % 2 == 1)
        for limit, rows in table.groupby("limit_watt"):
            several = len(rows) < table["limit_watt"].notna().sum()
            axes.axhline(limit, color=style.TEXT, linewidth=1, linestyle="--")
            axes.annotate(_limit_words(rows, several), (0, limit), xytext=(4, 4), textcoords="offset points")
        top = table[["power_watt", "limit_watt"]].max().max()
        axes.set(xlim=(-2, 102), ylim=(0, 1.12 * top), xlabel="GPU busy, % of time", ylabel="power, W")
    figure.alternative_text = _words(table)
    return figure


def _limit_words(rows: pd.DataFrame, several: bool) -> str:
    """Who states the limit of these GPUs, and of which runs it is where there are several limits."""
    of = f" of {', '.join(rows['run'].unique())}" if several else ""
    return f"power limit{of}, by {' and '.join(rows['limit_from'].unique())}"


def _groups(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Points that lie on each other share a label."""
    rounded = (rows["busy_percent"] / 10).round()
    return [own for _, own in rows.groupby(rounded)]


def _numbers(own: pd.DataFrame) -> str:
    return ", ".join(str(device) for device in own["device"])


def _label(axes: Axes, text: str, own: pd.DataFrame, below: bool) -> None:
    """Beside the points, on the side where there is room; every other run below its points, as neighbours are near."""
    y = own["power_watt"].mean()
    left = own["busy_percent"].mean() > NEAR_PERCENT
    x = own["busy_percent"].min() if left else own["busy_percent"].max()
    axes.annotate(
        text,
        (x, y),
        (-9 if left else 9, -5 if below else 5),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top" if below else "bottom",
    )


def _words(table: pd.DataFrame) -> str:
    """The busiest GPU with its power, then the one with the most power."""
    busiest, hottest = table.loc[table["busy_percent"].idxmax()], table.loc[table["power_watt"].idxmax()]
    return (
        f"Points of {len(table)} GPUs in {table['run'].nunique()} runs: the busiest, in {busiest['run']}, is busy for "
        f"{busiest['busy_percent']:.0f} % of the time at {busiest['power_watt']:.0f} W. Most power "
        f"goes to {hottest['run']}, {hottest['power_watt']:.0f} W at {hottest['busy_percent']:.0f} % busy."
    )
