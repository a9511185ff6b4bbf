"""A lesson's page: the learner's cells, the outputs of its run, and nothing given away without a
click.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import NotebookNode, reads, v4

from docs.book.lesson_pages import FOLDED, lesson_page
from tests.conftest import REPOSITORY
from tests.proflab.test_notebook_build import write_lesson
from tools.notebooks import Folders, build
from tools.solutions import BEGIN

LESSON = """\
# %% [markdown]
# # Where does a step go?
#
# Text.

# %%
1 + 1

# %%
# 3 minutes: how long?
# solution
answer = 42
# end solution
q.check(answer)

# %% tags=["solution"]
secret = 1

# %% [markdown]
# ## Key points
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[NotebookNode, NotebookNode]:
    """The combined and the learner's notebook of LESSON."""
    folders = Folders(tmp_path / "lessons", tmp_path / "notebooks", tmp_path / "combined")
    write_lesson(folders.lessons / "02_tiny", LESSON)
    texts = build(folders)
    return tuple(
        reads(texts[folder / "02_tiny.ipynb"], 4)
        for folder in (folders.combined, folders.notebooks)
    )


def code(page: NotebookNode, folded: bool) -> list[str]:
    return [
        cell.source
        for cell in page.cells
        if cell.cell_type == "code" and (FOLDED in cell.metadata.get("tags", [])) is folded
    ]


def test_outputs_of_a_solution_stay_with_it(pair: tuple[NotebookNode, NotebookNode]):
    combined, learner = pair
    for cell in combined.cells:
        if cell.cell_type == "code":
            cell.outputs = [v4.new_output("stream", name="stdout", text=f"of {cell.source[-3:]}")]
    page = lesson_page("02", combined, learner, note="*A note.*")
    shown = [
        cell
        for cell in page.cells
        if cell.get("outputs") and FOLDED not in cell.metadata.get("tags", [])
    ]
    assert [cell.source for cell in shown] == ["1 + 1"]
    folded = [
        cell.outputs[0].text for cell in page.cells if FOLDED in cell.metadata.get("tags", [])
    ]
    assert folded == ["of er)", "of = 1"]


def test_notebooks_of_different_lessons_are_refused(pair: tuple[NotebookNode, NotebookNode]):
    combined, learner = pair
    learner.cells.insert(2, v4.new_code_cell("a_cell_more"))
    with pytest.raises(ValueError, match="different cells"):
        lesson_page("02", combined, learner, note="")


def test_no_page_of_the_course_shows_a_solution():
    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    texts = build(folders)
    for path in folders.lessons.glob("*/lesson.py"):
        learner, combined = (
            reads(texts[folder / f"{path.parent.name}.ipynb"], 4)
            for folder in (folders.notebooks, folders.combined)
        )
        page = lesson_page(path.parent.name[:2], combined, learner, note="*A note.*")
        given = {cell.source for cell in learner.cells}
        assert set(code(page, folded=False)) <= given
        assert len(code(page, folded=True)) >= path.read_text().count(BEGIN) / 2
