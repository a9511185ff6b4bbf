"""Horizontal bars that are divided into the parts of each row's time, and names on bars that have
enough room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.analyses.budget import part_words
from tidyprof.plots import style
from tidyprof.plots.figure import OUTLINE, add_legend, label_rows, note

_LABEL_SHARE = 0.045
"""Minimum share of the axis that a part must cover to have a percentage label."""

_SEEN_SHARE = 0.003
"""Minimum share of the axis that a part must cover to be visible, which means wider than its
outline.
"""

_MIN_CHARACTERS = 8
"""Minimum number of characters in a cut name. Shorter names, such as `aut…`, aren't helpful."""

FOLDED = "… "
"""Prefix for the name of a function that shares its box with its callers."""


def stack(
    axes: Axes,
    parts: pd.DataFrame,
    looks: Mapping[str, tuple[str, str]],
    labels: Sequence[str],
    ends: Sequence[str],
    size: float,
    room: float,
) -> None:
    """Draw a bar for each row of a table. Each bar is divided into parts, and a legend lists the
    visible parts.

    - parts: a table with one column per part, in nanoseconds.
    - looks: the color and hatch of each part, in order from left to right.
    - labels, ends: the text before and after each row's bar.
    - size: the number of nanoseconds per axis unit.
    - room: the ratio of the axis length to the longest bar. A larger ratio leaves more room for the
      text after the bars.
    """
    parts = parts[list(looks)] / size
    totals = parts.sum(axis=1)
    longest = totals.max()
    axes.set_xlim(0, room * longest)
    for row, (lengths, total, end) in enumerate(zip(parts.to_numpy(), totals, ends, strict=True)):
        left = 0.0
        for length, (color, hatch) in zip(lengths, looks.values(), strict=True):
            if length:
                axes.barh(row, length, left=left, height=0.7, color=color, hatch=hatch, **OUTLINE)
            if length > _LABEL_SHARE * room * longest:
                share = f"{100 * length / total:.0f}%"
                _write(axes, left + length / 2, row, share, (color, hatch))
            left += length
        # Hide a line across the bars behind the text.
        note(axes, end, (left, row), bbox={"facecolor": style.GROUND, "linewidth": 0, "pad": 1.5})
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])
    axes.spines["bottom"].set_bounds(0, longest)
    label_rows(axes, labels, 0.6)
    is_seen = parts.max() > _SEEN_SHARE * room * longest
    add_legend(axes, {part_words(part): looks[part] for part in looks if is_seen[part]})


def name_bar(
    axes: Axes, x: float, y: float, name: str, inches: float, look: tuple[str, str]
) -> None:
    """Write a name on a bar in the longest form that fits. If no helpful form fits, write
    nothing.
    """
    if text := room_for(name, inches):
        _write(axes, x, y, text, look)


def room_for(name: str, inches: float) -> str:
    """Return the form of a name that fits on a bar of this length, or an empty string if no form
    fits.
    """
    return fitting(name, int(inches * 72 / style.CHARACTER_POINTS - 1))


def fitting(name: str, room: int) -> str:
    """Return a form of the name with at most `room` characters.

    The result is the first of these forms that fits: the whole name, the name without its file, the
    name without outer namespaces, or a cut name. If fewer than 8 characters would remain, the
    result is an empty string.
    """
    folded = name.partition(" (")[0]
    function = folded.removeprefix(FOLDED)
    last = (function.partition("<")[0] or function).rpartition("::")[2]
    whole = next((form for form in (name, folded, function, last) if len(form) <= room), "")
    return whole or (f"{last[: room - 1]}…" if room >= _MIN_CHARACTERS else "")


def _write(axes: Axes, x: float, y: float, text: str, look: tuple[str, str]) -> None:
    """Write text on a bar. On a hatched bar, the text has a plain background so that the hatch
    doesn't cross it.
    """
    color, hatch = look
    box = {"boxstyle": "square,pad=0.25", "facecolor": color, "edgecolor": "none"}
    words = {"ha": "center", "va": "center_baseline", "color": style.text_on(color)}
    axes.text(x, y, text, **words, parse_math=False, bbox=box if hatch else None, clip_on=True)
