"""The course's own lessons and notebooks: free of lint. That they are up to date, and run, `make
test` sees itself.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proflab.exercises import all_exercises
from proflab.exercises.model import exercise_cell
from tools.notebook_lint import lint_all
from tools.notebooks import COLUMNS, Folders, build, read_sources
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
    assert len(shown) > 3
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


@pytest.fixture(scope="module")
def built() -> dict[Path, str]:
    return build(COURSE)


@pytest.mark.parametrize(
    "folder", sorted((REPOSITORY / "lessons").glob("[0-9]*")), ids=lambda folder: folder.name[:2]
)
def test_what_the_first_cell_says_without_the_packages_is_explained_above_it(
    built: dict[Path, str], folder: Path
) -> None:
    """Run in a Python that has nothing but its own library, as somebody's notebook does who opens
    one anywhere.
    """
    cells = json.loads(built[COURSE.notebooks / f"{folder.name}.ipynb"])["cells"]
    here = next(place for place, one in enumerate(cells) if one["cell_type"] == "code")
    head, code = ("".join(one["source"]) for one in cells[here - 1 : here + 1])
    above = ["".join(one["source"]) for one in cells[: here - 1]]
    assert any(text.startswith("# ") for text in above), "the title is read first"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    error = done.stderr.splitlines()[-1].partition(":")[0]
    assert error == "ModuleNotFoundError"
    assert f"`{error}` in the first cell? " in head
    assert "make lab" in head
    assert "%pip install" in head
