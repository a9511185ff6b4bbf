"""Bars from left to right: stacks of what each row's time consists of, and names on bars that have room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import add_legend

_LABEL_SHARE = 0.045
"""Parts longer than this share of the axis have room for their percentage."""

_SEEN_SHARE = 0.001
"""Parts shorter than this share of the longest bar are less than two pixels wide: no legend for what nobody sees."""

_NAME_POINTS = 9
_FEWEST_CHARACTERS = 4
_CHARACTER_WIDTH = 0.62
"""Of a character on average, in units of the font's size; measured on names of functions in DejaVu Sans."""


def stack(
    axes: Axes,
    parts: pd.DataFrame,
    looks: Mapping[str, tuple[str, str]],
    labels: Sequence[str],
    ends: Sequence[str],
    size: float,
    room: float,
) -> None:
    """Draw a bar of parts for each row of a table, with a legend of the parts that can be seen.

    parts -- one column per part, ns. looks -- part -> colour and hatch, in order from left to right.
    labels, ends -- of each row, before and after its bar. size -- ns in the axis' unit.
    room -- length of the axis over that of the longest bar, for the texts at the ends.
    """
    longest = parts.sum(axis=1).max() / size
    axes.set_xlim(0, room * longest)
    for position, (lengths, end) in enumerate(zip(parts.to_dict("records"), ends, strict=True)):
        left, total = 0.0, sum(lengths.values()) / size
        for part, (colour, hatch) in looks.items():
            if not (length := lengths[part] / size):
                continue
            edge = {"edgecolor": style.TEXT, "linewidth": 0.6}
            axes.barh(position, length, left=left, height=0.7, color=colour, hatch=hatch, **edge)
            if length > _LABEL_SHARE * room * longest:
                _write(axes, left + length / 2, position, f"{100 * length / total:.0f} %", (colour, hatch), 10)
            left += length
        beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center_baseline"}
        axes.annotate(end, (left, position), fontsize=10, **beside)
    axes.set_yticks(range(len(parts)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(parts) - 0.4, -0.6)
    seen = parts.max() / size > _SEEN_SHARE * longest
    add_legend(axes, {style.part_label(part): look for part, look in looks.items() if seen[part]})


def name_bar(axes: Axes, x: float, y: float, name: str, inches: float, look: tuple[str, str]) -> None:
    """A name on a bar of this length, cut to the room; none where fewer than four characters have room."""
    room = int(inches * 72 / (_NAME_POINTS * _CHARACTER_WIDTH) - 1)
    if room >= _FEWEST_CHARACTERS:
        _write(axes, x, y, name if len(name) <= room else f"{name[: room - 1]}…", look, _NAME_POINTS)


def _write(axes: Axes, x: float, y: float, text: str, look: tuple[str, str], points: float) -> None:
    """Text on a bar; on a hatched one it gets a plain box, so that the lines don't cross it."""
    colour, hatch = look
    box = {"boxstyle": "square,pad=0.1", "facecolor": colour, "edgecolor": "none"} if hatch else None
    axes.text(
        x, y, text, ha="center", va="center_baseline", fontsize=points, color=style.text_on(colour), parse_math=False,
        bbox=box, clip_on=True,
    )  # fmt: skip
