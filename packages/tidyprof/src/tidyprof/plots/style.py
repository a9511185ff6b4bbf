"""Colors, hatches and text settings of all plots.

The colors come from Okabe and Ito's palette, which color-blind readers can distinguish
(https://jfly.uni-koeln.de/color/). A hatch or a direct label always repeats the information in a
color. On a dark page, CSS darkens the images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidyprof.package_data import table_of

BLACK = "#000000"
ORANGE = "#E69F00"
SKY_BLUE = "#56B4E9"
BLUISH_GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
REDDISH_PURPLE = "#CC79A7"
GREY = "#BDBDBD"
DARK_GREY = "#666666"

GROUND = "#FFFFFF"
TEXT = "#1A1A1A"
MUTED_TEXT = "#4D4D4D"


DARK_THEMES = {
    "[data-jp-theme-light=false]": "screen",
    "[data-theme=dark]": "screen",
    "[data-theme=auto]": "screen and (prefers-color-scheme:dark)",
}
"""CSS selectors for dark pages, with the media for which each selector applies. The selectors cover
JupyterLab and Furo, which is the book's theme. Paper is always white.
"""

UNTRUSTED = (
    '<small class="tidy-untrusted">This notebook isn\'t trusted, so figures stay light and <em>Look'
    " closer</em> is missing. To trust it, press Ctrl+Shift+C and choose <em>Trust Notebook</em>."
    "</small>"
)
"""A note that `DARK_RULES` hides. JupyterLab removes this CSS from an untrusted notebook."""

DARK_RULES = ".tidy-untrusted{display:none}" + "".join(
    f"@media {where}{{{theme} .tidy-figure{{filter:invert(.93) hue-rotate(180deg)}}}}"
    for theme, where in DARK_THEMES.items()
)
"""CSS that darkens a figure's image on a dark page: white becomes #111111, the background of
JupyterLab's dark theme, and hues stay.
"""

_STYLE = table_of("plots/style.toml")


def looks(of: str) -> dict[str, tuple[str, str]]:
    """Return the color of each name in a section of style.toml, and its hatch or dashes."""
    return {name: (globals()[color], hatch) for name, (color, hatch) in _STYLE[of].items()}


CATEGORY_LOOK = looks("category")
"""The color and hatch of each kernel category (`short_names.CATEGORIES`)."""

PART_LOOK = looks("part")
"""The color and hatch of each part of a step (`analyses.step_budget`, `on_device` and
`on_host`).
"""

PHASES = ("data", "forward", "loss", "backward", "optimizer")
"""Parts of a step that the host's ranges name, in order."""

KIND_LOOK = looks("kind")
"""The color and hatch of each kind of event (contract.KINDS). Operators and runtime calls are
gray.
"""

WIDTH_INCHES = 8.5
"""Width of every figure. A notebook cell has the same width on a screen of 1280 pixels, so text is
never shrunk.
"""

POINTS = 10.0
TITLE_POINTS = 12.0
"""Text sizes for plots: the smallest size that is easy to read on a screen, and the size of a
title.
"""

CHARACTER_POINTS = 0.62 * POINTS
"""Average width of a character, which was measured on function names in DejaVu Sans."""

SETTINGS: Mapping[str, Any] = {
    **_STYLE["settings"],
    "axes.prop_cycle": (
        "cycler('color',"
        f" {[BLUE, VERMILLION, BLUISH_GREEN, REDDISH_PURPLE, ORANGE, SKY_BLUE, BLACK]})"
    ),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), GROUND),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor"), TEXT),
    **dict.fromkeys(("xtick.color", "ytick.color"), TEXT),
    "axes.edgecolor": MUTED_TEXT,
}
"""matplotlib settings for creating and saving plots."""


def text_on(ground: str) -> str:
    """Return black or white, whichever is easier to read on this color of the palette."""
    return GROUND if ground in (BLACK, BLUE, DARK_GREY) else BLACK
