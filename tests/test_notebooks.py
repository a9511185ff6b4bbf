"""The course's own lessons and notebooks: free of lint. That they are up to date, and run, `make test` sees itself."""

from __future__ import annotations

from pathlib import Path

from proflab.exercises import all_exercises
from proflab.exercises.cells import exercise_cell
from tools.notebook_lint import lint_all
from tools.notebooks import COLUMNS, Folders, read_sources
from tools.notebooks.minutes import CORE_AT_MOST, needed

REPOSITORY = Path(__file__).resolve().parent.parent
COURSE = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")


def test_lessons_and_notebooks_have_no_lint() -> None:
    assert [str(finding) for finding in lint_all(COURSE)] == []


NOT_YET_NARROW = ("06", "07", "08")
"""Lessons whose code still has lines that scroll sideways."""


def test_code_of_lessons_has_room_in_a_cell() -> None:
    """As `lint --columns` finds it; it finds lines of the other lessons, too."""
    wide = [finding for finding in lint_all(COURSE, COLUMNS) if finding.rule == "narrow-code"]
    assert [str(one) for one in wide if not one.path.relative_to(REPOSITORY).parts[1].startswith(NOT_YET_NARROW)] == []


def test_every_exercise_has_its_question_and_its_solution_in_its_lesson() -> None:
    for item in all_exercises():
        exercise_cell(item.id)


def test_every_lesson_states_the_minutes_that_the_rule_gives_and_the_core_fits_into_its_hours() -> None:
    sources = read_sources(COURSE.lessons)
    assert {one.number: one.lesson.minutes for one in sources} == {one.number: needed(one) for one in sources}
    assert sum(one.lesson.minutes for one in sources if one.lesson.core) <= CORE_AT_MOST
