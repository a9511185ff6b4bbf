"""The way of bytes from the compute units to the memory, drawn for one or more kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, new_figure, settings

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BOXES = {
    "compute units": (0, 0),
    "LDS": (0, 1),
    "vL1D": (1, 0),
    "L2": (2, 0),
    "HBM, by the fabric": (3, 0),
}
"""Name of a box and its place: column and row."""

LINKS = {
    "LDS": ("compute units", "LDS"),
    "vL1D": ("compute units", "vL1D"),
    "L2": ("vL1D", "L2"),
    "fabric": ("L2", "HBM, by the fabric"),
}
"""Name of a link and the boxes at its ends."""

_COLUMN, _ROW, _WIDTH, _HEIGHT = 3.0, 1.5, 1.2, 0.8


def memory_chart(links: pd.DataFrame, needed_bytes: float, origin: str, title: str | None = None) -> TidyFigure:
    """A picture with the bytes that kernels move between the levels of memory.

    links        -- a row for each kernel, a column for each of LINKS, in bytes.
    needed_bytes -- what the work needs, the measure of all numbers.

    Raises KeyError if a link is missing.
    """
    with settings():
        figure, (axes,) = new_figure(origin, height=3.4, title=title)
        axes.set(xlim=(-0.8, 3 * _COLUMN + 0.8), ylim=(-_ROW - 0.7, 0.9))
        axes.set_axis_off()
        for name, place in BOXES.items():
            _box(axes, name, *_middle(place))
        for name, (start, end) in LINKS.items():
            _link(axes, links[name], needed_bytes, _middle(BOXES[start]), _middle(BOXES[end]))
    most = links[list(LINKS)].stack().idxmax()
    figure.alternative_text = (
        f"Boxes from the compute units over vL1D and L2 to the memory, and LDS below, with the bytes of "
        f"{' and '.join(map(str, links.index))} on each link. The most is {_size(links.at[most])} by {most[0]} at "
        f"{most[1]}, {links.at[most] / needed_bytes:.1f} times what the work needs."
    )
    return figure


def _middle(place: tuple[int, int]) -> tuple[float, float]:
    return place[0] * _COLUMN, -place[1] * _ROW


def _box(axes: Axes, name: str, x: float, y: float) -> None:
    from matplotlib.patches import Rectangle

    corner = (x - _WIDTH / 2, y - _HEIGHT / 2)
    axes.add_patch(Rectangle(corner, _WIDTH, _HEIGHT, facecolor=style.SKY_BLUE, edgecolor=style.TEXT, alpha=0.5))
    axes.text(x, y, name.replace(", ", ",\n"), ha="center", va="center", fontsize=11)


def _link(axes: Axes, moved: pd.Series, needed: float, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow with a line of text for each kernel, grey where nothing moves."""
    down = start[0] == end[0]
    half = (0, -_HEIGHT / 2) if down else (_WIDTH / 2, 0)
    tail, tip = (start[0] + half[0], start[1] + half[1]), (end[0] - half[0], end[1] - half[1])
    colour = style.TEXT if moved.max() else style.GREY
    axes.annotate("", tip, tail, arrowprops={"arrowstyle": "<->", "color": colour, "linewidth": 1.6})
    lines = [f"{name}: {_size(value)} ({value / needed:.1f}×)" for name, value in moved.items()]
    text = "\n".join(lines) if moved.max() else "not used"
    x, y = (tail[0] + tip[0]) / 2, (tail[1] + tip[1]) / 2
    place = {"ha": "left", "va": "center"} if down else {"ha": "center", "va": "bottom"}
    axes.text(x + (0.15 if down else 0), y + (0 if down else 0.12), text, fontsize=9, **place)


def _size(value: float) -> str:
    return f"{value / 1e6:.2f} MB"
