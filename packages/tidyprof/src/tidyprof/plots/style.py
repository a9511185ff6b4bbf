"""Colors, hatches and text settings of all plots.

Colors are those of Okabe and Ito, which stay apart for color-blind readers
(https://jfly.uni-koeln.de/color/). Color never stands alone: a hatch or a direct label says the
same. For a dark page the ground, and the text and lines on it, are turned; fills stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RGBA = tuple[float, float, float, float]

BLACK = "#000000"
ORANGE = "#E69F00"
SKY_BLUE = "#56B4E9"
BLUISH_GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
LIGHTER_BLUE = "#3D9BD6"
"""BLUE of lines on a dark page: a contrast of 6 with it."""
VERMILLION = "#D55E00"
REDDISH_PURPLE = "#CC79A7"
GREY = "#BDBDBD"
DARK_GREY = "#666666"

GROUND = "#FFFFFF"
TEXT = "#1A1A1A"
MUTED_TEXT = "#4D4D4D"

MINIMUM_CONTRAST = 4.5
"""Contrast ratio for text, WCAG 2.2 success criterion 1.4.3."""


_DARK_GROUND = 17 / 255
"""What white is turned into, 0 to 1: #111111, the ground of JupyterLab's dark theme."""

_LIGHT_FILL = 0.8
"""Greys from here to white (1) are a ground, which is turned; darker ones are a fill that stands
for something.
"""

DARK_THEMES = {
    "[data-jp-theme-light=false]": "screen",
    "[data-theme=dark]": "screen",
    "[data-theme=auto]": "screen and (prefers-color-scheme:dark)",
}
"""How JupyterLab and Furo, the theme of the book, mark a dark page -> where that holds. Paper is
white.
"""

PAIR_RULES = "".join(
    f"@media {where}{{{theme} .tidy-light{{display:none}}{theme}"
    " .tidy-dark{display:inline!important}}"
    for theme, where in DARK_THEMES.items()
)
"""CSS that shows one picture of a pair. JupyterLab drops it in a notebook that is not trusted: the
light picture shows there.
"""

CATEGORY_LOOK: Mapping[str, tuple[str, str]] = {
    "GEMM": (BLUE, ""),
    "convolution": (SKY_BLUE, ""),
    "attention": (REDDISH_PURPLE, ""),
    "normalization": (VERMILLION, ""),
    "reduction": (YELLOW, ""),
    "elementwise": (YELLOW, "///"),
    "optimizer": (REDDISH_PURPLE, "\\\\\\"),
    "copy": (BLUISH_GREEN, "..."),
    "collective": (ORANGE, "xx"),
    "other": (GREY, ""),
}
"""Kernel category (short_names.CATEGORIES) -> color and hatch."""

PART_LOOK: Mapping[str, tuple[str, str]] = {
    "compute": (BLUE, ""),
    "exposed_communication": (ORANGE, "xx"),
    "exposed_copy": (BLUISH_GREEN, "..."),
    "launch_bound": (VERMILLION, "///"),
    "blocked_host": (REDDISH_PURPLE, "++"),
    "data_wait": (YELLOW, "\\\\\\"),
    "other": (GREY, ""),
    "fetching": (BLUISH_GREEN, "\\\\\\"),
    "allocation": (REDDISH_PURPLE, "..."),
    "start_up": (YELLOW, "++"),
    "silent": (SKY_BLUE, "xx"),
    "stalled": (REDDISH_PURPLE, "///"),
    "compiling": (ORANGE, "\\\\\\"),
    "between": (VERMILLION, "..."),
    "taken": (GREY, "xx"),
    "data": (YELLOW, "\\\\\\"),
    "forward": (BLUE, ""),
    "loss": (REDDISH_PURPLE, "..."),
    "backward": (SKY_BLUE, "///"),
    "optimizer": (BLUISH_GREEN, "xx"),
}
"""Part of a step (analyses.step_budget; diagnosis.on_device and on_host) -> color and hatch."""

KIND_LOOK: Mapping[str, tuple[str, str]] = {
    "kernel": (BLUE, ""),
    "collective": (ORANGE, "xx"),
    "copy": (BLUISH_GREEN, "..."),
    "fill": (REDDISH_PURPLE, "\\\\\\"),
    "annotation": (SKY_BLUE, ""),
    "operator": (GREY, ""),
    "runtime": (DARK_GREY, ""),
    "sample": (YELLOW, ""),
}
"""Kind of event (contract.KINDS) -> color and hatch; operators and runtime calls are grey."""

WIDTH_INCHES = 8.5
"""Width of every figure: that of a notebook's cell on a screen of 1280 dots, so that no text has to
be shrunk.
"""

POINTS = 10.0
TITLE_POINTS = 12.0
"""Sizes of text: the smallest that is read at ease on a screen, and that of a title."""

CHARACTER_POINTS = 0.62 * POINTS
"""Width of a character on average; measured on names of functions in DejaVu Sans."""

SETTINGS: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": POINTS,
    "axes.titlesize": TITLE_POINTS,
    "axes.prop_cycle": (
        "cycler('color',"
        f" {[BLUE, VERMILLION, BLUISH_GREEN, REDDISH_PURPLE, ORANGE, SKY_BLUE, BLACK]})"
    ),
    "axes.titlelocation": "left",
    "axes.labelsize": POINTS,
    "xtick.labelsize": POINTS,
    "ytick.labelsize": POINTS,
    "legend.fontsize": POINTS,
    "legend.frameon": False,
    "axes.facecolor": GROUND,
    "figure.facecolor": GROUND,
    "savefig.facecolor": "auto",
    "savefig.transparent": False,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlecolor": TEXT,
    "axes.edgecolor": MUTED_TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "tidyprof",
    "svg.fonttype": "path",
}
"""matplotlib settings under which plots are made and saved; the font ships with matplotlib, so
output is equal everywhere, and a fixed salt makes the ids in SVG files so too.
"""


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two `#RRGGBB` colors, 1 to 21 (WCAG 2.2, definition of contrast ratio)."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def turned(color: RGBA) -> RGBA:
    """The grey on a dark page for a grey on a white page; a color with a hue stays as it is.
    Channels are 0 to 1.
    """
    value = color[0]
    if not value == color[1] == color[2]:
        return color
    grey = 1 - (1 - _DARK_GROUND) * value
    return grey, grey, grey, color[3]


def turned_line(color: RGBA) -> RGBA:
    """The same for a line, which is too thin for BLUE on a dark page."""
    if list(color[:3]) == _channels(BLUE):
        red, green, blue = _channels(LIGHTER_BLUE)
        return red, green, blue, color[3]
    return turned(color)


def is_ground(color: RGBA) -> bool:
    """Whether a fill is white or nearly so, or can't be seen at all."""
    return not color[3] or min(color[:3]) == max(color[:3]) >= _LIGHT_FILL


def text_on(ground: str) -> str:
    """Black or white, whichever reads better on this color; on the ground TEXT, which is turned
    together with it.
    """
    return (
        TEXT
        if ground == GROUND
        else max((BLACK, GROUND), key=lambda color: contrast(color, ground))
    )


def _channels(color: str) -> list[float]:
    """Red, green and blue, 0 to 1."""
    return [int(color[first : first + 2], 16) / 255 for first in (1, 3, 5)]


def _luminance(color: str) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.2)."""
    channels = _channels(color)
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
