"""Plots of ranks, which show how each rank spends its time and which rank the others wait for at
each collective.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from tidyprof.analyses.budget import part_words
from tidyprof.analyses.ranks import rank_labels
from tidyprof.plots import style
from tidyprof.plots.bars import stack
from tidyprof.plots.figure import (
    TidyFigure,
    axis_unit,
    duration_text,
    new_figure,
    require,
    settings,
)

MAX_RANKS = 24
"""Maximum number of bars. If the number of ranks exceeds this limit, the plot shows only the ranks
that caused the longest waits.
"""

WAIT_COLORS = "cividis"
"""Color map for waiting times. The color map looks the same to color-blind readers, and its order
is preserved in grayscale.
"""

_PARTS = {
    "computation": "compute",
    "exposed_communication": "exposed_communication",
    "exposed_copy": "exposed_copy",
    "idle": "idle",
}
"""The color and hatch of each part of a rank's time. The keys are column names without _ns."""

_LOOKS = {**style.PART_LOOK, "idle": (style.GROUND, "")}
_MAX_NUMBERED = 40


def ranks(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Plot stacked bars that show what each rank's device did, how often the rank came last, and
    how long it waited.

    `table` comes from `analyses.ranks`. If the table has more than `MAX_RANKS` rows, only the rows
    with the largest `caused_wait_ns` are shown. Raises ValueError if the table is empty or has no
    origin.
    """
    columns = [f"{part}_ns" for part in _PARTS]
    facts = ["rank", "device", "total_ns", "arrived_last", "compared", "caused_wait_ns"]
    origin = require(table, [*columns, *facts], "ranks")
    shown = table
    if len(table) > MAX_RANKS:
        shown = table.loc[table["caused_wait_ns"].nlargest(MAX_RANKS).index.sort_values()]
    unit, size = axis_unit(shown["total_ns"].max())
    ends = [_end_text(row) for row in shown.to_dict("records")]
    with settings():
        figure, (axes,) = new_figure(origin, height=1.5 + 0.45 * len(shown), title=title)
        parts = shown[columns].set_axis(list(_PARTS.values()), axis="columns")
        looks = {look: _LOOKS[look] for look in _PARTS.values()}
        stack(axes, parts, looks, rank_labels(shown), ends, size, room=1.4)
        kind = "device event" if shown["device"].notna().any() else "host event"
        axes.set_xlabel(f"time from first to last {kind}, {unit}")
    figure.alternative_text = _rank_words(table, len(shown))
    return figure


def _end_text(row: dict) -> str:
    if not row["compared"]:
        return duration_text(row["total_ns"])
    waiting = f"{duration_text(row['wait_ns'])} waiting" if row["wait_ns"] else "never waiting"
    return f"{waiting}, last in {row['arrived_last']} of {row['compared']}"


def _rank_words(table: pd.DataFrame, shown: int) -> str:
    total = table["total_ns"].sum()
    shares = [
        f"{part_words(look)} {100 * table[f'{part}_ns'].sum() / total:.0f}%"
        for part, look in _PARTS.items()
    ]
    straggler = table.attrs.get("straggler")
    waits = "The ranks don't wait for one particular rank."
    if not table["compared"].any():
        waits = "None of their collectives could be compared."
    elif straggler is not None:
        waits = f"Rank {straggler} causes the longest waits."
    return f"Stacked bars of {shown} of {len(table)} ranks; in all: {', '.join(shares)}. {waits}"


def collectives(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Plot a heat map that shows how long each rank waited for the last rank in each collective.

    If a single rank came last, a dot marks this rank. `table` comes from `analyses.collectives`.
    Raises ValueError if the table is empty or has no origin.
    """
    columns = ["number", "rank", "device", "wait_ns", "arrived_last"]
    origin = require(table, columns, "collectives")
    place = ["rank", "device"]
    waits = table.pivot_table(
        index=place, columns="number", values="wait_ns", dropna=False, observed=True
    )
    waits = waits.dropna(how="all")
    unit, size = axis_unit(float(waits.max(axis=None)))
    with settings():
        figure, (axes,) = new_figure(origin, height=2.0 + min(0.35 * len(waits), 8), title=title)
        look = {"aspect": "auto", "cmap": WAIT_COLORS, "interpolation": "nearest"}
        image = axes.imshow(waits.to_numpy(float) / size, norm=PowerNorm(0.5, vmin=0), **look)
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_label(f"waiting for the last rank, {unit}")
        _mark_last(axes, table, waits, image)
        axes.set_xlabel("collective, in order of time")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20))
        labels = rank_labels(waits.index.to_frame(index=False))
        every = -(-len(labels) // _MAX_NUMBERED)
        axes.set_yticks(range(0, len(labels), every), labels[::every])
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0)
    figure.alternative_text = _wait_words(table)
    return figure


def _mark_last(axes: Axes, table: pd.DataFrame, waits: pd.DataFrame, image: AxesImage) -> None:
    """Draw a clearly visible dot on the rank that came last in each collective."""
    last = table[table["arrived_last"]]
    rows = waits.index.get_indexer(pd.MultiIndex.from_frame(last[["rank", "device"]]))
    columns = waits.columns.get_indexer(last["number"])
    size = float(np.clip(200 / max(waits.shape), 1.5, 7))
    # Scatter dots are fills, so they stay white on a dark page, like the map.
    axes.scatter(columns, rows, s=size**2, color=style.GROUND, label="the last rank to enter")
    ground = {"frameon": True, "facecolor": image.cmap(0.0), "framealpha": 1}
    ink = {"labelcolor": style.GROUND, "edgecolor": style.GROUND}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.3, **ground, **ink)


def _wait_words(table: pd.DataFrame) -> str:
    longest = table.loc[table["wait_ns"].idxmax()].to_frame().T
    return (
        f"Heat map: waiting times of ranks in {table['number'].nunique()} collectives,"
        f" {duration_text(table['wait_ns'].sum())} in total. The longest wait is"
        f" {duration_text(table['wait_ns'].max())} on {rank_labels(longest)[0]}."
    )
