"""Kernels of a GPU below its roofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proflab.showing import show_figure
from tidyprof.plots import style
from tidyprof.plots.figure import new_figure, settings

if TYPE_CHECKING:
    from tidyprof.tables.contract import Origin


def show_roofline(
    points: Mapping[str, tuple[float, float]],
    roofs: Mapping[str, float],
    bandwidth: float,
    title: str,
    origin: Origin | str,
    hollow: tuple[str, Sequence[float], Sequence[float]],
) -> None:
    """Show kernels below the roofs of a GPU, each with its name beside it.

    points    -- name of a kernel -> its intensity in FLOP per byte, and its FLOP/s.
    roofs     -- name -> FLOP/s.
    bandwidth -- of the memory, in bytes per second.
    hollow    -- one name for many such points, their intensities and their rates.
    """
    ends, tera = (0.3, 3000.0), 1e12
    with settings():
        figure, (axes,) = new_figure(str(origin), height=4.6, title=title)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=(0.1, 4000))
        for (name, rate), dashes in zip(roofs.items(), ("-", "--"), strict=False):
            x = (ends[0], rate / bandwidth, ends[1])
            axes.plot(x, [min(rate, at * bandwidth) / tera for at in x], dashes, color=style.TEXT)
            text = f"{name} {rate / tera:,.0f} TFLOP/s "
            axes.text(ends[1], rate / tera, text, ha="right", va="bottom")
        beside = {"xytext": (9, 0), "textcoords": "offset points", "va": "center_baseline"}
        memory = (0.4, 0.4 * bandwidth / tera)
        axes.annotate(f"memory {bandwidth / tera:.1f} TB/s", memory, **beside)
        # Shapes tell the kernels apart, so that no color is needed for it.
        for marker, (name, (x, rate)) in zip("osD^", points.items(), strict=False):
            axes.plot(x, rate / tera, marker, ms=9, color=style.VERMILLION, mec=style.TEXT)
            axes.annotate(name, (x, rate / tera), **{**beside, "xytext": (-9, 0), "ha": "right"})
        name, x, rates = hollow
        below = min(zip(rates, x, strict=True))
        axes.plot(x, [rate / tera for rate in rates], "o", mfc="none", mec=style.TEXT)
        axes.annotate(name, (below[1], below[0] / tera), **beside)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set(xlabel="intensity, FLOP per byte", ylabel="TFLOP/s")
    words = (
        f"{name} at {x:.3g} FLOP per byte, {100 * rate / min(*roofs.values(), x * bandwidth):.1f} %"
        f" of the lowest roof there"
        for name, (x, rate) in points.items()
    )
    figure.alternative_text = f"{title}: {'; '.join(words)}; {name}, {len(rates)} points."
    show_figure(figure)
