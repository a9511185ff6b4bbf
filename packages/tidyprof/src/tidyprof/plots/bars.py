"""Bars from left to right: stacks of the parts of each row's time, and names on bars that have
room for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.analyses.budget import part_words
from tidyprof.plots import style
from tidyprof.plots.figure import add_legend

_LABEL_SHARE = 0.045
"""Parts longer than this share of the axis have room for their percentage."""

_SEEN_SHARE = 0.003
"""Parts longer than this share of the axis are wider than their outline, so that a reader finds
them.
"""

_MIN_CHARACTERS = 8
"""A name that is cut to fewer letters than these tells nothing: `aut…`."""

FOLDED = "… "
"""Stands before the name of a function whose callers share its box."""

_TELL_NOTHING = ("operator", "operator()", "call", "run", "execute")
"""Names of functions that mean something only together with the scope before them."""


def stack(
    axes: Axes,
    parts: pd.DataFrame,
    looks: Mapping[str, tuple[str, str]],
    labels: Sequence[str],
    ends: Sequence[str],
    size: float,
    room: float,
) -> None:
    """Draw a bar of parts for each row of a table, with a legend of the parts that can be seen. The
    axis ends with the longest bar.

    parts -- one column per part, ns. looks -- part -> color and hatch, in order from left to
             right.
    labels, ends -- of each row, before and after its bar. size -- ns in the axis' unit.
    room -- length of the axis over that of the longest bar, for the texts at the ends.
    """
    longest = parts.sum(axis=1).max() / size
    axes.set_xlim(0, room * longest)
    least = _SEEN_SHARE * room * longest * size
    for position, (lengths, end) in enumerate(zip(parts.to_dict("records"), ends, strict=True)):
        left, total = 0.0, sum(lengths.values()) / size
        for part, (color, hatch) in looks.items():
            if not (length := lengths[part] / size):
                continue
            edge = {"edgecolor": style.TEXT, "linewidth": 0.6}
            axes.barh(position, length, left=left, height=0.7, color=color, hatch=hatch, **edge)
            if length > _LABEL_SHARE * room * longest:
                _write(
                    axes,
                    left + length / 2,
                    position,
                    f"{100 * length / total:.0f} %",
                    (color, hatch),
                )
            left += length
        beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center_baseline"}
        # A line across the bars goes on behind it.
        ground = {"facecolor": style.GROUND, "linewidth": 0, "pad": 1.5}
        axes.annotate(end, (left, position), bbox=ground, **beside)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])
    axes.spines["bottom"].set_bounds(0, longest)
    axes.set_yticks(range(len(parts)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(parts) - 0.4, -0.6)
    add_legend(
        axes,
        {part_words(part): look for part, look in looks.items() if parts[part].max() > least},
    )


def name_bar(
    axes: Axes, x: float, y: float, name: str, inches: float, look: tuple[str, str]
) -> None:
    """Write a name on a bar of this length, in the longest form that fits; nothing where no telling
    form fits.
    """
    if text := room_for(name, inches):
        _write(axes, x, y, text, look)


def room_for(name: str, inches: float) -> str:
    """The form of a name that a bar of this length has room for; "" where it has none."""
    return fitting(name, int(inches * 72 / style.CHARACTER_POINTS - 1))


def fitting(name: str, room: int) -> str:
    """A name in at most `room` characters: as it is, without the file behind it, without outer
    namespaces, or cut.

    "" if fewer than 8 characters of it would be left.
    """
    folded = name.partition(" (")[0]
    function = folded.removeprefix(FOLDED)
    outer, _, last = (function.partition("<")[0] or function).rpartition("::")
    if last in _TELL_NOTHING and outer:
        last = f"{outer.rpartition('::')[2]}::{last}"
    whole = next((form for form in (name, folded, function, last) if len(form) <= room), "")
    return whole or (f"{last[: room - 1]}…" if room >= _MIN_CHARACTERS else "")


def _write(axes: Axes, x: float, y: float, text: str, look: tuple[str, str]) -> None:
    """Text on a bar; on a hatched one it gets a plain box, so that the lines don't cross it."""
    color, hatch = look
    box = (
        {"boxstyle": "square,pad=0.25", "facecolor": color, "edgecolor": "none"} if hatch else None
    )
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center_baseline",
        color=style.text_on(color),
        parse_math=False,
        bbox=box,
        clip_on=True,
    )
