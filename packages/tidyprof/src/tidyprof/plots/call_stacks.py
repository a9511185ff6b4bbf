"""An icicle plot of a call tree. Callers are above the functions that they call, and widths are
proportional to time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.plots import style, viewer
from tidyprof.plots.bars import FOLDED, name_bar
from tidyprof.plots.figure import (
    TidyFigure,
    add_legend,
    axis_unit,
    duration_text,
    new_figure,
    origin_of,
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
_NUMBERS = (("total_ns", "self_ns"), ("count", "self_count"))
_OUTLINED_PERCENT = 0.3
"""Minimum width of a box with an outline and a hatch, in percent of the whole. The outline and
hatch would completely cover a narrower box.
"""


@dataclass(frozen=True)
class _Box:
    """A function, or a chain of functions in which each function only calls the next function.

    - row: the zero-based index of the row.
    - left, width: the position of the left end, and the width.
    - own: the width of the self time.
    - whole_name: the names of all functions in the chain.
    """

    name: str
    row: int
    left: float
    width: float
    look: str
    own: float
    whole_name: str


@dataclass(frozen=True)
class _Tree:
    """A table of call stacks as a tree.

    - weight, own, name: the weight, the self-time weight and the name of each row.
    - below: the rows directly below each row. The outermost rows have the key -1.
    """

    weight: list[float]
    own: list[float]
    name: list[str]
    below: dict[int, list[int]]


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
    require(
        table,
        [*_THREAD_COLUMNS, "short_name", "depth", "parent", *_NUMBERS[0], *_NUMBERS[1]],
        "call_stacks",
    )
    if levels < 1:
        raise ValueError(f"levels must be at least 1, not {levels}")
    origin = origin_of(table)
    is_time = bool(table["total_ns"].any())
    tree = _tree(table, *_NUMBERS[0 if is_time else 1])
    whole = sum(tree.weight[root] for root in tree.below[-1])
    found = list(_boxes(tree, _threads(table, tree)))
    boxes = [box for box in found if box.width >= smallest_percent / 100 * whole]
    if not boxes:
        raise ValueError(f"all shares are below {smallest_percent:g}%; there is nothing to plot")
    shown = [box for box in boxes if box.row < levels]
    unit, size = axis_unit(whole) if is_time else ("", 1.0)
    measure = f"time, {unit}" if is_time else _counted(table)
    rows, rows_in_all = (1 + max(box.row for box in some) for some in (shown, boxes))
    with settings():
        figure, (axes,) = new_figure(
            origin, height=1.35 + 0.35 * bool(title) + _ROW_INCHES * rows, title=title
        )
        for box in shown:
            _draw(axes, box, whole, size)
        axes.set_xlim(0, whole / size)
        axes.set_ylim(rows, 0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        left_out = f"below {smallest_percent:g}% left out"
        left_out += f", {rows_in_all - rows} more rows not shown" if rows_in_all > rows else ""
        axes.set_xlabel(f"{measure}; callers are above their calls, longest first; {left_out}")
        add_legend(
            axes,
            {name: look for name, look in _LOOKS.items() if any(box.look == name for box in shown)},
        )
    figure.alternative_text = _words(table, tree, whole, is_time)
    figure.closer = _closer(found, origin, title, "ns" if is_time else _counted(table))
    return figure


def _closer(boxes: list[_Box], origin: str, title: str | None, unit: str) -> str:
    """Return the viewer's data, which contains all boxes. Some boxes are too narrow or too deep to
    appear in the figure.
    """
    looks = {name: look for name, look in _LOOKS.items() if any(box.look == name for box in boxes)}
    table = {
        "row": [box.row for box in boxes],
        "start": [round(box.left) for box in boxes],
        "length": [round(box.width) for box in boxes],
        "name": [box.name for box in boxes],
        "whole_name": [box.whole_name for box in boxes],
        "look": [[*looks].index(box.look) for box in boxes],
        "own": [round(box.own) for box in boxes],
    }
    return viewer.boxes(
        pd.DataFrame(table),
        max(round(box.left + box.width) for box in boxes),
        [""] * (1 + max(table["row"])),
        looks,
        origin=origin,
        title=title,
        unit=unit,
        things="functions",
        axis="Callers are above their calls, longest first",
        deep=True,
        share=True,
    )


def _counted(table: pd.DataFrame) -> str:
    return str(table.attrs.get("source", "samples"))


def _tree(table: pd.DataFrame, weight: str, own: str) -> _Tree:
    """Return the tree of the table's rows. If a row's caller isn't in the table, the row becomes an
    outermost row.
    """
    row_of = {label: row for row, label in enumerate(table.index)}
    below: dict[int, list[int]] = {}
    for row, parent in enumerate(table["parent"].astype(object)):
        below.setdefault(row_of.get(parent, -1), []).append(row)
    return _Tree(table[weight].tolist(), table[own].tolist(), table["short_name"].tolist(), below)


def _threads(table: pd.DataFrame, tree: _Tree) -> dict[str, list[int]]:
    """Return the outermost rows of each thread, keyed by the thread's label.

    The label contains the columns in which the threads differ. If there is only one thread, its
    label is an empty string.
    """
    keys = table[_THREAD_COLUMNS]
    differing = [column for column in keys.columns if keys[column].nunique(dropna=False) > 1]
    roots: dict[str, list[int]] = {}
    for row in tree.below[-1]:
        values = [(column, keys[column].iloc[row]) for column in differing]
        label = ", ".join(
            f"{column} {'unknown' if pd.isna(value) else value}" for column, value in values
        )
        roots.setdefault(label, []).append(row)
    return roots


def _boxes(tree: _Tree, threads: dict[str, list[int]]) -> Iterator[_Box]:
    """Yield all boxes. Each box comes after its caller's box."""
    # Use an explicit stack because call stacks can exceed Python's recursion limit.
    waiting, left = [], 0.0
    for label, roots in threads.items():
        width = sum(tree.weight[root] for root in roots)
        if label:
            yield _Box(label, 0, left, width, _THREAD, 0, label)
        waiting.append((roots, int(bool(label)), left))
        left += width
    while waiting:
        siblings, row, left = waiting.pop()
        for first in siblings:
            chain, width = _chain(tree, first), tree.weight[first]
            last = chain[-1]
            name = tree.name[last] if last == first else f"{FOLDED}{tree.name[last]}"
            look = _OWN if tree.own[last] > width / 2 else _CALLING
            calls = " > ".join(tree.name[one] for one in chain)
            yield _Box(name, row, left, width, look, tree.own[last], calls)
            waiting.append((tree.below.get(last, []), row + 1, left))
            left += width


def _chain(tree: _Tree, row: int) -> list[int]:
    """Return the chain of functions that starts with this row.

    Each function in the chain except the last one only calls the next function.
    """
    chain = [row]
    while len(tree.below.get(row, [])) == 1 and tree.own[row] <= _NOTHING * tree.weight[row]:
        (row,) = tree.below[row]
        chain.append(row)
    return chain


def _draw(axes: Axes, box: _Box, whole: float, size: float) -> None:
    color, hatch = _LOOKS[box.look]
    is_wide = box.width > _OUTLINED_PERCENT / 100 * whole
    axes.barh(
        box.row + 0.5,
        box.width / size,
        left=box.left / size,
        height=1,
        color=color,
        hatch=hatch if is_wide else None,
        edgecolor=style.TEXT if is_wide else color,
        linewidth=0.4 if is_wide else 0.1,
    )
    middle = (box.left + box.width / 2) / size
    name_bar(
        axes, middle, box.row + 0.5, box.name, box.width / whole * _AXES_INCHES, _LOOKS[box.look]
    )


def _words(table: pd.DataFrame, tree: _Tree, whole: float, is_time: bool) -> str:
    text = duration_text if is_time else (lambda number: f"{number:,} {_counted(table)}")
    own = pd.Series(tree.own).groupby(pd.Series(tree.name)).sum()
    deepest = int(table["depth"].max()) + 1
    threads = len(table[_THREAD_COLUMNS].drop_duplicates())
    where = f"{threads} threads" if threads > 1 else "one thread"
    return (
        f"Icicle plot of {len(table):,} call paths in {where}, {text(whole)} in total, up to"
        f" {deepest} functions deep. {own.idxmax()} has the largest self part,"
        f" {text(own.max())} ({100 * own.max() / whole:.0f}%)."
    )
