"""Power against busy share: a GPU may be far to the right and yet far down."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

NEAR_PERCENT = 60
"""Busy share in percent from which a label stands to the left of its point, so that it stays
inside.
"""


def work_map(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One point for each run and GPU: busy share to the right, power upwards; see
    `watched_runs.one_table`.

    table -- with the columns run, device, busy_percent and power_share_percent, the share of the
             power limit; rows without a share are left out.

    Raises ValueError for a table without any point, or without origin.
    """
    from tidyprof.plots.figure import new_figure, origin_of, settings

    origin = origin_of(table)
    table = table.dropna(subset=["busy_percent", "power_share_percent"])
    if not len(table):
        raise ValueError("there is no run to draw")
    with settings():
        figure, (axes,) = new_figure(origin, 4.2, title=title)
        labels = []
        for place, (run, rows) in enumerate(table.groupby("run", sort=False)):
            color, marker = LOOKS[place % len(LOOKS)]
            axes.plot(
                rows["busy_percent"],
                rows["power_share_percent"],
                marker,
                color=color,
                markersize=8,
                zorder=3,
            )
            # Points that are near each other share a label.
            for _, near in rows.groupby((rows["busy_percent"] / 10).round()):
                left = near["busy_percent"].mean() > NEAR_PERCENT
                numbers = ", ".join(str(device) for device in near["device"])
                x = near["busy_percent"].min() if left else near["busy_percent"].max()
                text = str(run) if len(rows) == 1 else f"{run}, GPU {numbers}"
                labels.append((x, near["power_share_percent"].mean(), left, text))
        # Labels stand above and below in turn, since neighbors are near.
        for place, (x, y, left, text) in enumerate(sorted(labels)):
            offset = (-9 if left else 9, -13 if place % 2 else 6)
            axes.annotate(
                text,
                (x, y),
                xytext=offset,
                textcoords="offset points",
                ha="right" if left else "left",
            )
        axes.set(
            xlim=(-2, 102),
            ylim=(0, 104),
            xlabel="GPU busy, % of time",
            ylabel="power, % of the limit",
        )
    busiest, hardest = (
        table.loc[table["busy_percent"].idxmax()],
        table.loc[table["power_share_percent"].idxmax()],
    )
    figure.alternative_text = (
        f"Points of {len(table)} GPUs in {table['run'].nunique()} runs: the busiest, in"
        f" {busiest['run']}, is busy for {busiest['busy_percent']:.0f} % of the time at"
        f" {busiest['power_share_percent']:.0f} % of its power limit. The most power,"
        f" {hardest['power_share_percent']:.0f} %, is that of {hardest['run']} at"
        f" {hardest['busy_percent']:.0f} % busy."
    )
    return figure
