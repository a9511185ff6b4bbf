"""Slides from a lesson's cells, by one rule and without solutions; the cheat sheet says what the
lessons say.
"""

from __future__ import annotations

import re
from base64 import b64decode
from html import escape
from pathlib import Path

import pytest
from nbformat import NotebookNode, reads, v4

from docs.book import handouts
from docs.book.deck import CASE_SHEET, PICTURE, ROWS, Slide, markdown, shortened, slides
from docs.book.lesson_pages import lesson_page
from docs.book.offline import in_page
from proflab.display import inline_html
from proflab.lessons import lessons
from proflab.recall import Recall, questions
from tests.conftest import REPOSITORY
from tests.proflab.test_notebook_build import write_lesson
from tools.drawings import DRAWINGS
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
# And more. [All of it](../docs/triage.md).

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
# One. Here is the cell that shows it:
#
# Two.

# %%
table

# %% [markdown]
# And a last word, with a table:

# %%
sheet

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
# A thin section.
#
# ## What it cannot see
#
# The timeline ends with the step:
#
# | lane | who |
# | --- | --- |
# | stream | the GPU |
#
# ## Next
#
# The ladder below has rungs. Which one is next? On to the next lesson:
"""

OUTPUTS = {
    "table": "<table>numbers</table>",
    "figure": f"<img {PICTURE}>",
    "sheet": f"<caption>{CASE_SHEET}</caption>",
    "q.check(answer)": "<b>passed: it was 42</b>",
}


@pytest.fixture
def found(tmp_path: Path) -> list[Slide]:
    """The slides of LESSON, run."""
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
    return list(slides(lesson_page("02", combined, learner, "A note.")))


def test_one_rule_decides_what_is_on_a_slide(found: list[Slide]) -> None:
    lane = markdown("| lane | who |\n| --- | --- |\n| stream | the GPU |")
    link = 'with a file and <a href="https://example.org">a site</a>'
    asked = "q = exercise(&quot;02.1&quot;, 1)\nanswer = ...\nq.check(answer)"
    assert [(slide.heading, slide.body.replace("</p>\n", "</p>")) for slide in found] == [
        (
            "02 · Where does a step go?",
            "<p>A note.</p><p>First paragraph.</p><p>Second paragraph.</p>",
        ),
        ("A section", f"<p>What it is about, {link}.</p><p>And more.</p>{OUTPUTS['table']}"),
        # one figure or table a slide
        ("A section", f"<figure>{OUTPUTS['figure']}</figure><p>Words below the figure.</p>"),
        (
            "Predict",
            (
                "<p>Before you look:</p><ul><li>Predict: how much of <code>a step</code> is"
                " idle?</li></ul>"
            ),
        ),
        # without the sentences that lead on to nothing
        ("Trap: totals contain each other", f"<p>One.</p><p>Two.</p>{OUTPUTS['table']}"),
        (
            "Exercise 02.1 (3 minutes)",
            f"<p>How long does it take?</p><pre><code>{asked}</code></pre>",
        ),
        # too little for a slide of its own
        (
            "Decide",
            (
                "<p>A thin section.</p><h3>What it cannot see</h3><p>The timeline ends with the"
                f" step:</p>{lane}"
            ),
        ),
        ("Next", "<p>The ladder has rungs. Which one is next?</p>"),
    ]


def section(
    *outputs: NotebookNode, text: str = "", source: str = "a long cell\n" * 9
) -> list[Slide]:
    """The slides of a lesson with a title and one section, of this text and a cell with these
    outputs.
    """
    opening = v4.new_markdown_cell("# 02 · A lesson\n\nIt has a note. It has a question.")
    cells = [
        opening,
        v4.new_markdown_cell(f"## A section\n\n{text}"),
        v4.new_code_cell(source, outputs=[*outputs]),
    ]
    return slides(v4.new_notebook(cells=cells))


def shown(html: str) -> NotebookNode:
    """The output of a cell that shows this."""
    return v4.new_output("display_data", {"text/html": html})


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Read it. Say why. Then look: here it is:", "<p>Read it. Say why.</p>"),
        # A thin slide at the end goes to the one before it.
        ("Read it. Then look:", "<p>It has a note. It has a question.</p>\n<p>Read it.</p>"),
        (
            "Read it. Say why. And so:\n\n```python\n" + "a\n" * (ROWS + 1) + "```",
            "<p>Read it. Say why.</p>",
        ),
        ("Read it. Say why. And so:\n\n```python\na\n```", "<p>Read it. Say why. And so:</p>"),
    ],
)
def test_no_words_lead_on_to_what_is_not_shown(text: str, left: str) -> None:
    slide = section(text=text)[-1]
    assert slide.body.startswith(left)
    assert not re.sub(r"<[^>]*>", "", slide.body).strip().endswith(":")


def test_a_slide_has_one_table_and_each_table_few_rows() -> None:
    head, rows = (
        "<tr><th>name</th></tr>",
        [f"<tr><td>row {number}</td></tr>" for number in range(ROWS + 3)],
    )
    table = f"<table>{head}{''.join(rows)}</table>"
    _, *found = section(shown(table), shown(table), text="Look at both. They are long:")
    assert [slide.body.count("<table>") for slide in found] == [1, 1]
    for slide in found:
        assert rows[ROWS - 1] in slide.body
        assert rows[ROWS] not in slide.body
        assert "... and 3 more rows in the lesson" in slide.body
    assert shortened(f"<table>{head}{''.join(rows[:ROWS])}</table>").count("<td>") == ROWS


def test_a_drawing_is_a_figure_within_the_page() -> None:
    drawing = DRAWINGS["02_launch"]()
    text = f"## Lanes\n\nIn lanes:\n\n![{drawing.words}](../docs/drawings/02_launch.svg)\n\nMore."
    (slide,) = slides(v4.new_notebook(cells=[v4.new_markdown_cell(text)]))
    assert "In lanes:" in slide.body
    assert f'alt="{escape(drawing.words)}"></figure>' in slide.body
    data = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', slide.body)[1]
    assert b64decode(data).decode() == drawing.svg()


def test_what_a_cell_prints_is_cut_to_the_slide_and_remarks_stay_away() -> None:
    printed = v4.new_output(
        "stream", name="stdout", text="".join(f"line {number}\n" for number in range(ROWS + 2))
    )
    _, slide = section(
        printed, v4.new_output("stream", name="stderr", text="a remark"), text="It prints:"
    )
    assert f"line {ROWS - 1}\n... and 2 more lines in the lesson" in slide.body
    assert "a remark" not in slide.body
    assert "<p>It prints:</p>" in slide.body


def test_a_printed_table_that_is_too_wide_loses_whole_columns() -> None:
    names = ["Name", *(f"time {number}" for number in range(6))]
    rule = "  ".join("-" * 14 for _ in names)
    text = "\n".join([rule, "  ".join(name.rjust(14) for name in names), rule, *["a row"] * ROWS])
    _, slide = section(v4.new_output("stream", name="stdout", text=text), text="It prints:")
    assert "time 3" in slide.body
    assert "time 4" not in slide.body
    assert "…" not in slide.body
    assert "... and 3 more lines and 2 more columns in the lesson" in slide.body


def test_questions_about_earlier_lessons_have_their_answers_and_no_replies() -> None:
    asked = questions(lessons()["05"])
    output = v4.new_output("display_data", {"text/html": Recall(asked).page()})
    cells = [
        v4.new_markdown_cell("# A lesson"),
        v4.new_code_cell("lesson.recall()", outputs=[output]),
    ]
    body = "".join(slide.body for slide in slides(v4.new_notebook(cells=cells)))
    for one in asked:
        assert inline_html(one.text) in body
        for answer in one.answers:
            assert f"<li>{inline_html(answer.text)}</li>" in body
            assert inline_html(answer.reply) not in body
    assert "lesson.recall" not in body


def test_the_title_has_the_question_the_view_and_the_minutes() -> None:
    lesson = lessons()["02"]
    text = handouts.opening(lesson)
    assert lesson.question in text
    assert lesson.view in text
    assert f"{lesson.minutes} minutes" in text


def test_no_solution_is_on_a_slide(found: list[Slide]) -> None:
    assert not re.search(r"42|guess = 60|passed", "".join(slide.body for slide in found))


def test_a_page_needs_no_network(
    found: list[Slide], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    rows = re.findall(r"^\| \[(\d\d)\]\(.+?\) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(one.number, one.question, one.view, one.blind) for one in core]
    commands = re.findall(r"^# (\d\d) ", text, re.MULTILINE)
    assert commands == [one.number for one in core[1:]]
    assert re.findall(r"^- \[\*\*(\d\d)\*\*\]", text, re.MULTILINE) == sorted(lessons())
    assert "<pre>" in markdown(text)


def test_the_cheat_sheet_links_each_lesson_and_page() -> None:
    text = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    links = re.findall(r"\[\W*(.+?)\W*\]\((.+?)\)", text)
    assert all((REPOSITORY / "docs" / path).is_file() for _, path in links)
    numbered = [(number, Path(path).name[:2]) for number, path in links if number.isdigit()]
    assert {*numbered} == {(number, number) for number in lessons()}
    assert not re.search(r"(?<!\[)`docs/|(?<!\[)\*\*\d\d", text)


def test_readme_and_the_guide_name_the_sheet_and_the_slides() -> None:
    for path in ("README.md", "docs/instructor.md"):
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        assert "cheat-sheet.md" in text, path
        assert "make slides" in text, path
