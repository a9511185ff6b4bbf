"""Slides from a lesson's cells, by one rule and without solutions; the cheat sheet says what the lessons say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import reads, v4

from docs.book import handouts
from docs.book.handouts import Slide, markdown, slides
from docs.book.lesson_pages import lesson_page
from docs.book.offline import in_page
from proflab.lessons import lessons
from tests.conftest import REPOSITORY
from tests.proflab.test_notebook_build import write_lesson
from tools.notebooks import Folders, build

LESSON = """\
# %% [markdown]
# # Where does a step go?
#
# First paragraph.
#
# Second paragraph.

# %% [markdown]
# ## A section
#
# What it is about, with [a file](../docs/triage.md) and [a site](https://example.org).
#
# And more.

# %%
table

# %%
figure

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

# %% [markdown]
# ## Trap: totals contain each other
#
# One.
#
# Two.

# %%
table

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
# ## Decide
#
# What next?

# %%
sheet
"""

OUTPUTS = {
    "table": "<table>numbers</table>",
    "figure": f"<img {handouts.PICTURE}>",
    "sheet": f"<caption>{handouts.CASE_SHEET}</caption>",
    "q.check(answer)": "<b>passed: it was 42</b>",
}


@pytest.fixture
def found(tmp_path: Path) -> list[Slide]:
    """The slides of LESSON, run."""
    folders = Folders(tmp_path / "lessons", tmp_path / "notebooks", tmp_path / "combined")
    write_lesson(folders.lessons / "02_tiny", LESSON)
    texts = build(folders)
    combined, learner = (reads(texts[folder / "02_tiny.ipynb"], 4) for folder in (folders.combined, folders.notebooks))
    for cell in combined.cells:
        html = next((html for end, html in OUTPUTS.items() if cell.source.endswith(end)), None)
        if html:
            cell.outputs = [v4.new_output("display_data", {"text/html": html})]
    return list(slides(lesson_page("02", combined, learner, "A note.")))


def test_one_rule_decides_what_is_on_a_slide(found: list[Slide]) -> None:
    assert [slide.heading for slide in found] == [
        "02 · Where does a step go?",
        *["A section"] * 2,  # its first paragraph, its figure
        *["Predict"] * 2,
        *["Trap: totals contain each other"] * 2,
        "Exercise 02.1 (3 minutes)",
        "Decide",
    ]
    assert [slide.body for slide in found] == [
        "<p>A note.</p>\n",
        '<p>What it is about, with a file and <a href="https://example.org">a site</a>.</p>\n',
        OUTPUTS["figure"],
        "<p>Before you look:</p>\n",
        "<ul><li>how much of <code>a step</code> is idle?</li></ul>",
        "<p>One.</p>\n<p>Two.</p>\n",
        OUTPUTS["table"],
        "<p>How long does it take?</p>\n",
        "<p>What next?</p>\n",
    ]


def test_no_solution_is_on_a_slide(found: list[Slide]) -> None:
    assert not re.search(r"42|guess = 60|passed", "".join(slide.body for slide in found))


def test_a_page_needs_no_network(found: list[Slide], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    handouts.write_slides("02_tiny", "Where <b>does</b> a step go?", found)
    page = (tmp_path / "02_tiny.html").read_text()
    assert "<title>Where &lt;b&gt;does&lt;/b&gt; a step go?</title>" in page
    assert page.count("<section>") == len(found)
    assert in_page(page) == []
    assert not re.search(r"<script[^>]+src|<link|@import|url\(", page)


def test_the_cheat_sheet_asks_what_the_lessons_ask() -> None:
    text = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    core = [lesson for lesson in lessons().values() if lesson.core]
    rows = re.findall(r"^\| (\d\d) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(one.number, one.question, one.view, one.blind) for one in core]
    commands = re.findall(r"^# (\d\d) ", text, re.MULTILINE)
    assert commands == [one.number for one in core[1:]]
    assert set(re.findall(r"^- \*\*(\d\d)\*\*", text, re.MULTILINE)) <= {*lessons()}
    assert "<pre>" in markdown(text)


def test_readme_and_the_guide_name_the_sheet_and_the_slides() -> None:
    for path in ("README.md", "docs/instructor.md"):
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        assert "cheat-sheet.md" in text, path
        assert "make slides" in text, path
