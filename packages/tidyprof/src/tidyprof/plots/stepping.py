"""Plots of steps, which show step times and the parts of each step."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tidyprof.analyses.budget import budget_parts, part_words
from tidyprof.plots import style
from tidyprof.plots.bars import stack
from tidyprof.plots.figure import (
    TidyFigure,
    axis_unit,
    duration_text,
    legend_above,
    new_figure,
    origin_of,
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


def step_budget(
    table: pd.DataFrame,
    title: str | None = None,
    unprofiled_step_ns: float | tuple[float, float] | None = None,
) -> TidyFigure:
    """Plot a stacked bar for each step, in which the parts add up to the step time.

    `table` comes from `analyses.step_budget`. If the table has more than `MAX_ROWS` rows, the plot
    shows the mean step of each rank and device. `unprofiled_step_ns` is the step time without the
    profiler, or a range of such times. The time is drawn as a line across the bars. None selects
    the time in the table's attrs, which exists only if the profile contains it. Raises ValueError
    if the table is empty or has no origin.
    """
    require(table, ["rank", "device", "step", "duration_ns"], "step_budget")
    origin = origin_of(table)
    parts = budget_parts(table)
    columns = [f"{part}_ns" for part in parts]
    rows = table if len(table) <= MAX_ROWS else _mean_steps(table, columns)
    shown = rows[columns].set_axis(parts, axis="columns")
    ends = [duration_text(total) for total in shown.sum(axis=1)]
    unit, size = axis_unit(rows["duration_ns"].max())
    with settings():
        figure, (axes,) = new_figure(origin, height=1.9 + 0.45 * len(rows), title=title)
        looks = {part: style.PART_LOOK[part] for part in parts}
        stack(axes, shown, looks, _row_labels(rows), ends, size, room=1.08)
        axes.set_xlabel(f"time per part, {unit}")
        untraced = (
            table.attrs.get("unprofiled_step_ns")
            if unprofiled_step_ns is None
            else unprofiled_step_ns
        )
        said = "" if untraced is None else _across(axes, untraced, size)
    figure.alternative_text = _budget_words(table, parts) + said
    return figure


def _across(axes: Axes, unprofiled_step_ns: float | tuple[float, float], size: float) -> str:
    """Draw a line across all bars at the step time without the profiler. For a range, draw two
    lines.

    Returns a description of the lines in words.
    """
    ends = unprofiled_step_ns if isinstance(unprofiled_step_ns, tuple) else (unprofiled_step_ns,)
    text = f"without the profiler {' to '.join(duration_text(end) for end in ends)}"
    # Other programs or a different clock may make it longer than every recorded step.
    axes.set_xlim(right=max(axes.get_xlim()[1], 1.05 * ends[-1] / size))
    for end in ends:
        axes.axvline(end / size, color=style.TEXT, linewidth=1.4, linestyle="--")
    lower, upper = axes.get_ylim()
    axes.set_ylim(lower + 0.5, upper)
    # Put the text on the side of the lines that has more room.
    before = ends[0] / size > axes.get_xlim()[1] - ends[-1] / size
    axes.annotate(
        text,
        ((ends[0] if before else ends[-1]) / size, lower + 0.2),
        xytext=(-6 if before else 6, 0),
        textcoords="offset points",
        ha="right" if before else "left",
        va="center_baseline",
    )
    return f" {text[0].upper()}{text[1:]}."


def _row_labels(rows: pd.DataFrame) -> list[str]:
    several_ranks = rows["rank"].nunique(dropna=False) > 1
    several_devices = rows[["rank", "device"]].drop_duplicates().shape[0] > rows["rank"].nunique(
        dropna=False
    )
    labels = []
    for row in rows.itertuples():
        number = "whole trace" if pd.isna(row.step) else f"step {row.step}"
        step = row.step if isinstance(row.step, str) else number
        place = [f"rank {row.rank}"] if several_ranks and not pd.isna(row.rank) else []
        place += [f"device {row.device}"] if several_devices and not pd.isna(row.device) else []
        labels.append(", ".join([*place, step]))
    return labels


def _mean_steps(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    grouped = table.groupby(["rank", "device"], dropna=False)
    mean = grouped[["duration_ns", *columns]].mean().reset_index()
    mean["step"] = [f"mean of {count} steps" for count in grouped.size()]
    return mean


def _budget_words(table: pd.DataFrame, parts: list[str]) -> str:
    def shares(rows: pd.DataFrame) -> str:
        found = 100 * rows[[f"{part}_ns" for part in parts]].sum() / rows["duration_ns"].sum()
        ordered = found[found >= 0.5].sort_values(ascending=False)
        return ", ".join(
            f"{part_words(name.removesuffix('_ns'))} {share:.0f}%"
            for name, share in ordered.items()
        )

    if table["step"].map(lambda name: isinstance(name, str)).all():
        bars = (
            f"{row['step']}, {duration_text(row['duration_ns'])}: {shares(table.loc[[place]])}"
            for place, row in table.iterrows()
        )
        return f"Stacked bars of steps, split into parts. {'; '.join(bars)}."
    if table["step"].isna().all():
        what = f"{len(table)} whole traces" if len(table) > 1 else "the whole trace"
    else:
        what = f"{len(table)} step{'s' if len(table) != 1 else ''}"
    length = duration_text(table["duration_ns"].mean())
    return (
        f"Stacked bars of {what}, {length} on average, split into parts. The parts in total:"
        f" {shares(table)}."
    )


def step_times(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Plot the duration of each step, including warm-up steps. A line marks the median.

    `table` has the columns `step` and `duration_ns`, and also `rank` if there are several ranks.
    The table comes from `analyses.steps` or contains a trainer's own timings. Steps for which
    `part` is warmup are shown, but they don't count for the median. Steps that take more than
    `SLOW` times the median are marked and labeled. If a bar is longer than `CUT` times the median,
    it is cut off, and its label indicates this. Raises ValueError if the table is empty or has no
    origin.
    """
    require(table, ["step", "duration_ns"], "steps")
    origin = origin_of(table)
    ranks = sorted(table["rank"].dropna().unique()) if "rank" in table.columns else []
    median = _typical(table)
    highest = float(table["duration_ns"].max())
    if len(ranks) <= 1:
        highest = min(highest, CUT * median)
    unit, size = axis_unit(highest)
    with settings():
        figure, (axes,) = new_figure(origin, height=4.2, title=title)
        if len(ranks) > 1:
            _step_lines(axes, table, ranks, size)
        else:
            _step_bars(axes, table, median, highest, size)
        axes.axhline(median / size, color=style.TEXT, linewidth=1.2, linestyle="--")
        axes.annotate(
            f"median {three_digits(median / size)} {unit}",
            (1.0, median / size),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center_baseline",
            annotation_clip=False,
        )
        axes.set_ylim(0, 1.12 * highest / size)
        axes.set_xlim(int(table["step"].min()) - 0.6, int(table["step"].max()) + 0.6)
        axes.set_xlabel("step")
        axes.set_ylabel(f"step time, {unit}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    figure.alternative_text = _step_words(table, len(ranks), median)
    return figure


def _typical(table: pd.DataFrame) -> float:
    """Return the median of the steps without warm-up steps. If all steps are warm-up steps, return
    the median of all steps.
    """
    steady = table[table["part"] != "warmup"] if "part" in table.columns else table
    return float((steady if len(steady) else table)["duration_ns"].median())


def _step_words(table: pd.DataFrame, ranks: int, median: float) -> str:
    slow = int((table["duration_ns"] > SLOW * median).sum())
    slowest = table.loc[table["duration_ns"].idxmax()]
    where = f" on {ranks} ranks" if ranks > 1 else ""
    whose = f" of rank {slowest['rank']}" if ranks > 1 else ""
    return (
        f"Durations of {len(table)} steps{where} with a median of {duration_text(median)};"
        f" {slow or 'none'} of them took more than {SLOW} times the median. The slowest is step"
        f" {int(slowest['step'])}{whose} with {duration_text(slowest['duration_ns'])}."
    )


def _step_bars(axes: Axes, table: pd.DataFrame, median: float, highest: float, size: float) -> None:
    slow = (table["duration_ns"] > SLOW * median).to_numpy()
    # If there are only a few steps, keep the bars narrow.
    width = 0.75 * min(1, len(table) / 8)
    for chosen, color, hatch in ((~slow, style.BLUE, ""), (slow, style.ORANGE, "///")):
        rows = table[chosen]
        axes.bar(
            rows["step"].astype(int),
            rows["duration_ns"].clip(upper=highest) / size,
            width=width,
            color=color,
            hatch=hatch,
            edgecolor=style.TEXT,
            linewidth=0.6,
        )
    for row in table[slow].nlargest(_LABELED, "duration_ns").itertuples():
        place = (int(row.step), min(row.duration_ns, highest) / size)
        times = row.duration_ns / median
        text = f"{'↑' * (row.duration_ns > highest)}{times:.{int(times < 10)}f}×"
        axes.annotate(text, place, xytext=(0, 3), textcoords="offset points", ha="center")


def _step_lines(axes: Axes, table: pd.DataFrame, ranks: list[int], size: float) -> None:
    looks = [
        style.BLUE,
        style.ORANGE,
        style.BLUISH_GREEN,
        style.REDDISH_PURPLE,
        style.SKY_BLUE,
        style.VERMILLION,
    ]
    markers = "os^Dv*"
    for index, rank in enumerate(ranks):
        rows = table[table["rank"] == rank].sort_values("step")
        axes.plot(
            rows["step"].astype(int), rows["duration_ns"] / size, color=looks[index % len(looks)],
            marker=markers[index % len(markers)], linewidth=1.5, label=f"rank {rank}",
        )  # fmt: skip
    legend_above(axes, axes.get_lines())
