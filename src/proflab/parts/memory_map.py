"""The segments of PyTorch's allocator, drawn with what is in use and what is free in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidyprof.plots import style, viewer
from tidyprof.plots.figure import TidyFigure, add_legend, new_figure, origin_of, settings

if TYPE_CHECKING:
    import pandas as pd

MEBIBYTE = 2**20
LOOKS = {"active_allocated": (style.BLUE, ""), "inactive": (style.GREY, "//")}


def memory_map(blocks: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """One bar for each segment of `tidyprof.memory_blocks`, from its start on, in MiB."""
    with settings():
        figure, (axes,) = new_figure(origin_of(blocks), height=3.2, title=title)
        start = (blocks.groupby("segment")["bytes"].cumsum() - blocks["bytes"]) / MEBIBYTE
        row = blocks["segment"].rank(method="dense") - 1
        for state, (colour, hatch) in LOOKS.items():
            own = blocks["state"] == state
            size = blocks["bytes"][own] / MEBIBYTE
            axes.barh(
                row[own],
                size,
                0.8,
                start[own],
                color=colour,
                hatch=hatch,
                edgecolor=style.TEXT,
                linewidth=0.3,
            )
        axes.set(xlabel="MiB in the segment", ylabel="segment", ylim=(row.max() + 0.6, -0.6))
        add_legend(axes, {state.replace("_", " "): look for state, look in LOOKS.items()})
    free = 100 * blocks.loc[blocks["state"] == "inactive", "bytes"].sum() / blocks["bytes"].sum()
    figure.alternative_text = (
        f"Bars of {int(row.max()) + 1} segments of memory. {free:.0f} % of them is free."
    )
    figure.closer = _closer(blocks, title)
    return figure


def _closer(blocks: pd.DataFrame, title: str | None) -> str:
    """What the viewer shows: each block with its size and place in its segment, in bytes."""
    state = blocks["state"].astype(str).str.replace("_", " ")
    looks = {name.replace("_", " "): look for name, look in LOOKS.items()}
    start = blocks.groupby("segment")["bytes"].cumsum() - blocks["bytes"]
    row = blocks["segment"].rank(method="dense").astype(int) - 1
    table = blocks.assign(row=row, start=start, length=blocks["bytes"], name=state)
    drawn = table[state.isin(list(looks))]
    return viewer.boxes(
        drawn.assign(whole_name=drawn["name"], look=drawn["name"].map([*looks].index)),
        int((start + blocks["bytes"]).max()),
        [f"segment {number}" for number in range(row.max() + 1)],
        looks,
        origin=origin_of(blocks),
        title=title,
        unit="bytes",
        things="blocks",
        axis="Across: place in the segment",
    )
