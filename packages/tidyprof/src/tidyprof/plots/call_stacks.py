"""An icicle plot of a call tree. Callers are above the functions that they call, and widths are
proportional to time.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tidyprof.plots import style, viewer
from tidyprof.plots.bars import FOLDED, name_bar
from tidyprof.plots.figure import (
    TidyFigure,
    add_legend,
    axis_unit,
    hide_left,
    new_figure,
    require,
    settings,
)

_LOOKS = {
    "mostly in its calls": (style.SKY_BLUE, ""),
    "mostly in itself": (style.ORANGE, "///"),
}
_CALLING, _OWN = _LOOKS
_ROW_INCHES = 0.27
_AXES_INCHES = 0.95 * style.WIDTH_INCHES

_NOTHING = 0.01
"""Maximum share of self time that still counts as no self time."""

_OUTLINED_PERCENT = 0.3
"""Minimum width of a box with an outline and a hatch, in percent of the whole. The outline and
hatch would completely cover a narrower box.
"""


@dataclass
class _Box:
    """A function, or a chain of functions in which each function only calls the next function.

    - names: the names of the functions in the chain.
    - row: the zero-based index of the row.
    - left, width: the position of the left end, and the width.
    - own: the width of the self time.
    - filled: the width of the boxes below this box.
    """

    names: list[str]
    row: int
    left: float
    width: float
    own: float
    filled: float = 0

    @property
    def name(self) -> str:
        return f"{FOLDED if len(self.names) > 1 else ''}{self.names[-1]}"

    @property
    def look(self) -> str:
        return _OWN if self.own > self.width / 2 else _CALLING


def call_stacks(
    table: pd.DataFrame,
    *,
    levels: int = 20,
    smallest_percent: float = 0.2,
    title: str | None = None,
) -> TidyFigure:
    """Plot call stacks from top to bottom. Each function is below its caller, and its width is
    proportional to its time.

    - table: a table from `analyses.call_stacks`. Functions with the same caller are sorted by time,
      not by the order in which they ran.
    - levels: the maximum number of rows. A function that only calls one other function (for 99% of
      its time) shares a row with that function. The row shows an ellipsis and the name of the last
      function.
    - smallest_percent: the minimum share of the whole. Functions with a smaller share are left out.

    A color and a hatch mark functions with a self time of more than half of their time. Raises
    ValueError if the table is empty or has no origin, if its samples have no durations, or if no
    function is left.
    """
    columns = ["short_name", "depth", "parent", "total_ns", "self_ns"]
    origin = require(table, columns, "call_stacks")
    if not table["total_ns"].any():
        raise ValueError("the samples have no durations; there is nothing to plot")
    found = _boxes(table)
    whole = sum(box.width for box in found if not box.row)
    smallest = smallest_percent / 100 * whole
    shown = [box for box in found if box.width >= smallest and box.row < levels]
    if not shown:
        raise ValueError(f"no function in {levels} rows has a share of {smallest_percent:g}%")
    unit, size = axis_unit(whole)
    rows = 1 + max(box.row for box in shown)
    height = 1.35 + 0.35 * bool(title) + _ROW_INCHES * rows
    with settings():
        figure, (axes,) = new_figure(origin, height=height, title=title)
        for box in shown:
            color, hatch = look = _LOOKS[box.look]
            edge = {"hatch": hatch, "edgecolor": style.TEXT, "linewidth": 0.4}
            if box.width <= _OUTLINED_PERCENT / 100 * whole:
                edge = {"edgecolor": color, "linewidth": 0.1}
            left, width, y = box.left / size, box.width / size, box.row + 0.5
            axes.barh(y, width, left=left, height=1, color=color, **edge)
            inches = box.width / whole * _AXES_INCHES
            name_bar(axes, left + width / 2, y, box.name, inches, look)
        axes.set_xlim(0, whole / size)
        axes.set_ylim(rows, 0)
        hide_left(axes)
        axes.set_xlabel(
            f"time, {unit}; callers are above their calls, longest first; at most {levels} rows,"
            f" below {smallest_percent:g}% left out"
        )
        add_legend(axes, _looks(shown))
    own = table.groupby("short_name")["self_ns"].sum()
    figure.alternative_text = (
        f"Icicle plot of {len(table):,} call paths, up to {int(table['depth'].max()) + 1} functions"
        f" deep. {own.idxmax()} has the largest self part, {100 * own.max() / whole:.0f}%."
    )
    # The viewer also shows boxes that are too narrow or too deep to appear in the figure.
    figure.closer = _closer(found, origin, title)
    return figure


def _looks(boxes: list[_Box]) -> dict[str, tuple[str, str]]:
    used = {box.look for box in boxes}
    return {name: look for name, look in _LOOKS.items() if name in used}


def _closer(boxes: list[_Box], origin: str, title: str | None) -> str:
    looks = _looks(boxes)
    rows = [
        {
            "row": 0,
            "start": round(box.left),
            "length": round(box.width),
            "name": box.name,
            "whole_name": " > ".join(box.names),
            "look": [*looks].index(box.look),
            "own": round(box.own),
        }
        for box in boxes
    ]
    return viewer.boxes(
        pd.DataFrame(rows),
        max(round(box.left + box.width) for box in boxes),
        [""],
        looks,
        origin=origin,
        title=title,
        unit="ns",
        things="functions",
        axis="Callers are above their calls, longest first",
        share=True,
    )


def _boxes(table: pd.DataFrame) -> list[_Box]:
    """Return all boxes. Each box comes after its caller's box.

    If a row's caller isn't in the table, the row becomes an outermost row. The outermost functions
    of all threads are side by side.
    """
    # The labels are in depth-first order, so each row comes after its caller.
    table = table.sort_index()
    calls = table["parent"].value_counts().to_dict()
    outermost = _Box([], -1, 0, 0, 0)
    boxes: list[_Box] = []
    box_of: dict[object, _Box] = {}
    for row in table.astype({"parent": object}).itertuples():
        box = box_of.get(row.parent, outermost)
        is_only_call = box is not outermost and calls[row.parent] == 1
        if is_only_call and box.own <= _NOTHING * box.width:
            box.names.append(row.short_name)
            box.own = row.self_ns
            box_of[row.Index] = box
            continue
        new = _Box([row.short_name], box.row + 1, box.left + box.filled, row.total_ns, row.self_ns)
        box.filled += row.total_ns
        box_of[row.Index] = new
        boxes.append(new)
    return boxes
