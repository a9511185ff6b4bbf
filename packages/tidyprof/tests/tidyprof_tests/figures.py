"""What every figure of tidyprof.plots promises, and what to ask of one."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable

import matplotlib.text
from matplotlib import image as matplotlib_image
from matplotlib.figure import Figure

from tidyprof import plots
from tidyprof.plots import style

SMALLEST_POINTS = 10


def texts(figure: Figure) -> list[matplotlib.text.Text]:
    """Every text that is drawn: matplotlib also keeps labels of ticks beyond the limits."""
    beyond = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            outside = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
            beyond |= {id(label) for tick in outside for label in (tick.label1, tick.label2)}
    found = figure.findobj(matplotlib.text.Text)
    return [
        text
        for text in found
        if text.get_visible() and text.get_text().strip() and id(text) not in beyond
    ]


def drawn(figure: Figure) -> Figure:
    """Lay the figure out as saving does."""
    plots.save(figure, io.BytesIO(), "png")
    return figure


def corner(figure: Figure) -> str:
    """What the corner says of the numbers' origin, on one line."""
    (text,) = [text for text in figure.texts if text.get_gid() == "origin"]
    return " ".join(text.get_text().split())


def assert_says_what_it_shows(figure: Figure) -> None:
    """The origin is in the corner, the text alternative has two sentences with numbers."""
    (text,) = [text for text in figure.texts if text.get_gid() == "origin"]
    box = text.get_window_extent()
    assert text.get_text()
    assert (box.x1 > 0.95 * figure.bbox.width, box.y0 < 0.05 * figure.bbox.height) == (True, True)
    assert all(not box.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    words = plots.describe(figure)
    assert len(re.findall(r"\.(?= [A-Z]|$)", words)) == 2, words
    assert re.search(r"\d", words)


def assert_readable(figure: Figure) -> None:
    """As wide as a cell; texts are large enough, inside the figure and apart; a legend hides no
    data.
    """
    assert figure.get_figwidth() == style.WIDTH_INCHES
    within = figure.bbox.padded(1)
    places = [(text, text.get_window_extent()) for text in texts(figure)]
    for text, box in places:
        assert text.get_fontsize() >= SMALLEST_POINTS, text.get_text()
        assert within.x0 <= box.x0, text.get_text()
        assert box.x1 <= within.x1, text.get_text()
        assert within.y0 <= box.y0, text.get_text()
        assert box.y1 <= within.y1, text.get_text()
    for (first, a), (second, b) in itertools.combinations(places, 2):
        overlap = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 2
        assert not overlap, f"{first.get_text()!r} lies on {second.get_text()!r}"
    for axes in figure.axes:
        if axes.get_legend():
            assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 1


def assert_repeatable(make: Callable[[], Figure]) -> None:
    """The same data give the same bytes, as SVG and as PNG, whose ground is white and opaque."""
    for kind in ("svg", "png"):
        targets = [io.BytesIO(), io.BytesIO()]
        for target in targets:
            plots.save(make(), target, kind)
        assert targets[0].getvalue() == targets[1].getvalue(), kind
    targets[0].seek(0)
    pixels = matplotlib_image.imread(targets[0], format="png")
    assert pixels.shape[2] == 3 or (pixels[:, :, 3] == 1).all()
    assert (pixels[0, 0, :3] == 1).all()
