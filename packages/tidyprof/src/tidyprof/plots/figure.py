"""A figure that always keeps the origin of its numbers and contains a description of its
content.
"""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tidyprof.escaping import html_text, typeset
from tidyprof.plots import style, viewer

_DPI = 150
_SCREEN_DPI = 96
_WIDTH_POINTS = 72 * style.WIDTH_INCHES
_CORNER_WRAP = int(_WIDTH_POINTS / (0.56 * style.POINTS))
_TITLE_WRAP = int(_WIDTH_POINTS / (0.7 * style.TITLE_POINTS))
"""Maximum number of characters per line in the corner, and in the bold title."""

_CORNER = "origin"
"""ID of the text in the corner."""

_LEGEND_POINTS = 0.85 * _WIDTH_POINTS
_HANDLE_POINTS = 5 * style.POINTS
"""Length of a line in the legend, and the additional length of a legend entry next to its name."""


OUTLINE = {"edgecolor": style.TEXT, "linewidth": 0.6}
"""Outline of a bar."""


class TidyFigure(Figure):
    """A matplotlib figure with a text alternative. Its corner shows the origin of the numbers.

    - origin: the text in the corner.
    - alternative_text: the sentences that describe the plotted data.
    - closer: the data from `viewer` for the viewer that opens from the figure.

    A notebook shows the figure as an image, with the alternative text as its `alt`. CSS
    darkens the image on a dark page.
    """

    def __init__(self, *args: Any, origin: str = "", **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.origin = origin
        self.alternative_text = ""
        self.closer = ""

    def restate(self, origin: str) -> None:
        """Replace the text in the corner, for example with a shorter text. `origin` doesn't
        change.
        """
        for text in self.texts:
            if text.get_gid() == _CORNER:
                text.set_text("\n".join(_corner_lines(origin)))

    def _repr_html_(self) -> str:
        text = html_text(self.alternative_text)
        width = round(self.get_size_inches()[0] * _SCREEN_DPI)
        image = f'src="data:image/png;base64,{_image(self)}" width="{width}"'
        opened = f"{viewer.panel(self.closer)}{viewer.script()}" if self.closer else ""
        return (
            f'<img alt="{text}" class="tidy-figure" style="max-width:100%" {image}>'
            f"{style.UNTRUSTED}<style>{style.DARK_RULES}</style>{opened}"
        )


def _image(figure: Figure) -> str:
    """Return the figure as base64-encoded PNG."""
    image = io.BytesIO()
    save(figure, image, "png")
    return base64.b64encode(image.getvalue()).decode("ascii")


def origin_of(table: pd.DataFrame) -> str:
    """Return the origin of a table.

    Raises ValueError if the table has lost its origin, because numbers without an origin must not
    be plotted.
    """
    origin = str(table.attrs.get("origin", "")).strip()
    if not origin:
        raise ValueError(
            "the table has no origin for its numbers; plot the result of an analysis, "
            'or set table.attrs["origin"] to a tidyprof.Origin'
        )
    return origin


def require(table: pd.DataFrame, columns: list[str], made_by: str) -> str:
    """Return the origin of a table.

    Raises ValueError if one of these columns is missing, if the table has no rows, or if the table
    has lost its origin.
    """
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise ValueError(
            f"the table lacks {', '.join(missing)}; create it with tidyprof.analyses.{made_by}"
        )
    if not len(table):
        raise ValueError(f"there is nothing to plot: the table of {made_by} is empty")
    return origin_of(table)


def new_figure(
    origin: str, height: float, rows: int = 1, title: str | None = None
) -> tuple[TidyFigure, list[Axes]]:
    """Return a figure with `rows` axes below each other, a title that states the finding, and the
    origin in the corner.

    `height` is in inches and doesn't include the lines in the corner. Call this function inside
    `settings()`.
    """
    lines = _corner_lines(origin)
    footer = (len(lines) * 1.3 + 0.9) * style.POINTS / 72
    figure = TidyFigure(figsize=(style.WIDTH_INCHES, height + footer), dpi=_DPI, origin=origin)
    rectangle = (0, footer / (height + footer), 1, height / (height + footer))
    figure.set_layout_engine("constrained", rect=rectangle)
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0].tolist()
    if title:
        text = "\n".join(textwrap.wrap(title, _TITLE_WRAP))
        figure.suptitle(
            text,
            x=0.01,
            ha="left",
            fontsize=style.TITLE_POINTS,
            fontweight="bold",
            parse_math=False,
        )
    figure.text(
        0.995,
        0.006,
        "\n".join(lines),
        ha="right",
        va="bottom",
        fontsize=style.POINTS,
        color=style.MUTED_TEXT,
        parse_math=False,
        gid=_CORNER,
    )
    return figure, axes


def _corner_lines(origin: str) -> list[str]:
    """Return the lines of an origin with true minus signs. No line starts with `%`."""
    return textwrap.wrap(typeset(origin), _CORNER_WRAP)


def add_legend(axes: Axes, looks: Mapping[str, tuple[str, str]]) -> None:
    """Add a legend above the axes so that it doesn't hide data.

    - looks: the color and hatch for each name.
    """
    handles = [
        Patch(facecolor=color, hatch=hatch, **OUTLINE, label=name)
        for name, (color, hatch) in looks.items()
    ]
    legend_above(axes, handles)


def legend_above(axes: Axes, handles: Sequence[Artist]) -> None:
    """Draw a legend of these labeled handles above the axes.

    If there are no handles, no legend is drawn.
    """
    if not handles:
        return
    lengths = [
        _HANDLE_POINTS + style.CHARACTER_POINTS * len(str(handle.get_label())) for handle in handles
    ]
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=max(1, int(_LEGEND_POINTS / max(lengths))),
        borderaxespad=0.3,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def note(axes: Axes, text: str, place: tuple[float, float], points: float = 6, **look: Any) -> None:
    """Write text next to a place in data coordinates, this many points to the right."""
    look = {"textcoords": "offset points", "va": "center_baseline"} | look
    axes.annotate(text, place, xytext=(points, 0), **look)


def hide_left(axes: Axes) -> None:
    """Remove the ticks and the line of the vertical axis."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def label_rows(axes: Axes, labels: Sequence[str], margin: float = 0.45) -> None:
    """Name the rows of a plot from top to bottom.

    - margin: the room above and below the rows, in addition to half a row.
    """
    axes.set_yticks(range(len(labels)), labels)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels) - 1 + margin, -margin)


def settings() -> Any:
    """Return a context in which matplotlib uses the settings from `style`."""
    return mpl.rc_context(dict(style.SETTINGS))


def describe(figure: Figure) -> str:
    """Return the text alternative of a figure.

    Raises ValueError if the figure has no text alternative.
    """
    text = getattr(figure, "alternative_text", "")
    if not text:
        raise ValueError(
            "this figure has no text alternative because tidyprof.plots didn't create it"
        )
    return text


def save(figure: Figure, target: str | PathLike[str] | Any, format: str | None = None) -> None:
    """Write a figure as PNG or SVG, depending on the file name. The same data always produces the
    same bytes.
    """
    kind = format or str(target).rpartition(".")[2].lower()
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    if kind not in metadata:
        raise ValueError(f"can't save a figure as {str(target)!r}; use .png or .svg")
    with settings():
        figure.savefig(target, format=kind, dpi=_DPI, metadata=metadata[kind])


_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


def axis_unit(longest_ns: float) -> tuple[str, float]:
    """Return the unit for an axis that ends at this value, and the length of the unit in
    nanoseconds.
    """
    return next((unit for unit in _UNITS if longest_ns >= unit[1]), _UNITS[-1])


def duration_text(nanoseconds: float) -> str:
    """Format a duration with three significant digits and a suitable unit."""
    for unit, size in _UNITS:
        if abs(nanoseconds) >= size:
            return f"{three_digits(nanoseconds / size)} {unit}"
    return f"{nanoseconds:.0f} ns"


def three_digits(value: float) -> str:
    """Format a number with three significant digits or two decimal places, for example 0.90, 1.50,
    15.0 or 150.
    """
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f}"


def place_label(rank: Any, device: Any) -> str:
    """Return `rank 0, device 2` or the known part of this label."""
    parts = [
        f"{word} {int(value)}"
        for word, value in (("rank", rank), ("device", device))
        if not pd.isna(value)
    ]
    return ", ".join(parts)
