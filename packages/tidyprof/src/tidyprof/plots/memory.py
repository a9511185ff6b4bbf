"""A plot of the memory in PyTorch's allocator after each change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib import colors as mcolors
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from tidyprof.plots import style
from tidyprof.plots.bars import room_for
from tidyprof.plots.figure import TidyFigure, legend_above, new_figure, settings
from tidyprof.tables.contract import Profile

LOOKS = style.looks("memory")
"""The color and dashes of each quantity. The names of the quantities come from the readers.
Reserved memory comes first because a segment exists before its tensors.
"""

_AXIS_INCHES = 0.94 * style.WIDTH_INCHES
"""Length of the axis, which is the figure's width without the labels on the left."""

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


def memory(
    profile: Profile,
    names: Sequence[str] | None = None,
    title: str | None = None,
    phases: pd.DataFrame | None = None,
) -> TidyFigure:
    """Plot a stepped line for each quantity. The line has steps because an allocator's memory stays
    constant between changes.

    The horizontal axis counts the changes, as in PyTorch's own viewer. On a time axis, a slow first
    step would make all other steps invisible.

    - names: the quantities of `profile.counters` to plot, which must be in `LOOKS`. None selects
      all such quantities in the profile.
    - phases: a table of time spans to shade, sorted by time. Each row has a name, `start_ns` and
      `duration_ns`.

    Raises ValueError if one of the names is missing from the profile, or if the profile contains
    none of the quantities in `LOOKS`. Also raises ValueError if the profile has several ranks or
    devices.
    """
    table = _changes(profile, names)
    largest = table["value"].max()
    unit, size = next((unit for unit in UNITS if largest >= unit[1]), UNITS[-1])
    bands = [] if phases is None else _bands(table, phases)
    with settings():
        figure, (axes,) = new_figure(str(profile.origin), 3.0, title=title)
        _shade(axes, bands, len(table))
        for name, changes in table.groupby("name", sort=False):
            color, dashes = LOOKS[name]
            # The last value extends to the end of the axis.
            numbers = [*changes.index, len(table)]
            heights = [*changes["value"] / size, changes["value"].iloc[-1] / size]
            look = {"drawstyle": "steps-post", "color": color, "linestyle": dashes, "label": name}
            axes.plot(numbers, heights, **look)
        axes.set(xlim=(0, len(table)), ylim=(0, (1.35 if bands else 1.08) * largest / size or 1))
        axes.set(xlabel="change number", ylabel=f"memory, {unit}")
        lines, _ = axes.get_legend_handles_labels()
        legend_above(axes, lines)
    last = table.groupby("name", sort=False)["value"].agg(["max", "last"]) / size
    said = ", the ".join(
        f"{name} reaches {one['max']:,.1f} {unit} and ends at {one['last']:,.1f}"
        for name, one in last.iterrows()
    )
    shaded = f", shaded in this order: {', '.join(name for name, *_ in bands)}" if bands else ""
    figure.alternative_text = f"Memory steps over {len(table):,} changes{shaded}. The {said}."
    return figure


def _bands(table: pd.DataFrame, phases: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Return the name of each phase, the number of its first change, and the number after its last
    change.

    Phases without changes are left out.
    """
    begin, end = phases["start_ns"], phases["start_ns"] + phases["duration_ns"]
    first_change, after_last = (table["time_ns"].searchsorted(times) for times in (begin, end))
    return [
        (str(name), int(first), int(after))
        for name, first, after in zip(phases["name"], first_change, after_last, strict=True)
        if after > first
    ]


def _shade(axes: Axes, bands: Sequence[tuple[str, int, int]], changes: int) -> None:
    """Draw a light background for each phase, a line at its start, and its name if there is room.

    Names that have no room are left out.
    """
    look: dict[str, Any] = {"transform": axes.get_xaxis_transform()}
    grounds = [mcolors.to_rgba(_color(name), 0.18) for name, *_ in bands]
    # Use two collections for all phases because thousands of separate artists take a minute.
    spans = [[(first, 0), (first, 1), (last, 1), (last, 0)] for _, first, last in bands]
    starts = [span[:2] for span in spans]
    lines = LineCollection(starts, colors=style.MUTED_TEXT, linewidths=0.5, **look)
    fills = PolyCollection(spans, facecolors=grounds, linewidths=0, **look)
    for shades in (fills, lines):
        axes.add_collection(shades, autolim=False)
    look |= {"va": "top", "ha": "center", "parse_math": False}
    for name, first, last in bands:
        if room_for(name, (last - first) / changes * _AXIS_INCHES) == name:
            axes.text((first + last) / 2, 0.98, name, **look)


def _color(phase: str) -> str:
    return style.PART_LOOK.get(phase, style.PART_LOOK["other"])[0]


def _changes(profile: Profile, names: Sequence[str] | None) -> pd.DataFrame:
    """Return the samples that differ from the previous sample of the same quantity. The samples are
    numbered by time.
    """
    table = profile.counters.astype({"name": object})
    chosen = table["name"].isin([*LOOKS] if names is None else [*names])
    table = table[chosen & table["name"].isin([*LOOKS])]
    # Samples at the same time keep the order of LOOKS. Each first difference is NaN, which isn't 0,
    # so a first sample counts as a change.
    table = table.sort_values("name", key=lambda name: name.map([*LOOKS].index), kind="stable")
    changes = table[table.groupby("name")["value"].diff() != 0]
    missing = sorted({*(names or ())} - {*changes["name"]})
    if missing or not len(changes):
        raise ValueError(
            f"this profile has no {', '.join(missing) or 'PyTorch memory'}; record with"
            " `profile_memory=True`, or read an allocator snapshot"
        )
    columns = [column for column in ("rank", "device") if column in changes]
    if len(changes[columns].drop_duplicates()) > 1:
        raise ValueError(
            "the profile has memory of several ranks or devices; read one rank, and select the"
            " rows of one device in `profile.counters`"
        )
    return changes.sort_values("time_ns", kind="stable", ignore_index=True)
