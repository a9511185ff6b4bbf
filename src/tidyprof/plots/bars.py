"""Stacked bars from top to bottom: what each row's time consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import add_legend

_LABEL_SHARE = 0.045
"""Parts longer than this share of the axis have room for their percentage."""


def stack(
    axes: Axes,
    parts: pd.DataFrame,
    looks: Mapping[str, tuple[str, str]],
    labels: Sequence[str],
    ends: Sequence[str],
    size: float,
    room: float,
) -> None:
    """Draw a bar of parts for each row of a table, with a legend of the parts that occur.

    parts -- one column per part, ns. looks -- part -> colour and hatch, in order from left to right.
    labels, ends -- of each row, before and after its bar. size -- ns in the axis' unit.
    room -- length of the axis over that of the longest bar, for the texts at the ends.
    """
    longest = parts.sum(axis=1).max() / size
    axes.set_xlim(0, room * longest)
    for position, (lengths, end) in enumerate(zip(parts.to_dict("records"), ends, strict=True)):
        left, total = 0.0, sum(lengths.values()) / size
        for part, (colour, hatch) in looks.items():
            length = lengths[part] / size
            edge = {"edgecolor": style.TEXT, "linewidth": 0.6}
            axes.barh(position, length, left=left, height=0.7, color=colour, hatch=hatch, **edge)
            if length > _LABEL_SHARE * room * longest:
                _label(axes, left + length / 2, position, f"{100 * length / total:.0f} %", colour, hatch)
            left += length
        beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center_baseline"}
        axes.annotate(end, (left, position), fontsize=10, **beside)
    axes.set_yticks(range(len(parts)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(parts) - 0.4, -0.6)
    add_legend(axes, {style.part_label(part): look for part, look in looks.items() if parts[part].any()})


def _label(axes: Axes, x: float, y: float, text: str, colour: str, hatch: str) -> None:
    """Text on a bar; on a hatched one it gets a plain box, so that the lines don't cross it."""
    box = {"boxstyle": "square,pad=0.12", "facecolor": colour, "edgecolor": "none"} if hatch else None
    axes.text(x, y, text, ha="center", va="center_baseline", fontsize=10, color=style.text_on(colour), bbox=box)
