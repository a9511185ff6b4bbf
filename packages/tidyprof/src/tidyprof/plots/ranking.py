"""A plot that ranks the largest kernels by their time."""

from __future__ import annotations

import pandas as pd

from tidyprof.plots import style
from tidyprof.plots.figure import (
    OUTLINE,
    TidyFigure,
    add_legend,
    axis_unit,
    duration_text,
    hide_left,
    new_figure,
    note,
    place_label,
    require,
    settings,
)

_NAME_INCHES = 0.25
_BAR_INCHES = 0.23
_GAP_INCHES = 0.08


def top_kernels(table: pd.DataFrame, n: int = 10, title: str | None = None) -> TidyFigure:
    """Plot the n kernels with the largest total time, and summarize all other kernels in one line
    of text.

    `table` comes from `analyses.kernels`. Raises ValueError if the table is empty or has no origin.

    Bars are drawn from top to bottom. Each bar has its name above it, which leaves room for long
    names. The remaining kernels have no bar. Their bar would be the longest, although it doesn't
    represent a single kernel. The unit of the vertical axis is inches, so the size of names and
    bars doesn't depend on the number of bars.
    """
    origin = require(table, ["short_name", "category", "calls", "total_ns", "percent"], "kernels")
    names = table["short_name"]
    if "device" in table.columns:
        places = [place_label(row.rank, row.device) for row in table.itertuples()]
        names = names + [f" ({place})" if place else "" for place in places]
    looks = table["category"].map(style.CATEGORY_LOOK)
    ranked = table.assign(shown_name=names, look=looks)
    ordered = ranked.sort_values("total_ns", ascending=False, kind="stable")
    shown, rest = ordered.head(n), ordered.iloc[n:]
    categories = set(shown["category"])
    legend = {name: look for name, look in style.CATEGORY_LOOK.items() if name in categories}
    row_inches = _NAME_INCHES + _BAR_INCHES + _GAP_INCHES
    height = row_inches * len(shown) + (_NAME_INCHES + _GAP_INCHES) * bool(len(rest))
    longest = shown["total_ns"].max()
    unit, size = axis_unit(longest)
    above = 1.0 + 0.3 + 0.35 * bool(title)
    name_look = {"va": "bottom", "parse_math": False, "gid": "row name"}
    with settings():
        figure, (axes,) = new_figure(origin, height=above + height, title=title)
        bottom = _NAME_INCHES
        for row in shown.itertuples():
            axes.text(0, bottom, f" {row.shown_name}", **name_look)
            (color, hatch), length = row.look, row.total_ns / size
            middle = bottom + _BAR_INCHES / 2
            look = {"height": 0.85 * _BAR_INCHES, "color": color, "hatch": hatch, **OUTLINE}
            axes.barh(middle, length, **look)
            text = _numbers(row.total_ns, row.percent, row.calls)
            note(axes, text, (length, middle), color=style.MUTED_TEXT)
            bottom += row_inches
        if len(rest):
            text = _numbers(*rest[["total_ns", "percent", "calls"]].sum())
            text = f" {len(rest)} other kernels, without a bar: {text}"
            axes.text(0, bottom, text, **name_look)
        axes.set_ylim(height, 0)
        # Leave about a third of the longest bar's length for the text at its end.
        axes.set_xlim(0, max(longest, 1) / size * 1.35)
        hide_left(axes)
        axes.set_xlabel(f"total time, {unit}")
        axes.grid(axis="x", color="#E0E0E0", linewidth=0.8)
        axes.set_axisbelow(True)
        add_legend(axes, legend)
    total, first = duration_text(ranked["total_ns"].sum()), shown.iloc[0]
    figure.alternative_text = (
        f"Bars of the {len(shown)} kernels with the largest total time, out of {len(ranked)} with"
        f" {total} in total. The largest is {first.shown_name} ({first.category}) with"
        f" {duration_text(first.total_ns)}, {first.percent:.0f}%, in {_calls(first.calls)}."
    )
    return figure


def _numbers(total_ns: float, share: float, calls: float) -> str:
    return f"{duration_text(total_ns)}   {share:.1f}%   {_calls(int(calls))}"


def _calls(count: int) -> str:
    return f"{count:,} call{'s' if count != 1 else ''}"
