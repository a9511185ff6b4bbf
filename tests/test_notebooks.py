"""The course's own lessons and notebooks: free of lint. That they are up to date, and run, `make
test` sees itself.
"""

from __future__ import annotations

import ast
import html
import json
import re
from pathlib import Path

from proflab.exercises import all_exercises
from proflab.exercises.model import exercise_cell
from proflab.lessons import lessons
from tools.notebook_lint import lint_all
from tools.notebooks import COLUMNS, Folders, read_sources
from tools.notebooks.minutes import ALL_AT_MOST, CORE_AT_MOST, needed

REPOSITORY = Path(__file__).resolve().parent.parent
COURSE = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")


def test_lessons_and_notebooks_have_no_lint_and_their_code_has_room_in_a_cell() -> None:
    """As `lint --columns` finds it."""
    assert [str(finding) for finding in lint_all(COURSE, COLUMNS)] == []


def test_python_that_a_text_shows_can_be_copied() -> None:
    """A wrapper of texts once put two statements on a line."""
    shown = [
        block
        for path in COURSE.notebooks.glob("*.ipynb")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
        for block in re.findall(r"```python\n(.*?)```", "".join(cell["source"]), re.DOTALL)
    ]
    assert shown
    for block in shown:
        ast.parse(block)


def test_every_exercise_has_its_question_and_its_solution_in_its_lesson() -> None:
    for item in all_exercises():
        exercise_cell(item.id)


def test_every_lesson_states_the_minutes_that_the_rule_gives_and_the_core_fits_into_its_hours() -> (
    None
):
    sources = read_sources(COURSE.lessons)
    assert {one.number: one.lesson.minutes for one in sources} == {
        one.number: needed(one) for one in sources
    }
    assert sum(one.lesson.minutes for one in sources if one.lesson.core) <= CORE_AT_MOST
    assert sum(one.lesson.minutes for one in sources) <= ALL_AT_MOST


def test_the_drawing_of_the_method_has_the_question_and_the_limit_of_every_core_lesson() -> None:
    drawing = html.unescape((REPOSITORY / "docs/drawings/method.svg").read_text(encoding="utf-8"))
    for lesson in lessons().values():
        if lesson.core:
            assert {lesson.question, lesson.view, lesson.blind} <= set(
                re.findall(">([^<]+)<", drawing)
            )
