"""Kernels under the roofs of the GPU: achieved FLOP/s over arithmetic intensity, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log10

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, new_figure, origin_of, require, settings

LEVEL_LOOK = {
    "hbm": ("HBM", style.BLUE, "o", "-"),
    "l2": ("L2", style.ORANGE, "s", (0, (6, 2))),
    "l1": ("L1", style.BLUISH_GREEN, "^", (0, (1, 1.5))),
    "lds": ("LDS", style.REDDISH_PURPLE, "D", (0, (6, 2, 1, 2))),
}
"""Memory level -> name, colour, marker of its points, and dashes of its roof."""

_HEIGHT_INCHES = 6.4
_AXES_POINTS = 0.72 * _HEIGHT_INCHES * 72
_LINE_POINTS = 1.5 * style.POINTS
_NAME_BEGIN, _NAME_END = 24, 14
_LEADER_FROM_POINTS = 4
_ALWAYS_SHOWN = ("vector fp32", "matrix fp16")
_ROOM_LEFT, _ROOM_RIGHT = 100, 30
"""Factors by which the intensity axis exceeds the points and the knees, for labels."""


def roofline(
    points: pd.DataFrame,
    ceilings: pd.DataFrame,
    *,
    levels: Sequence[str] = ("hbm", "l2", "l1"),
    n: int = 6,
    title: str | None = None,
) -> TidyFigure:
    """The n kernels that take longest as points, one per memory level, under the GPU's bandwidths and FLOP rates.

    points   -- from `analyses.roofline_points`. A kernel without floating-point operations, or of which they, the bytes
                or the duration are not known, has no place here: below the axis stands how many such there are.
    ceilings -- from `analyses.roofline_ceilings`; the corner says whether they are measured or published.
    levels   -- memory levels to show, of `hbm`, `l2`, `l1`, `lds`.

    Drawn roofs are those of the levels, of the types that the kernels use most, and of vector fp32 and matrix fp16.
    A measured roof is what a benchmark reached, so a point can lie above it (of L1 more than of the others).
    Raises ValueError for tables without rows or origin, for an unknown level, and for ceilings without one to draw.
    """
    unknown = [level for level in levels if level not in LEVEL_LOOK]
    if unknown or not levels:
        raise ValueError(f"levels are some of {', '.join(LEVEL_LOOK)}, not {', '.join(unknown) or 'none'}")
    require(
        points,
        ["short_name", "flops", "flops_per_second", *(f"{level}_intensity" for level in LEVEL_LOOK), "main_type"],
        "roofline_points",
    )
    require(ceilings, ["name", "kind", "value", "unit"], "roofline_ceilings")
    origin = f"{origin_of(points)}. Ceilings: {ceilings.attrs.get('ceilings') or origin_of(ceilings)}"
    drawable = _drawable(points, levels)
    shown = drawable.head(n)
    roofs = _roofs(ceilings, shown, levels)
    with settings():
        figure, (axes,) = new_figure(origin, height=_HEIGHT_INCHES, title=title)
        _limits(axes, shown, roofs, levels)
        _draw_roofs(axes, roofs)
        _draw_points(axes, shown, levels)
        _legend(axes, levels)
        axes.set_xlabel(_x_label(points, drawable, shown))
        axes.set_ylabel("floating-point operations per second, FLOP/s")
    figure.alternative_text = _words(shown, roofs, points)
    return figure


def _drawable(points: pd.DataFrame, levels: Sequence[str]) -> pd.DataFrame:
    """Kernels with a rate and an intensity above 0 at one of the levels."""
    intensity = points[[f"{level}_intensity" for level in levels]].astype("float64")
    return points[(points["flops_per_second"].astype("float64") > 0) & (intensity > 0).any(axis=1)]


def _roofs(ceilings: pd.DataFrame, shown: pd.DataFrame, levels: Sequence[str]) -> pd.DataFrame:
    """The ceilings to draw: bandwidths of the levels, and FLOP rates of the types in use."""
    names = {LEVEL_LOOK[level][0] for level in levels}
    bandwidth = ceilings[(ceilings["kind"] == "bandwidth") & ceilings["name"].isin(names)]
    types = {*shown["main_type"].dropna(), *_ALWAYS_SHOWN}
    rates = ceilings[(ceilings["kind"] == "compute") & ceilings["name"].isin(types)]
    if not len(rates) or not len(bandwidth):
        raise ValueError(f"the ceilings have no {'bandwidth' if len(rates) else 'FLOP rate'} for these kernels")
    return pd.concat([bandwidth, rates])


def _limits(axes: Axes, shown: pd.DataFrame, roofs: pd.DataFrame, levels: Sequence[str]) -> None:
    """Logarithmic axes that hold all points, the knees, and room for labels."""
    intensities = [value for level in levels for value in shown[f"{level}_intensity"].dropna() if value > 0]
    bandwidths = roofs.loc[roofs["kind"] == "bandwidth", "value"]
    rates = roofs.loc[roofs["kind"] == "compute", "value"]
    left = min([rates.min() / bandwidths.max() / _ROOM_RIGHT, *(value / _ROOM_LEFT for value in intensities)])
    right = max([rates.max() / bandwidths.min(), *intensities]) * _ROOM_RIGHT
    lowest = min([bandwidths.min() * left, *shown["flops_per_second"]])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(lowest / 4, rates.max() * 4)
    axes.grid(True, which="major", color=style.GREY, linewidth=0.4)
    axes.set_axisbelow(True)


def _draw_roofs(axes: Axes, roofs: pd.DataFrame) -> None:
    left, right = axes.get_xlim()
    bandwidth = roofs[roofs["kind"] == "bandwidth"].sort_values("value")
    rates = roofs[roofs["kind"] == "compute"].sort_values("value")
    top = rates["value"].max()
    looks = {name: (colour, dashes) for name, colour, _, dashes in LEVEL_LOOK.values()}
    for row in bandwidth.itertuples():
        colour, dashes = looks[row.name]
        line = [left, top / row.value], [row.value * left, top]
        axes.plot(*line, color=colour, linestyle=dashes, linewidth=2, dash_capstyle="butt")
    for row in rates.itertuples():
        axes.plot([row.value / bandwidth["value"].max(), right], [row.value] * 2, color=style.TEXT, linewidth=1.2)
    slanted = [row.value * left for row in bandwidth.itertuples()]
    for row, y, shift in zip(bandwidth.itertuples(), slanted, _spread(axes, slanted), strict=True):
        _label(axes, (left, y), (6, 8 + shift), f"{row.name} {quantity_text(row.value, row.unit)}", "left")
    level = list(rates["value"])
    for row, y, shift in zip(rates.itertuples(), level, _spread(axes, level), strict=True):
        _label(axes, (right, y), (-4, 8 + shift), f"{row.name} {quantity_text(row.value, row.unit)}", "right")


def _draw_points(axes: Axes, shown: pd.DataFrame, levels: Sequence[str]) -> None:
    low, high = axes.get_xlim()
    crowded_from = low * (high / low) ** 0.6
    shown = shown.sort_values("flops_per_second")
    heights = list(shown["flops_per_second"].astype("float64"))
    for row, y, shift in zip(shown.to_dict("records"), heights, _spread(axes, heights), strict=True):
        known = {level: row[f"{level}_intensity"] for level in levels if pd.notna(row[f"{level}_intensity"])}
        known = {level: float(value) for level, value in known.items() if value > 0}
        axes.plot([min(known.values()), max(known.values())], [y, y], color=style.MUTED_TEXT, linewidth=0.8)
        for level, intensity in known.items():
            _, colour, marker, _ = LEVEL_LOOK[level]
            axes.plot(
                *(intensity, y),
                marker=marker,
                color=colour,
                markersize=9,
                markeredgecolor=style.TEXT,
                markeredgewidth=0.6,
                linestyle="none",
                zorder=5,
            )
        # Near the right edge are the names of the roofs: there a kernel's name stands on the other side.
        right = max(known.values()) < crowded_from
        at = (max(known.values()) if right else min(known.values()), y)
        side = 1 if right else -1
        if shift > _LEADER_FROM_POINTS:
            line = {"arrowstyle": "-", "color": style.MUTED_TEXT, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}
            axes.annotate("", at, xytext=(14 * side, shift), textcoords="offset points", arrowprops=line)
        _label(axes, at, (15 * side, shift), _cut(row["short_name"]), "left" if right else "right")


def _cut(name: str) -> str:
    """The name, without its middle if it is long: template arguments at its end tell kernels apart."""
    return name if len(name) <= _NAME_BEGIN + _NAME_END + 1 else f"{name[:_NAME_BEGIN]}…{name[-_NAME_END:]}"


def _label(axes: Axes, at: tuple[float, float], offset: tuple[float, float], text: str, side: str) -> None:
    axes.annotate(
        text,
        at,
        xytext=offset,
        textcoords="offset points",
        ha=side,
        va="center",
        parse_math=False,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": style.GROUND, "edgecolor": "none"},
        zorder=4,
    )


def _spread(axes: Axes, heights: Iterable[float]) -> list[float]:
    """For labels at these heights (ascending) how many points to move each up so that they stay apart."""
    low, high = axes.get_ylim()
    shifts, last = [], float("-inf")
    for height in heights:
        place = log10(height / low) / log10(high / low) * _AXES_POINTS
        moved = max(place, last + _LINE_POINTS)
        shifts.append(moved - place)
        last = moved
    return shifts


def _legend(axes: Axes, levels: Sequence[str]) -> None:
    handles = [
        Line2D(
            [], [], color=colour, linestyle=dashes, marker=marker, markersize=8, markeredgecolor=style.TEXT, label=name
        )
        for name, colour, marker, dashes in (LEVEL_LOOK[level] for level in levels)
    ]
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), borderaxespad=0.3, handlelength=4
    )


def _x_label(points: pd.DataFrame, drawable: pd.DataFrame, shown: pd.DataFrame) -> str:
    label = "arithmetic intensity, FLOP per byte moved at the level"
    left_out = [f"{len(drawable) - len(shown)} with less total time"] if len(drawable) > len(shown) else []
    left_out += _reasons(points[~points.index.isin(drawable.index)])
    return f"{label}\n(kernels not shown: {', '.join(left_out)})" if left_out else label


def _reasons(left_out: pd.DataFrame) -> list[str]:
    """Why these kernels cannot be drawn, and how many of them for each reason."""
    flops = left_out["flops"].astype("float64")
    counts = {
        "without floating-point operations": (flops == 0).sum(),
        "whose operations were not counted": flops.isna().sum(),
        "without counted bytes or a duration": (flops > 0).sum(),
    }
    return [f"{count} {reason}" for reason, count in counts.items() if count]


def quantity_text(value: float, unit: str) -> str:
    """A rate for people, three significant digits with a prefix: `4.17 TB/s`, `926 GFLOP/s`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _words(shown: pd.DataFrame, roofs: pd.DataFrame, points: pd.DataFrame) -> str:
    kernels = len(points)
    listed = ", ".join(f"{row.name} {quantity_text(row.value, row.unit)}" for row in roofs.itertuples())
    if not len(shown):
        return f"Roofline with none of {kernels} kernels: {', '.join(_reasons(points))}. Roofs are {listed}."
    first = shown.iloc[0]
    limits = roofs.set_index("name")["value"]
    rate = float(first["flops_per_second"])
    begin = f"Roofline with {len(shown)} of {kernels} kernel{'s' if kernels > 1 else ''}: {first['short_name']}, the "
    begin += f"longest shown, reaches {quantity_text(rate, 'FLOP/s')}"
    intensity = first["hbm_intensity"]
    if pd.notna(intensity) and intensity > 0 and "HBM" in limits:
        roof = min(limits["HBM"] * intensity, limits.get(first["main_type"], float("inf")))
        begin += f" at {intensity:.3g} FLOP/B of HBM traffic, {100 * rate / roof:.2g} % of the roof there"
    return f"{begin}. Roofs are {listed}."
