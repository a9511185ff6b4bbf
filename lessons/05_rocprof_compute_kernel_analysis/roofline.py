"""A roofline plot of a few kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from proflab.showing import point_at, show_figure
from tidyprof.plots import style
from tidyprof.plots.figure import new_figure, settings

if TYPE_CHECKING:
    from tidyprof.tables.contract import Origin

TERA = 1e12
LEFT, RIGHT = 0.3, 3000.0
"""Ends of the axis of intensities, in FLOP per byte."""


def show_roofline(
    points: Mapping[str, tuple[Iterable[float], Iterable[float]]],
    roofs: Mapping[str, float],
    bandwidth: float,
    title: str,
    origin: Origin | str,
) -> None:
    """Show groups of kernels below the roofs of a GPU. The legend names each group by its marker.

    points    -- intensities in FLOP per byte, and FLOP/s, of each group.
    roofs     -- FLOP/s of each flat roof.
    bandwidth -- of the memory, in bytes per second.
    """
    with settings():
        figure, (axes,) = new_figure(str(origin), height=4.6, title=title)
        axes.set(xscale="log", yscale="log", xlim=(LEFT, RIGHT), ylim=(0.1, 4000))
        for (name, rate), dashes in zip(roofs.items(), ("-", "--", ":"), strict=True):
            x = (LEFT, rate / bandwidth, RIGHT)
            axes.plot(x, [min(rate, at * bandwidth) / TERA for at in x], dashes, color=style.TEXT)
            text = f"{name} {rate / TERA:,.0f} TFLOP/s "
            axes.text(RIGHT, rate / TERA, text, ha="right", va="bottom")
        axes.text(0.5, 0.4 * bandwidth / TERA, f"memory {bandwidth / TERA:.1f} TB/s", va="center")
        # Markers tell the groups apart, so that the figure needs no color.
        for marker, (name, (x, rates)) in zip("sDov", points.items(), strict=False):
            fill = style.VERMILLION if marker in "sD" else "none"
            rates = pd.Series(rates) / TERA
            axes.plot([*x], rates, marker, ms=9, mfc=fill, mec=style.TEXT, label=name)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set(xlabel="intensity, FLOP per byte", ylabel="TFLOP/s")
        axes.legend(loc="lower right")
    best = ", ".join(f"{name} {max(rates) / TERA:.2g}" for name, (_, rates) in points.items())
    flat = ", ".join(f"{name} {rate / TERA:,.0f}" for name, rate in roofs.items())
    figure.alternative_text = f"{title}. Highest rates in TFLOP/s: {best}. Flat roofs: {flat}."
    _, (x, rates) = max(points.items(), key=lambda item: max(item[1][1]))
    best = max(rates)
    text = f"fastest: {best / TERA:.0f} TFLOP/s"
    point_at(figure, text, ([*x][[*rates].index(best)], best / TERA), (0.24, 0.24))
    show_figure(figure)
