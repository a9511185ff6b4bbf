"""The drawings of the lessons: files as the code makes them, words for who doesn't see them, and
nothing that meets or ends nowhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from proflab.lessons import lessons
from tests.conftest import REPOSITORY
from tidyprof.plots.style import MINIMUM_CONTRAST, MINIMUM_FILL_CONTRAST, contrast
from tools.drawings import DRAWINGS, FOLDER
from tools.drawings.pen import COLOURS, SMALL_PX, TEXT_PX, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
NEAR_PX = 3
"""How far an arrow's end may be from what it leads to."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Area:
    """A rectangle of a drawing, in px, and what it holds."""

    x: float
    y: float
    right: float
    bottom: float
    words: str = ""

    def meets(self, other: Area) -> bool:
        """Whether the two share a place."""
        return (
            self.x < other.right
            and other.x < self.right
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def within(self, other: Area) -> bool:
        """Whether this lies in the other one."""
        return (
            other.x <= self.x
            and self.right <= other.right
            and other.y <= self.y
            and self.bottom <= other.bottom
        )

    def has(self, point: Point, margin: float = 0) -> bool:
        """Whether a point lies in it, or so near."""
        x, y = point
        return (
            self.x - margin <= x <= self.right + margin
            and self.y - margin <= y <= self.bottom + margin
        )


@dataclass(frozen=True)
class Line:
    """A line from point to point, and which of its ends have a head that leads to something."""

    points: list[Point]
    heads: list[Point]

    def places(self) -> list[Point]:
        """A point at each px of the line."""
        found = []
        for (x, y), (to_x, to_y) in pairwise(self.points):
            steps = math.ceil(math.hypot(to_x - x, to_y - y))
            found += [
                (x + (to_x - x) * step / steps, y + (to_y - y) * step / steps)
                for step in range(steps + 1)
            ]
        return found


@dataclass(frozen=True)
class Parts:
    """What a drawing consists of; `canvas` is all of it."""

    canvas: Area
    texts: list[Area]
    boxes: list[Area]
    lines: list[Line]


def parts(svg: str) -> Parts:
    """The drawing as a browser lays it out with DejaVu Sans, which is wider than the faces of other
    systems.
    """
    root = ElementTree.fromstring(svg)
    ground, *boxes = root.iterfind(f"{SVG}rect")
    return Parts(
        _rect(ground),
        [_text(one) for one in root.iterfind(f"{SVG}text")],
        [_rect(one) for one in boxes],
        [_line(one) for one in root.iterfind(f"{SVG}path")],
    )


def _rect(element: ElementTree.Element) -> Area:
    x, y, width, height = (float(element.get(name, 0)) for name in ("x", "y", "width", "height"))
    return Area(x, y, x + width, y + height)


def _text(element: ElementTree.Element) -> Area:
    looks = element.get("class").split()
    size = SMALL_PX if "small" in looks else TEXT_PX
    face = FontProperties(family="DejaVu Sans", weight="bold" if "strong" in looks else "normal")
    extent = TextPath((0, 0), element.text, size=size, prop=face).get_extents()
    share = {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
    x, y = (float(element.get(name)) for name in ("x", "y"))
    x -= share * extent.width
    return Area(x, y - extent.y1, x + extent.width, y - extent.y0, element.text)


def _line(element: ElementTree.Element) -> Line:
    points = [
        tuple(map(float, point)) for point in re.findall(r"([\d.]+) ([\d.]+)", element.get("d"))
    ]
    ends = {"marker-start": points[0], "marker-end": points[-1]}
    heads = [point for name, point in ends.items() if element.get(name)]
    return Line(points, [] if "axis" in element.get("class").split() else heads)


@pytest.fixture(params=DRAWINGS)
def svg(request: pytest.FixtureRequest) -> str:
    """Each drawing."""
    return DRAWINGS[request.param]().svg()


def test_files_are_those_that_the_code_makes() -> None:
    made = {f"{name}.svg": draw().svg() for name, draw in DRAWINGS.items()}
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == made


def test_each_drawing_stands_in_its_lesson_once() -> None:
    shown = {
        name: number
        for number, lesson in lessons().items()
        for name in re.findall(
            r"^# \{drawing (\S+)\}$", lesson.source.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert shown == {name: name[:2] for name in DRAWINGS}


def test_a_drawing_says_in_words_what_it_shows(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    title = root.find(f"{SVG}title")
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", title.get("id"))
    assert len(title.text.split()) > 30
    assert not set('[]\n"') & set(title.text)  # it is an image's text in Markdown


def test_a_drawing_is_one_size_and_needs_nothing_else(svg: str) -> None:
    root = ElementTree.fromstring(svg)
    assert root.get("viewBox") == f"0 0 {WIDTH} {root.get('height')}"
    assert "prefers-color-scheme:dark" in svg
    assert re.findall(r"https?://[^\s\"']+", svg) == ["http://www.w3.org/2000/svg"]
    assert SMALL_PX >= 12


def test_no_text_leaves_its_box_or_meets_another_or_a_line(svg: str) -> None:
    found = parts(svg)
    assert [text.words for text in found.texts if not text.within(found.canvas)] == []
    assert [(a.words, b.words) for a, b in combinations(found.texts, 2) if a.meets(b)] == []
    cut = [
        text.words
        for text in found.texts
        for box in found.boxes
        if text.meets(box) and not text.within(box)
    ]
    assert cut == []
    struck = [
        text.words
        for text in found.texts
        for line in found.lines
        if any(text.has(place, 1) for place in line.places())
    ]
    assert struck == []


def test_every_box_is_in_the_drawing_and_every_arrow_leads_to_something(svg: str) -> None:
    found = parts(svg)
    assert [box for box in found.boxes if not box.within(found.canvas)] == []
    ends = [[*_outline(box)] for box in found.boxes]
    lost = [
        head
        for line in found.lines
        for head in line.heads
        if not any(_near(head, places) for places in ends)
        and not any(_near(head, other.places()) for other in found.lines if other != line)
    ]
    assert lost == []


def _outline(box: Area) -> Iterator[Point]:
    """Points of a box's outline, a px from each other."""
    for x in range(int(box.x), int(box.right) + 1):
        yield from ((x, box.y), (x, box.bottom))
    for y in range(int(box.y), int(box.bottom) + 1):
        yield from ((box.x, y), (box.right, y))


def _near(point: Point, places: Iterable[Point]) -> bool:
    return any(math.dist(point, place) <= NEAR_PX for place in places)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_lines_have_contrast_on_every_ground(theme: int) -> None:
    ink, line = COLOURS["ink"][theme], COLOURS["line"][theme]
    for name in COLOURS.keys() - {"ink", "line"}:
        assert contrast(ink, COLOURS[name][theme]) >= MINIMUM_CONTRAST, name
        assert contrast(line, COLOURS[name][theme]) >= MINIMUM_FILL_CONTRAST, name


def test_make_notebooks_writes_them() -> None:
    assert "-m tools.drawings" in (REPOSITORY / "Makefile").read_text(encoding="utf-8")
