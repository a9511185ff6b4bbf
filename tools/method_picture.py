"""The picture of the method on the book's first page: `python -m tools.method_picture` writes
docs/method.svg.
"""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.colors import to_hex, to_rgba
from proflab.parts.method import method

from tidyprof.plots import style
from tidyprof.plots.figure import save

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "method.svg"

ON_DARK = {
    ink: to_hex(style.turned(to_rgba(ink))) for ink in (style.GROUND, style.TEXT, style.MUTED_TEXT)
}
ON_DARK[style.BLUE] = style.SKY_BLUE
"""Colour of the picture -> its colour on a dark page, as for figures; blue lines and words would be
too dim.
"""


def dark_rules() -> str:
    """CSS of the picture for a dark page."""
    rules = "".join(
        f'[style*="{name}: {ink.lower()}"]{{{name}:{dark}!important}}'
        for ink, dark in ON_DARK.items()
        for name in ("fill", "stroke")
    )
    return f'<style type="text/css">@media (prefers-color-scheme:dark){{{rules}}}</style>'


if __name__ == "__main__":
    image = io.StringIO()
    save(method(), image, "svg")
    PICTURE.write_text(
        image.getvalue().replace("<defs>", f"<defs>{dark_rules()}", 1), encoding="utf-8"
    )
