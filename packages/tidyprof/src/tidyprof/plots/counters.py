"""Plots of the values that a monitor sampled over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import (
    TidyFigure,
    axis_unit,
    duration_text,
    legend_above,
    new_figure,
    settings,
)
from tidyprof.tables.contract import Profile

NAMES = ("gpu_busy", "power", "clock_graphics", "memory_used")
"""Quantities of a GPU log that are drawn by default."""

LINES = [*style.looks("device").values()]
"""Color and dashes of each device in order. If a plot has more devices than this list, the
sequence repeats.
"""

LIMITS = {"%": (0, 100)}
"""The axis limits of each unit. An axis extends beyond its limits if necessary, because the share
of one core may exceed 100%. Other axes start at 0 and fit the data.
"""

SCALES = {"bytes": ("GB", 1e9)}
"""For each unit in the table, the unit on the axis and the size of that unit in table units."""

LONG_NAME = 14
"""Maximum length of a name that fits on the same line as its unit next to a panel."""


def counters(
    profile: Profile,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> TidyFigure:
    """Plot one panel per quantity over time. Each panel has one line per device.

    - names: the quantities of `profile.counters`, in panel order. None selects all quantities from
      `NAMES` that the profile contains.

    Raises ValueError if `names` is None but the log contains no GPU samples. Also raises ValueError
    for an unknown quantity.
    """
    table, names = _chosen(profile, names)
    begin, end = table["time_ns"].min(), table["time_ns"].max()
    unit, size = axis_unit(end - begin)
    numbers = sorted(table["device"].dropna().unique().tolist())
    with settings():
        figure, panes = new_figure(str(profile.origin), 0.9 + 1.6 * len(names), len(names), title)
        for axes, name in zip(panes, names, strict=True):
            _panel(axes, table[table["name"] == name], numbers, begin, size)
            axes.set_xlim(0, max(end - begin, 1) / size)
            if axes is not panes[-1]:
                axes.set_xticklabels([])
        panes[-1].set_xlabel(f"time since the first sample, {unit}")
        if len(numbers) > 1:
            lines = [
                panes[0].plot([], [], label=f"device {int(number)}", **_look(index))
                for index, number in enumerate(numbers)
            ]
            legend_above(panes[0], [line for (line,) in lines])
    figure.alternative_text = _words(table, names, end - begin)
    return figure


def _chosen(profile: Profile, names: Sequence[str] | None) -> tuple[pd.DataFrame, list[str]]:
    """Return the samples to draw and the quantities of these samples."""
    table = profile.counters.astype({"name": object, "unit": object})
    known = sorted(table["name"].unique())
    chosen = [name for name in NAMES if name in known] if names is None else list(names)
    missing = [name for name in chosen if name not in known]
    if missing or not chosen:
        raise ValueError(
            f"the log has no samples of {', '.join(missing) or 'GPUs'}; its quantities are"
            f" {', '.join(known) or 'none'}"
        )
    table = table[table["name"].isin(chosen)]
    return table.sort_values("time_ns", kind="stable"), chosen


def _panel(axes: Axes, rows: pd.DataFrame, numbers: list[int], begin: int, size: float) -> None:
    """Draw one quantity with one line per device, or with a single line for the machine."""
    unit = "" if rows["unit"].isna().all() else str(rows["unit"].dropna().iloc[0])
    shown, scale = SCALES.get(unit, (unit, 1.0))
    for device, samples in rows.groupby("device", dropna=False):
        index = 0 if pd.isna(device) else numbers.index(device)
        times = (samples["time_ns"] - begin) / size
        axes.plot(times, samples["value"] / scale, **_look(index), clip_on=False)
    low, high = LIMITS.get(unit, (0, 0))
    axes.set_ylim(low, max(high, 1.08 * rows["value"].max() / scale) or 1)
    name = _plain(rows["name"].iloc[0])
    between = ",\n" if len(name) > LONG_NAME else ", "
    axes.set_ylabel(f"{name}{between}{shown}" if shown else name)


def _look(index: int) -> dict[str, Any]:
    color, dashes = LINES[index % len(LINES)]
    width = 2.6 if dashes == ":" else 1.6  # dots look fainter than they are
    # A dot shows a single sample.
    line = {"color": color, "linestyle": dashes, "linewidth": width}
    return {**line, "marker": ".", "markersize": 4}


def _plain(name: str) -> str:
    """Return the quantity's display name."""
    return name.replace("_", " ").replace("gpu", "GPU").replace("cpu", "CPU")


def _words(table: pd.DataFrame, names: list[str], length_ns: int) -> str:
    first = table.loc[table["name"] == names[0], "value"]
    return (
        f"Line plot of {', '.join(map(_plain, names))} over {duration_text(length_ns)}. The values"
        f" of {_plain(names[0])} go from {first.min():,.0f} to {first.max():,.0f}, with a mean of"
        f" {first.mean():,.0f}."
    )
