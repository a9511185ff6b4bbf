"""Slides from a lesson's cells, without solutions; the cheat sheet says what the lessons say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode, reads, v4

from docs.book.handouts import LONG_CODE, slides
from docs.book.lesson_pages import lesson_page
from proflab.lessons import lessons
from tests.conftest import REPOSITORY
from tests.proflab.test_notebook_build import write_lesson
from tools.notebooks import Folders, build

LESSON = """\
# %% [markdown]
# # Where does a step go?
#
# First paragraph.

# %% [markdown]
# ## A section
#
# What it is about, with [a file](../docs/triage.md) and [a site](https://example.org).

# %%
table

# %%
long = 0
"""

LESSON += "long += 1\n" * LONG_CODE

LESSON += """figure

# %% [markdown]
# Words below the figure.
#
# ## Predict
#
# Before you look:

# %%
# solution
guess = 60
# end solution
proflab.predict("02.a", guess, unit="%", what="how much of `a step` is idle")

# %%
# 3 minutes: how long does it take?
q = exercise("02.1", 1)
# solution
answer = 42
# end solution
q.check(answer)

# %% [markdown]
# ## Known issues
#
# ```python
# # no heading
# ```
#
# ## Next
#
# What comes next?
"""

OUTPUTS = {
    "table": "<table><tr><td>numbers</td></tr></table>",
    "figure": "<img alt='a figure'>",
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


def test_a_heading_begins_a_slide_and_a_text_one_below_it(page: NotebookNode) -> None:
    found = [(cell.metadata.slideshow.slide_type, cell.source) for cell in slides(page).cells]
    assert [(kind, source.splitlines()[0]) for kind, source in found] == [
        ("slide", "# 02 · Where does a step go?"),
        ("slide", "## A section"),
        ("-", "table"),
        ("subslide", "long = 0"),
        ("subslide", "Words below the figure."),
        ("slide", "## Predict"),
        ("-", "guess = ..."),
        ("slide", "### Exercise 02.1 (3 minutes)"),
        ("-", 'q = exercise("02.1", 1)'),
        ("slide", "## Known issues"),
        ("slide", "## Next"),
    ]


def test_no_solution_is_on_a_slide(page: NotebookNode) -> None:
    shown = "".join(f"{cell.source}{cell.get('outputs')}" for cell in slides(page).cells)
    assert OUTPUTS["table"] in shown
    assert not re.search(r"answer = 42|guess = 60|passed", shown)


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
