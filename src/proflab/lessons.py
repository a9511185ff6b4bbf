"""Lessons with their folder, question, duration and tools.

Each core lesson answers the question that the previous lesson leaves open.
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
    """One lesson, as defined in its lesson.toml.

    - minutes: stated duration, computed by tools.notebooks.minutes
    - waiting: number of these minutes that are waiting time
    - tools: commands that the lesson uses on a GPU node
    - view, blind: the tool of a core lesson and what that tool can't show, or "" for an elective
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
        """Lesson number as two digits."""
        return self.folder.name[:2]

    @property
    def core(self) -> bool:
        """Return True for a core lesson and False for an elective."""
        return bool(self.view)

    @property
    def source(self) -> Path:
        """Source file of the lesson, which contains the solutions."""
        return self.folder / "lesson.py"


def lessons_folder() -> Path:
    """Return the folder that contains all lessons, in the installed package or in a checkout."""
    inside = Path(__file__).parent / "shipped_lessons"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "lessons"


def lessons(folder: Path | None = None) -> Mapping[str, Lesson]:
    """Return a folder's lessons by number. Raises CourseError for an invalid lesson."""
    folders = sorted(path.parent for path in (folder or lessons_folder()).glob("*/lesson.py"))
    return {found.number: found for found in map(_read, folders)}


def lesson(number: str) -> Lesson:
    """Return the lesson with this number. Raises CourseError if no such lesson exists."""
    known = lessons()
    if str(number) not in known:
        raise CourseError(f"there is no lesson {number!r}: {near(str(number), known)}")
    return known[number]


def source_of(number: str) -> Path:
    """Return the source file of the lesson or workshop with this number.

    Raises CourseError for an unknown number.
    """
    workshop = next(lessons_folder().glob(f"{number}_*/workshop.py"), None)
    return workshop or lesson(number).source


def _read(folder: Path) -> Lesson:
    path = folder / "lesson.toml"
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", folder.name):
        raise CourseError(
            f"{folder}: rename this folder to NN_name, with two digits and a lowercase name"
        )
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
        return Lesson(folder, **fields | {"tools": tuple(fields.get("tools", ()))})
    except (OSError, TypeError, ValueError) as error:
        raise CourseError(f"{path}: {error}; add `question`, `minutes` and `tools`") from None


def place(here: str) -> str:
    """Return a core lesson's position in the course and the previous lesson's open question."""
    core = [lesson for lesson in lessons().values() if lesson.core]
    way = " > ".join(
        f"**{one.number} {one.view}**" if one.number == here else one.number for one in core
    )
    asked = [
        f" Lesson {one.number} couldn't show {one.blind}." for one in core if one.number < here
    ]
    return f"The example run so far: {way}.{''.join(asked[-1:])}"
