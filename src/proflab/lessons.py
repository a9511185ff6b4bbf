"""The lessons: for each its folder, the question that it answers, the time it takes and the tools
it drives.

The picture of the method shows them: each lesson of the core asks a question that the lesson before
it could not answer.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from proflab.display import near
from proflab.errors import CourseError

if TYPE_CHECKING:
    from tidyprof.plots import TidyFigure


@dataclass(frozen=True)
class Lesson:
    """One lesson, from its lesson.toml.

    minutes     -- the time in a room, by the rule of tools.notebooks.minutes
    waiting     -- the part of the minutes that is spent waiting for commands
    tools       -- commands that it would use on a GPU node
    view, blind -- of a lesson of the core: what it looks with, and what that can't tell; "" for an
                   elective
    """

    folder: Path
    question: str
    minutes: int
    tools: tuple[str, ...] = ()
    waiting: int = 0
    view: str = ""
    blind: str = ""

    @property
    def number(self) -> str:
        """Its number, in two digits."""
        return self.folder.name[:2]

    @property
    def core(self) -> bool:
        """Whether it belongs to the case; the other lessons are electives."""
        return bool(self.view)

    @property
    def source(self) -> Path:
        """The file of the solved lesson."""
        return self.folder / "lesson.py"


def lessons_folder() -> Path:
    """Folder of all lessons: inside the package in a wheel, `lessons` at the top of a checkout."""
    inside = Path(__file__).parent / "shipped_lessons"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "lessons"


def lessons(folder: Path | None = None) -> Mapping[str, Lesson]:
    """All lessons of a folder (by default the course's) by number, in order; raises CourseError for
    a lesson that can't be used.
    """
    folders = sorted(path.parent for path in (folder or lessons_folder()).glob("*/lesson.py"))
    return {found.number: found for found in map(_read, folders)}


def lesson(number: str) -> Lesson:
    """The lesson with this two-digit number; raises CourseError for an unknown one."""
    known = lessons()
    if str(number) not in known:
        raise CourseError(f"there is no lesson {number!r}: {near(str(number), known)}")
    return known[number]


def _read(folder: Path) -> Lesson:
    path = folder / "lesson.toml"
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", folder.name):
        raise CourseError(
            f"{folder}: a lesson's folder is named NN_name, with two digits and small letters;"
            " rename it"
        )
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        fixed = (fields.pop("question"), int(fields.pop("minutes")))
        tools, waiting = tuple(fields.pop("tools", ())), int(fields.pop("waiting", 0))
        return Lesson(
            folder, *fixed, tools, waiting, fields.pop("view", ""), fields.pop("blind", "")
        )
    except (OSError, KeyError, ValueError) as error:
        raise CourseError(f"{path}: {error}; it needs `question`, `minutes` and `tools`") from None


ROW_INCHES, BOX = 0.58, 0.76
"""Height in inches of a row with its arrow, and the share of it that the box takes: two lines of
text.
"""

COLUMNS = (1.0, 43.4, 70.0, 99.0)
"""Where the texts of a row begin, and where the last one ends, in hundredths of the width."""

CHARACTER_POINTS = 5.6
"""Mean width in points of a character of these sentences: less than in names of functions."""

TITLE = "One case, nine questions: what a view can't tell asks for the next one"

AGAIN = "each cure uncovers the next limit: measure again, from 00"

HERE, OTHER = "#D7E8F4", "#FFFFFF"
"""Background of the lesson that is open, and of the others."""


def method(here: str = "") -> TidyFigure:
    """The lessons of the core from the first question to the last, as a figure, with the lesson
    `here` marked.
    """
    from matplotlib.patches import FancyBboxPatch

    from tidyprof.plots import style
    from tidyprof.plots.figure import new_figure, settings

    core = [lesson for lesson in lessons().values() if lesson.core]
    with settings():
        figure, (axes,) = new_figure(
            "the plan of this course", ROW_INCHES * len(core) + 0.7, title=TITLE
        )
        axes.set(xlim=(0, 100), ylim=(len(core) + 0.6, -0.7))
        axes.axis("off")
        for x, heading in zip(
            COLUMNS, ("question", "you look with", "and can't tell"), strict=False
        ):
            axes.text(x, -0.35, heading, weight="bold", va="center")
        for row, lesson in enumerate(core):
            look = {
                "boxstyle": "round,pad=0,rounding_size=0.12",
                "mutation_aspect": 0.1,
                "ec": style.BLUE,
            }
            ground = HERE if lesson.number == here else OTHER
            axes.add_patch(
                FancyBboxPatch(
                    (0.5, row), 99, BOX, fc=ground, lw=2 if ground == HERE else 1, **look
                )
            )
            texts = (f"{lesson.number}  {lesson.question}", lesson.view, lesson.blind)
            for (begin, end), text in zip(pairwise(COLUMNS), texts, strict=True):
                wide = int((end - begin) / 100 * 72 * style.WIDTH_INCHES / CHARACTER_POINTS)
                # Lines of the first column go on below the question, not below its number.
                lines = textwrap.fill(
                    text, wide, subsequent_indent="      " * (begin == COLUMNS[0])
                )
                axes.text(begin, row + BOX / 2, lines, va="center", color=style.text_on(ground))
            arrow = {"arrowstyle": "->", "color": style.BLUE, "lw": 1.5}
            axes.annotate(
                "", (COLUMNS[0] + 2, row + 1), (COLUMNS[0] + 2, row + BOX), arrowprops=arrow
            )
        axes.text(COLUMNS[0], len(core) + 0.3, AGAIN, va="center")
    figure.alternative_text = (
        f"A list of {len(core)} questions, from {core[0].question!r} to {core[-1].question!r}; each"
        " comes from what the view above it can't tell."
        f" {f'Marked is lesson {here}.' if here else 'No lesson is marked.'}"
    )
    return figure


def place(here: str) -> str:
    """One line: where a lesson of the core stands, and what the lesson before it could not tell."""
    core = [lesson for lesson in lessons().values() if lesson.core]
    way = " > ".join(
        f"**{one.number} {one.view}**" if one.number == here else one.number for one in core
    )
    asked = [
        f" Lesson {one.number} could not tell {one.blind}." for one in core if one.number < here
    ]
    return f"Path of the case: {way}.{''.join(asked[-1:])}"
