"""A figure of power against activity: a busy GPU at low power does little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proflab.showing import point_at
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
    (style.SKY_BLUE, "v"),
)
"""Color and marker of each run, in order."""


def work_map(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Draw one point per GPU, with activity on the x axis and power on the y axis.

    table -- has the columns run, busy_percent and power_share_percent, the share of the power
             limit. Rows without a share are left out.

    Raises ValueError for a table without an origin.
    """
    from tidyprof.plots.figure import new_figure, origin_of, settings

    origin = origin_of(table)
    table = table.dropna(subset=["busy_percent", "power_share_percent"])
    with settings():
        figure, (axes,) = new_figure(origin, 4.2, title=title)
        groups = table.groupby("run", sort=False)
        for (run, rows), (color, marker) in zip(groups, LOOKS, strict=False):
            axes.plot(
                rows["busy_percent"],
                rows["power_share_percent"],
                marker,
                color=color,
                label=run if len(rows) == 1 else f"{run} ({len(rows)} GPUs)",
                markersize=9,
                markerfacecolor="none",
                markeredgewidth=2,
            )
        # No GPU draws much power while it is idle, so this corner is free.
        axes.legend(loc="upper left")
        axes.set(
            xlim=(-2, 102),
            ylim=(0, 104),
            xlabel="GPU activity (%)",
            ylabel="power (% of the limit)",
        )
    busiest = table.loc[table["busy_percent"].idxmax()]
    hardest = table.loc[table["power_share_percent"].idxmax()]
    figure.alternative_text = (
        f"Activity and power of {len(table)} GPUs in {table['run'].nunique()} runs. The busiest GPU"
        f" ({busiest['run']}) is at {busiest['busy_percent']:.0f}% activity and"
        f" {busiest['power_share_percent']:.0f}% of its power limit. The highest power,"
        f" {hardest['power_share_percent']:.0f}% of the limit, belongs to {hardest['run']} at"
        f" {hardest['busy_percent']:.0f}% activity."
    )
    # A GPU that waits for others, since it is busy, but draws little power.
    waits = table[table["busy_percent"] > 90].nsmallest(1, "power_share_percent")
    for busy, power in waits[["busy_percent", "power_share_percent"]].to_numpy():
        text = f"{busy:.0f}% busy, but only at {power:.0f}% of the power limit"
        point_at(figure, text, (busy, power), (0.35, 0.65))
    return figure
