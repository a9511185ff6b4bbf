"""Plots that rank the largest kernels and operators by their time."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import (
    TidyFigure,
    add_legend,
    axis_unit,
    duration_text,
    new_figure,
    origin_of,
    place_label,
    require,
    settings,
)

_NAME_INCHES = 0.25
_BAR_INCHES = 0.23
_GAP_INCHES = 0.08


@dataclass(frozen=True)
class _Bar:
    """A bar with its length in nanoseconds, the text at its end, its color and its hatch."""

    length_ns: float
    text: str
    look: tuple[str, str]


_Rows = list[tuple[str, _Bar | None]]
"""A list of names with a bar below each name."""


def top_kernels(table: pd.DataFrame, n: int = 10, title: str | None = None) -> TidyFigure:
    """Plot the n kernels with the largest total time, and summarize all other kernels in one line
    of text.

    `table` comes from `analyses.kernels`. Raises ValueError if the table is empty or has no origin.
    """
    require(table, ["short_name", "category", "calls", "total_ns", "percent"], "kernels")
    origin = origin_of(table)
    names = table["short_name"]
    if "device" in table.columns:
        places = [place_label(row.rank, row.device, True) for row in table.itertuples()]
        names = names + [f" ({place})" if place else "" for place in places]
    looks = table["category"].map(style.CATEGORY_LOOK)
    ranked = table.assign(shown_name=names, look=looks)
    rows, shown = _largest(ranked, "total_ns", n, "kernels")
    legend = {
        name: look for name, look in style.CATEGORY_LOOK.items() if name in set(shown["category"])
    }
    first = shown.iloc[0]
    words = (
        f"{_summary(shown, table, 'total_ns', 'kernels', 'total time')}. The largest is"
        f" {first.shown_name} ({first.category}) with {duration_text(first.total_ns)},"
        f" {first.percent:.0f}%, in {_calls(first.calls)}."
    )
    return _ranked(rows, origin, "total time", title, words, legend)


def top_operators(table: pd.DataFrame, n: int = 10, title: str | None = None) -> TidyFigure:
    """Plot the n operators with the largest self time, and summarize all other operators in one
    line of text.

    `table` comes from `analyses.operators`. Raises ValueError if the table is empty or has no
    origin.
    """
    require(table, ["name", "calls", "self_ns", "percent"], "operators")
    origin = origin_of(table)
    ranked = table.assign(shown_name=table["name"], look=[(style.BLUE, "")] * len(table))
    rows, shown = _largest(ranked, "self_ns", n, "operators")
    first = shown.iloc[0]
    words = (
        f"{_summary(shown, table, 'self_ns', 'operators', 'self time')} on the host. The largest is"
        f" {first.shown_name} with {duration_text(first.self_ns)}, {first.percent:.0f}%, in"
        f" {_calls(first.calls)}."
    )
    return _ranked(rows, origin, "self time on the host", title, words, {})


def _largest(ranked: pd.DataFrame, column: str, n: int, what: str) -> tuple[_Rows, pd.DataFrame]:
    """Return the rows for the n largest items and a row for the remaining items. Also return the
    table of the n largest items.

    The remaining items have no bar. Their bar would be the longest, although it doesn't represent a
    single item.
    """
    ordered = ranked.sort_values(column, ascending=False, kind="stable")
    shown, rest = ordered.head(n), ordered.iloc[n:]
    rows: _Rows = [
        (name, _Bar(length, f"{duration_text(length)}   {share:.1f}%   {_calls(calls)}", look))
        for name, length, share, calls, look in zip(
            shown["shown_name"],
            shown[column],
            shown["percent"],
            shown["calls"],
            shown["look"],
            strict=True,
        )
    ]
    if len(rest):
        length, share, calls = (rest[name].sum() for name in (column, "percent", "calls"))
        text = f"{duration_text(length)}   {share:.1f}%   {_calls(calls)}"
        rows.append((f"{len(rest)} other {what}, without a bar: {text}", None))
    return rows, shown


def _calls(count: int) -> str:
    return f"{count:,} call{'s' if count != 1 else ''}"


def _summary(shown: pd.DataFrame, table: pd.DataFrame, column: str, what: str, measure: str) -> str:
    total = duration_text(table[column].sum())
    if len(shown) == len(table):
        return f"Bars of all {len(table)} {what} by {measure}, {total} in total"
    return (
        f"Bars of the {len(shown)} {what} with the largest {measure}, out of {len(table)};"
        f" together they take {shown['percent'].sum():.0f}% of {total}"
    )


def _ranked(
    rows: _Rows,
    origin: str,
    label: str,
    title: str | None,
    words: str,
    legend: dict[str, tuple[str, str]],
) -> TidyFigure:
    """Draw horizontal bars from top to bottom. Each bar has its name above it, which leaves room
    for long names.

    The unit of the vertical axis is inches, so the size of names and bars doesn't depend on the
    number of bars.
    """
    height = sum(_NAME_INCHES + (_BAR_INCHES if bar else 0) + _GAP_INCHES for _, bar in rows)
    longest = max(bar.length_ns for _, bar in rows if bar)
    unit, size = axis_unit(longest)
    with settings():
        figure, (axes,) = new_figure(
            origin, height=1.0 + 0.3 * bool(legend) + 0.35 * bool(title) + height, title=title
        )
        top = 0.0
        for name, bar in rows:
            axes.text(
                0, top + _NAME_INCHES, f" {name}", va="bottom", parse_math=False, gid="row name"
            )
            top += _NAME_INCHES
            if bar:
                _draw(axes, top + _BAR_INCHES / 2, bar, size)
                top += _BAR_INCHES
            top += _GAP_INCHES
        axes.set_ylim(height, 0)
        # Leave about a third of the longest bar's length for the text at its end.
        axes.set_xlim(0, max(longest, 1) / size * 1.35)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"{label}, {unit}")
        axes.grid(axis="x", color="#E0E0E0", linewidth=0.8)
        axes.set_axisbelow(True)
        if legend:
            add_legend(axes, legend)
    figure.alternative_text = words
    return figure


def _draw(axes: Axes, middle: float, bar: _Bar, size: float) -> None:
    color, hatch = bar.look
    length = bar.length_ns / size
    axes.barh(
        middle,
        length,
        height=0.85 * _BAR_INCHES,
        color=color,
        hatch=hatch,
        edgecolor=style.TEXT,
        linewidth=0.6,
    )
    axes.annotate(
        bar.text,
        (length, middle),
        xytext=(6, 0),
        textcoords="offset points",
        va="center_baseline",
        color=style.MUTED_TEXT,
    )
