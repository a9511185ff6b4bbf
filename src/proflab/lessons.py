"""The lessons: for each its folder, the question that it answers, the time it takes and the tools
it drives.

Each lesson of the core asks a question that the lesson before it could not answer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proflab.display import near
from proflab.errors import CourseError


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


def source_of(number: str) -> Path:
    """Return the source of the lesson or workshop with this number; raises CourseError for an
    unknown one.
    """
    workshop = next(lessons_folder().glob(f"{number}_*/workshop.py"), None)
    return workshop or lesson(number).source


def _read(folder: Path) -> Lesson:
    path = folder / "lesson.toml"
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", folder.name):
        raise CourseError(
            f"{folder}: a lesson's folder is named NN_name, with two digits and small letters;"
            " rename it"
        )
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        return Lesson(folder, **fields | {"tools": tuple(fields.get("tools", ()))})
    except (OSError, TypeError, ValueError) as error:
        raise CourseError(f"{path}: {error}; it needs `question`, `minutes` and `tools`") from None


def place(here: str) -> str:
    """One line: where a lesson of the core stands, and what the lesson before it could not tell."""
    core = [lesson for lesson in lessons().values() if lesson.core]
    way = " > ".join(
        f"**{one.number} {one.view}**" if one.number == here else one.number for one in core
    )
    asked = [
        f" Lesson {one.number} couldn't show {one.blind}." for one in core if one.number < here
    ]
    return f"The example run so far: {way}.{''.join(asked[-1:])}"
