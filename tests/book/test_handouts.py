"""Slides from a lesson's cells, without solutions; the cheat sheet says what the lessons say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode, reads, v4

from docs.book.handouts import slides
from docs.book.lesson_pages import lesson_page
from proflab.lessons import lessons
from tests.conftest import REPOSITORY
from tests.proflab.test_notebook_build import write_lesson
from tools.notebooks import SLIDE, Folders, build, learner_cells, read_sources, read_workshops

LESSON = """\
# %% [markdown]
# # Where does a step go?
#
# First paragraph.

# %% [markdown] slide="A drawing shows it."
# ## A section
#
# What it is about, with [a file](../docs/triage.md).
#
# | a | table |
# | --- | --- |
# | 1 | 2 |
#
# More words.

# %% slide="The table shows it."
table

# %% slide="Only the code matters."
silent

# %%
# 3 minutes: how long does it take?
q = exercise("02.1", 1)
# solution
answer = 42
# end solution
q.check(answer)

# %% [markdown]
# ## Three takeaways
#
# - One.
#
# ## Next
#
# What comes next?
"""

TABLE = "| a | table |\n| --- | --- |\n| 1 | 2 |\n"

OUTPUTS = {
    "table": "<table><tr><td>numbers</td></tr></table>",
    "q.check(answer)": "<b>passed: it was 42</b>",
}


@pytest.fixture
def page(tmp_path: Path) -> NotebookNode:
    """The page of LESSON, run."""
    folders = Folders(tmp_path / "lessons", tmp_path / "notebooks", tmp_path / "combined")
    write_lesson(folders.lessons / "02_tiny", LESSON)
    texts = build(folders)
    combined, learner = (
        reads(texts[folder / "02_tiny.ipynb"], 4)
        for folder in (folders.combined, folders.notebooks)
    )
    for cell in combined.cells:
        html = next((html for end, html in OUTPUTS.items() if cell.source.endswith(end)), None)
        if html:
            cell.outputs = [v4.new_output("display_data", {"text/html": html})]
    return lesson_page("02", combined, learner, "A note.")


def test_a_marked_cell_is_a_slide_with_a_sentence_and_one_thing(page: NotebookNode) -> None:
    found = [(cell.metadata.slideshow.slide_type, cell.source) for cell in slides(page).cells]
    assert found == [
        ("slide", "# 02 · Where does a step go?\n\nA note."),
        ("slide", "## A section\n\nA drawing shows it.\n\n" + TABLE),
        ("slide", "## A section\n\nThe table shows it."),
        ("-", "table"),
        ("slide", "## A section\n\nOnly the code matters."),
        ("-", "silent"),
        ("slide", "## Three takeaways\n\n- One.\n\n"),
    ]
    shown = [bool(cell.outputs) for cell in slides(page).cells if cell.cell_type == "code"]
    assert shown == [True, False]


def test_slides_of_core_lessons_and_workshops_have_few_words() -> None:
    folder = REPOSITORY / "lessons"
    for source in (*read_sources(folder), *read_workshops(folder)):
        if source.lesson.core or not source.whole:
            marked = [
                text for _, _, tags in learner_cells(source) for text in tags if SLIDE in text
            ]
            assert 10 <= len(marked) <= 18, source.number  # and two more slides
            assert all(len(text.split()) <= 30 for text in marked), source.number


def test_the_cheat_sheet_links_each_lesson_and_page() -> None:
    text = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    links = re.findall(r"\[\W*(.+?)\W*\]\((.+?)\)", text)
    assert all((REPOSITORY / "docs" / path).is_file() for _, path in links)
    numbered = [(number, Path(path).name[:2]) for number, path in links if number.isdigit()]
    assert {*numbered} == {(number, number) for number in lessons()}
    assert not re.search(r"(?<!\[)`docs/|(?<!\[)\*\*\d\d", text)


def test_no_letter_is_right_in_both_forms() -> None:
    key = (REPOSITORY / "docs/before-and-after-key.md").read_text(encoding="utf-8")
    letters = re.findall(r"^\| \d+ \|.+?\| ([a-d]) \| ([a-d]) \|", key, re.MULTILINE)
    assert len(letters) == 12
    assert [pair for pair in letters if pair[0] == pair[1]] == []
