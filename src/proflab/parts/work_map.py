"""Useful arithmetic against busy: a GPU may be far to the right and at the bottom."""

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
)
"""Colour and marker of each run in order."""

NEAR_PERCENT = 60
"""Labels of points to the right of this stand to the left of them, so that they stay inside."""


def work_map(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One point per run and GPU: busy share to the right, MFU upwards; see `watched_runs.one_table`.

    table has the columns run, device, busy_percent and mfu_percent. Raises ValueError for a table that is empty or
    does not state its origin.
    """
    from tidyprof.plots.figure import new_figure, origin_of, settings

    if not len(table):
        raise ValueError("there is no run to draw")
    with settings():
        figure, (axes,) = new_figure(origin_of(table), 4.2, title=title)
        for place, (run, rows) in enumerate(table.groupby("run", sort=False)):
            colour, marker = LOOKS[place % len(LOOKS)]
            axes.plot(rows["busy_percent"], rows["mfu_percent"], marker, color=colour, markersize=8, zorder=3)
            for _, near in rows.groupby((rows["busy_percent"] / 10).round()):  # these share a label
                left = near["busy_percent"].mean() > NEAR_PERCENT
                numbers = ", ".join(str(device) for device in near["device"])
                axes.annotate(
                    str(run) if len(rows) == 1 else f"{run}, GPU {numbers}",
                    (near["busy_percent"].min() if left else near["busy_percent"].max(), near["mfu_percent"].mean()),
                    xytext=(-9 if left else 9, 6),
                    textcoords="offset points",
                    ha="right" if left else "left",
                )
        top = 1.15 * table["mfu_percent"].max()
        axes.set(xlim=(-2, 102), ylim=(-0.03 * top, top), xlabel="GPU busy, % of time", ylabel="MFU, % of the peak")
    busiest, best = table.loc[table["busy_percent"].idxmax()], table.loc[table["mfu_percent"].idxmax()]
    figure.alternative_text = (
        f"Points of {len(table)} GPUs in {table['run'].nunique()} runs: the busiest, in {busiest['run']}, is busy for "
        f"{busiest['busy_percent']:.0f} % of the time at an MFU of {busiest['mfu_percent']:.2f} %. The highest MFU, "
        f"{best['mfu_percent']:.2f} %, is that of {best['run']} at {best['busy_percent']:.0f} % busy."
    )
    return figure
