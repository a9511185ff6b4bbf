"""Plots of steps, which show step times and the parts of each step."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import MaxNLocator

from tidyprof.analyses.budget import budget_parts, part_words
from tidyprof.plots import style
from tidyprof.plots.bars import stack
from tidyprof.plots.figure import (
    OUTLINE,
    TidyFigure,
    axis_unit,
    duration_text,
    new_figure,
    note,
    place_label,
    require,
    settings,
    three_digits,
)

MAX_ROWS = 24
"""Maximum number of bars. If a table exceeds this limit, the plot shows the mean step of each rank
and device.
"""

SLOW = 1.5
"""Multiple of the median step time above which a step is marked as slow."""

CUT = 4
"""Maximum length of a bar as a multiple of the median. If the first step took twenty times the
median, all other bars would shrink to slivers.
"""

_LABELED = 5


def step_budget(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Plot a stacked bar for each step, in which the parts add up to the step time.

    `table` comes from `analyses.step_budget`. If the table has more than `MAX_ROWS` rows, the plot
    shows the mean step of each rank and device. A line across the bars marks the step time without
    the profiler if the table's attrs contain it (`unprofiled_step_ns`). Raises ValueError if the
    table is empty or has no origin.
    """
    origin = require(table, ["rank", "device", "step", "duration_ns"], "step_budget")
    parts = budget_parts(table)
    columns = [f"{part}_ns" for part in parts]
    rows = table if len(table) <= MAX_ROWS else _mean_steps(table, columns)
    shown = rows[columns].set_axis(parts, axis="columns")
    ends = [duration_text(total) for total in shown.sum(axis=1)]
    unit, size = axis_unit(rows["duration_ns"].max())
    unprofiled_step_ns = table.attrs.get("unprofiled_step_ns")
    words = _budget_words(table, parts)
    with settings():
        figure, (axes,) = new_figure(origin, height=1.9 + 0.45 * len(rows), title=title)
        looks = {part: style.PART_LOOK[part] for part in parts}
        stack(axes, shown, looks, _row_labels(rows), ends, size, room=1.08)
        label = f"time per part, {unit}"
        if unprofiled_step_ns is not None:
            # Other programs or a different clock may make it longer than every recorded step.
            right = max(axes.get_xlim()[1], 1.05 * unprofiled_step_ns / size)
            axes.set_xlim(right=right)
            axes.axvline(unprofiled_step_ns / size, color=style.TEXT, linestyle="--")
            label += f"; dashed line: {duration_text(unprofiled_step_ns)} without the profiler"
            words += f" A step takes {duration_text(unprofiled_step_ns)} without the profiler."
        axes.set_xlabel(label)
    figure.alternative_text = words
    return figure


def _row_labels(rows: pd.DataFrame) -> list[str]:
    ranks = rows["rank"].nunique(dropna=False)
    with_device = len(rows[["rank", "device"]].drop_duplicates()) > ranks
    labels = []
    for row in rows.itertuples():
        step = "whole trace" if pd.isna(row.step) else f"step {row.step}"
        rank, device = row.rank if ranks > 1 else None, row.device if with_device else None
        place = place_label(rank, device)
        name = row.step if isinstance(row.step, str) else step
        labels.append(f"{place}, {name}" if place else name)
    return labels


def _mean_steps(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    grouped = table.groupby(["rank", "device"], dropna=False)
    mean = grouped[["duration_ns", *columns]].mean().reset_index()
    return mean.assign(step=[f"mean of {count} steps" for count in grouped.size()])


def _budget_words(table: pd.DataFrame, parts: list[str]) -> str:
    total = 100 * table[[f"{part}_ns" for part in parts]].sum() / table["duration_ns"].sum()
    shares = [
        f"{part_words(str(name).removesuffix('_ns'))} {share:.0f}%"
        for name, share in total.sort_values(ascending=False).items()
        if share >= 0.5
    ]
    length = duration_text(table["duration_ns"].mean())
    return (
        f"Stacked bars of {len(table)} steps or traces, {length} on average. The parts in total:"
        f" {', '.join(shares)}."
    )


def step_times(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Plot the duration of each step, including warm-up steps. A line marks the median.

    `table` has the columns `step` and `duration_ns`. The table comes from `analyses.steps` or
    contains a trainer's own timings. Steps for which `part` is warmup are shown, but they don't
    count for the median. Steps that take more than `SLOW` times the median are marked and labeled.
    If a bar is longer than `CUT` times the median, it is cut off, and its label indicates this.
    Raises ValueError if the table is empty, has no origin or contains several ranks.
    """
    origin = require(table, ["step", "duration_ns"], "steps")
    if "rank" in table.columns and table["rank"].nunique() > 1:
        raise ValueError("the table contains the steps of several ranks; choose the rows of one")
    steady = table[table["part"] != "warmup"] if "part" in table.columns else table
    median = float((steady if len(steady) else table)["duration_ns"].median())
    highest = min(float(table["duration_ns"].max()), CUT * median)
    slow = (table["duration_ns"] > SLOW * median).to_numpy()
    number = table["step"].astype(int)
    unit, size = axis_unit(highest)
    with settings():
        figure, (axes,) = new_figure(origin, height=4.2, title=title)
        for chosen, color, hatch in ((~slow, style.BLUE, ""), (slow, style.ORANGE, "///")):
            heights = table["duration_ns"][chosen].clip(upper=highest) / size
            # If there are only a few steps, keep the bars narrow.
            look = {"width": 0.75 * min(1, len(table) / 8), "color": color, "hatch": hatch}
            axes.bar(number[chosen], heights, **look, **OUTLINE)
        for row in table[slow].nlargest(_LABELED, "duration_ns").itertuples():
            times = row.duration_ns / median
            text = f"{'↑' * (row.duration_ns > highest)}{times:.{int(times < 10)}f}×"
            place = (int(row.step), min(row.duration_ns, highest) / size)
            axes.annotate(text, place, xytext=(0, 3), textcoords="offset points", ha="center")
        axes.axhline(median / size, color=style.TEXT, linewidth=1.2, linestyle="--")
        look = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
        note(axes, f"median {three_digits(median / size)} {unit}", (1, median / size), 4, **look)
        axes.set_ylim(0, 1.12 * highest / size)
        axes.set_xlim(number.min() - 0.6, number.max() + 0.6)
        axes.set_xlabel("step")
        axes.set_ylabel(f"step time, {unit}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    slowest = table.loc[table["duration_ns"].idxmax()]
    figure.alternative_text = (
        f"Durations of {len(table)} steps with a median of {duration_text(median)};"
        f" {slow.sum() or 'none'} of them took more than {SLOW} times the median. The slowest is"
        f" step {int(slowest['step'])} with {duration_text(slowest['duration_ns'])}."
    )
    return figure
