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
    "thread": (style.GREY, ""),
}
_CALLING, _OWN, _THREAD = _LOOKS
_ROW_INCHES = 0.27
_AXES_INCHES = 0.95 * style.WIDTH_INCHES

_NOTHING = 0.01
"""Maximum share of self time that still counts as no self time."""

_THREAD_COLUMNS = ["rank", "process", "thread"]
_OUTLINED_PERCENT = 0.3
"""Minimum width of a box with an outline and a hatch, in percent of the whole. The outline and
hatch would completely cover a narrower box.
"""


@dataclass
class _Box:
    """A thread, a function, or a chain of functions in which each function only calls the next
    function.

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
    is_thread: bool = False
    filled: float = 0

    @property
    def name(self) -> str:
        return f"{FOLDED if len(self.names) > 1 else ''}{self.names[-1]}"

    @property
    def look(self) -> str:
        if self.is_thread:
            return _THREAD
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
      not by the order in which they ran. If samples have no durations, the samples are counted
      instead.
    - levels: the maximum number of rows. A function that only calls one other function (for 99% of
      its time) shares a row with that function. The row shows an ellipsis and the name of the last
      function.
    - smallest_percent: the minimum share of the whole. Functions with a smaller share are left out.

    A color and a hatch mark functions with a self time of more than half of their time. Raises
    ValueError if the table is empty or has no origin, if `levels` is less than 1, or if every share
    is too small.
    """
    numbers = ["total_ns", "self_ns", "count", "self_count"]
    columns = [*_THREAD_COLUMNS, "short_name", "depth", "parent", *numbers]
    origin = require(table, columns, "call_stacks")
    if levels < 1:
        raise ValueError(f"levels must be at least 1, not {levels}")
    is_time = bool(table["total_ns"].any())
    counted = str(table.attrs.get("source", "samples"))
    whole_column, own_column = numbers[:2] if is_time else numbers[2:]
    table = table.assign(whole=table[whole_column], own=table[own_column])
    found = _boxes(table)
    whole = sum(box.width for box in found if not box.row)
    boxes = [box for box in found if box.width >= smallest_percent / 100 * whole]
    if not boxes:
        raise ValueError(f"all shares are below {smallest_percent:g}%; there is nothing to plot")
    shown = [box for box in boxes if box.row < levels]
    unit, size = axis_unit(whole) if is_time else ("", 1.0)
    measure = f"time, {unit}" if is_time else counted
    rows, rows_in_all = (1 + max(box.row for box in some) for some in (shown, boxes))
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
        left_out = f"below {smallest_percent:g}% left out"
        left_out += f", {rows_in_all - rows} more rows not shown" if rows_in_all > rows else ""
        axes.set_xlabel(f"{measure}; callers are above their calls, longest first; {left_out}")
        add_legend(axes, _looks(shown))
    own = table.groupby("short_name")["own"].sum()
    figure.alternative_text = (
        f"Icicle plot of {len(table):,} call paths, up to {int(table['depth'].max()) + 1} functions"
        f" deep. {own.idxmax()} has the largest self part, {100 * own.max() / whole:.0f}%."
    )
    # The viewer also shows boxes that are too narrow or too deep to appear in the figure.
    figure.closer = _closer(found, origin, title, "ns" if is_time else counted)
    return figure


def _looks(boxes: list[_Box]) -> dict[str, tuple[str, str]]:
    used = {box.look for box in boxes}
    return {name: look for name, look in _LOOKS.items() if name in used}


def _closer(boxes: list[_Box], origin: str, title: str | None, unit: str) -> str:
    looks = _looks(boxes)
    rows = [
        {
            "row": box.row,
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
        [""] * (1 + max(box.row for box in boxes)),
        looks,
        origin=origin,
        title=title,
        unit=unit,
        things="functions",
        axis="Callers are above their calls, longest first",
        deep=True,
        share=True,
    )


def _boxes(table: pd.DataFrame) -> list[_Box]:
    """Return all boxes. Each box comes after its caller's box.

    - table: the call stacks with the columns `whole` and `own`. If a row's caller isn't in the
      table, the row becomes an outermost row.

    If there are several threads, their boxes are above the outermost functions. Their labels
    contain the columns in which the threads differ.
    """
    # The labels are in depth-first order, so each row comes after its caller.
    table = table.sort_index()
    keys = table[_THREAD_COLUMNS]
    differing = [column for column in keys if keys[column].nunique(dropna=False) > 1]
    calls = table["parent"].value_counts().to_dict()
    boxes: list[_Box] = []
    box_of: dict[object, _Box] = {}
    threads: dict[str, _Box] = {}
    total = 0.0
    for row in table.astype({"parent": object}).itertuples():
        box = box_of.get(row.parent)
        if box is None:
            values = [(column, getattr(row, column)) for column in differing]
            label = ", ".join(f"{name} {'unknown' if pd.isna(x) else x}" for name, x in values)
            if label not in threads:
                threads[label] = _Box([label], 0 if label else -1, total, 0, 0, True)
                boxes += [threads[label]] if label else []
            box = threads[label]
            box.width += row.whole
            total += row.whole
        elif calls[row.parent] == 1 and box.own <= _NOTHING * box.width:
            box.names.append(row.short_name)
            box.own = row.own
            box_of[row.Index] = box
            continue
        new = _Box([row.short_name], box.row + 1, box.left + box.filled, row.whole, row.own)
        box.filled += row.whole
        box_of[row.Index] = new
        boxes.append(new)
    return boxes
