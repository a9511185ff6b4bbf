"""The pen of the lessons' drawings: boxes, texts, lines and arrows as one SVG file.

A drawing has a background of its own, so that it can be read on any page, and is dark if the
reader's system is. Lengths are CSS pixels of a drawing shown in full width.
"""

from __future__ import annotations

from html import escape

WIDTH = 600
TEXT_PX, SMALL_PX = 15, 13
LINE_PX = 18
"""Distance from one line of text to the next."""

HEAD_PX = 8
"""Length of an arrow's head."""

COLOURS = {
    "ground": ("#ffffff", "#111111"),
    "ink": ("#1a1a1a", "#e7e7e7"),
    "line": ("#4d4d4d", "#b7b7b7"),
    "plain": ("#f4f6f8", "#1d232a"),
    "host": ("#e4e4e4", "#3a3a3a"),
    "device": ("#d7e8f4", "#0d4568"),
    "collective": ("#fae3af", "#5c4000"),
    "memory": ("#cfeee4", "#0a4d3a"),
    "wrong": ("#f8d8c2", "#6b3000"),
}
"""Name of an area or a line -> its colour on a light and on a dark page: tints of the figures'
own.
"""


def _style() -> str:
    """CSS of all drawings; `wait` is time in which nothing is done, and is not filled."""
    light, dark = (
        "".join(f"--{name}:{pair[place]};" for name, pair in COLOURS.items()) for place in (0, 1)
    )
    fills = "".join(f".{name}{{fill:var(--{name})}}" for name in COLOURS)
    return (
        f"svg{{{light}font:{TEXT_PX}px system-ui,sans-serif}}"
        f"@media (prefers-color-scheme:dark){{svg{{{dark}}}}}{fills}"
        f"text{{fill:var(--ink)}}.strong{{font-weight:600}}.small{{font-size:{SMALL_PX}px}}"
        "rect,path{stroke:var(--line);stroke-width:1.4}rect.ground{stroke:none}"
        ".wait,.drawn{fill:none}.wait,.dashed{stroke-dasharray:4 3}"
        "marker path{fill:var(--line);stroke:none}"
    )


class Drawing:
    """A drawing that grows with each call.

    words  -- what it shows, for readers who can't see it: its title and the image's alternative
              text
    height -- in px; it is WIDTH wide
    """

    def __init__(self, words: str, height: int) -> None:
        self.words = words
        self.height = height
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, look: str = "", *, anchor: str = "start"
    ) -> None:
        """Draw a line of text on the base line `y`; look -- strong, small or both."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{look}">'
            f"{escape(words, quote=False)}</text>"
        )

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, look: str = "plain"
    ) -> None:
        """Draw a box with lines in its middle, the first in normal size, the others small. A single
        line is small if `look` has the word, as in `wait small`.
        """
        fill, _, small = look.partition(" ")
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"'
            f' class="{fill}"/>'
        )
        middle = y + height / 2 - LINE_PX * (len(lines) - 1) / 2 + 5
        for place, line in enumerate(lines):
            size = "small" if place else small
            self.text(x + width / 2, middle + LINE_PX * place, line, size, anchor="middle")

    def line(self, *points: tuple[float, float], look: str = "") -> None:
        """Draw a line from point to point; look -- `dashed`."""
        self._path(points, look, "")

    def arrow(self, *points: tuple[float, float], look: str = "", both: bool = False) -> None:
        """Draw a line with a head at its last point and, if `both`, at its first point, too; look
        -- `axis` for an arrow that leads to nothing.
        """
        heads = ' marker-end="url(#head)"' + ' marker-start="url(#head)"' * both
        self._path(points, look, heads)

    def _path(self, points: tuple[tuple[float, float], ...], look: str, heads: str) -> None:
        way = " L".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path d="M{way}" class="drawn {look}"{heads}/>'.replace(' "', '"'))

    def lane(self, y: float, name: str, words: str = "") -> None:
        """Write the name of a lane whose boxes begin at `y`, and below it what the lane is."""
        self.text(8, y + (14 if words else 20), name, "strong")
        if words:
            self.text(8, y + 31, words, "small")

    def time(self, x: float, y: float) -> None:
        """Draw the direction of time, below all lanes."""
        self.text(8, y + 4, "time", "small")
        self.arrow((x, y), (WIDTH - 8, y), look="axis")

    def svg(self) -> str:
        """The text of the SVG file."""
        size = f'width="{WIDTH}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size}'
                f' viewBox="0 0 {WIDTH} {self.height}" role="img" aria-labelledby="title">',
                f'<title id="title">{escape(self.words, quote=False)}</title>',
                f"<style>{_style()}</style>",
                f'<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="{HEAD_PX}"'
                f' markerHeight="{HEAD_PX}" markerUnits="userSpaceOnUse"'
                ' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker>',
                f'<rect {size} class="ground"/>',
                *self._parts,
                "</svg>\n",
            ]
        )
