"""The course's own lessons and notebooks: free of lint. That they are up to date, and run, `make test` sees itself."""

from __future__ import annotations

from pathlib import Path

from proflab.exercises import all_exercises
from proflab.lessons import LESSONS
from proflab.notebook_lint import lint_all
from proflab.notebooks import Folders, read_sources

REPOSITORY = Path(__file__).resolve().parent.parent
COURSE = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")


def test_lessons_and_notebooks_have_no_lint() -> None:
    assert [str(finding) for finding in lint_all(COURSE)] == []


def test_every_lesson_is_in_the_plan_once() -> None:
    numbers = [source.number for source in read_sources(COURSE.lessons)]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= set(LESSONS)


def test_every_exercise_is_used_in_its_lesson() -> None:
    texts = {source.number: source.path.read_text(encoding="utf-8") for source in read_sources(COURSE.lessons)}
    unused = [item.id for item in all_exercises() if f'exercise("{item.id}"' not in texts.get(item.id[:2], "")]
    assert unused == []
