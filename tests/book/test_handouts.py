"""Slides from a lesson's cells, without solutions; the cheat sheet says what the lessons say."""

from __future__ import annotations

import re
from base64 import b64decode
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

import pytest
from nbformat import NotebookNode, reads, v4

from docs.book import handouts
from docs.book.handouts import LONG_CODE, slides
from docs.book.lesson_pages import lesson_page
from proflab.lessons import lessons
from proflab.perfetto_button import PerfettoButton
from proflab.perfetto_trace import Trace
from tests.conftest import REPOSITORY, require
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
# Which rung is next?
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


def test_links_to_files_that_are_not_beside_the_slides_are_words(page: NotebookNode) -> None:
    section = slides(page).cells[1].source
    assert section.endswith("with a file and [a site](https://example.org).")


def test_of_a_long_cell_the_outputs_stand_alone(page: NotebookNode) -> None:
    short, long = slides(page).cells[2:4]
    assert "tags" not in short.metadata
    assert long.metadata["tags"] == ["long-code"]


def test_no_trace_is_in_the_slides() -> None:
    button = PerfettoButton(Trace("a.json.gz", b"x"), "https://ui.perfetto.dev/", "A")
    shown = [button._repr_html_(), "<b>stays</b>"]
    outputs = [v4.new_output("display_data", {"text/html": html}) for html in shown]
    cells = slides(v4.new_notebook(cells=[v4.new_code_cell("show()", outputs=outputs)])).cells
    assert [output.data["text/html"] for output in cells[0].outputs] == ["<b>stays</b>"]


def test_a_drawing_is_in_the_slides_which_have_no_file_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(find_spec("sphinx_revealjs") is not None, "reveal.js (make .venv/.book)")
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    drawing = (REPOSITORY / "docs/drawings/02_launch.svg").read_text(encoding="utf-8")
    text = "## Lanes\n\nIn lanes:\n\n![Lanes](../docs/drawings/02_launch.svg)"
    handouts.write_slides("lanes", v4.new_notebook(cells=[v4.new_markdown_cell(text)]))
    page = (tmp_path / "lanes.html").read_text(encoding="utf-8")
    data = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)[1]
    assert b64decode(data).decode() == drawing


def test_the_title_has_the_question_the_view_and_the_minutes() -> None:
    lesson = lessons()["02"]
    text = handouts.opening(lesson)
    assert lesson.question in text
    assert lesson.view in text
    assert f"{lesson.minutes} minutes" in text


def test_no_solution_is_on_a_slide(page: NotebookNode) -> None:
    shown = "".join(f"{cell.source}{cell.get('outputs')}" for cell in slides(page).cells)
    assert OUTPUTS["table"] in shown
    assert not re.search(r"answer = 42|guess = 60|passed", shown)


def test_the_cheat_sheet_asks_what_the_lessons_ask() -> None:
    text = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    core = [lesson for lesson in lessons().values() if lesson.core]
    rows = re.findall(r"^\| \[(\d\d)\]\(.+?\) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(one.number, one.question, one.view, one.blind) for one in core]
    commands = re.findall(r"^# (\d\d) ", text, re.MULTILINE)
    assert commands == [one.number for one in core[1:]]
    assert re.findall(r"^- \[\*\*(\d\d)\*\*\]", text, re.MULTILINE) == sorted(lessons())


def test_the_cheat_sheet_links_each_lesson_and_page() -> None:
    text = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    links = re.findall(r"\[\W*(.+?)\W*\]\((.+?)\)", text)
    assert all((REPOSITORY / "docs" / path).is_file() for _, path in links)
    numbered = [(number, Path(path).name[:2]) for number, path in links if number.isdigit()]
    assert {*numbered} == {(number, number) for number in lessons()}
    assert not re.search(r"(?<!\[)`docs/|(?<!\[)\*\*\d\d", text)


def test_the_short_forms_have_the_questions_that_the_plan_of_the_room_names() -> None:
    text = handouts.short_forms()
    found = re.findall(r"^\*\*([AB])(\d+)\.", text, re.MULTILINE)
    assert found == [(form, str(number)) for form in "AB" for number in handouts.SHORT]
    assert text.count("Name, or a sign") == 2
    room = (REPOSITORY / "docs/room.md").read_text(encoding="utf-8")
    key = (REPOSITORY / "docs/before-and-after-key.md").read_text(encoding="utf-8")
    numbers = ", ".join(map(str, handouts.SHORT[:-1])) + f" and {handouts.SHORT[-1]}"
    assert f"questions {numbers} of" in room
    assert f"ask only {numbers}," in key


def test_no_letter_is_right_in_both_forms() -> None:
    key = (REPOSITORY / "docs/before-and-after-key.md").read_text(encoding="utf-8")
    letters = re.findall(r"^\| \d+ \|.+?\| ([a-d]) \| ([a-d]) \|", key, re.MULTILINE)
    assert len(letters) == 12
    assert [pair for pair in letters if pair[0] == pair[1]] == []


def test_the_clock_of_the_room_ends_at_ninety_and_its_short_variant_follows_it() -> None:
    room = (REPOSITORY / "docs/room.md").read_text(encoding="utf-8")
    table = room.partition("\n**Late?**")[0]
    starts = [int(start) for start in re.findall(r"^\| \W*(\d+)\W* \| ", table, re.MULTILINE)]
    assert starts == sorted(starts)
    assert (starts[0], starts[-1]) == (0, 90)
    checkpoints = [int(one) for one in re.findall(r"\*\*(\d+)\*\* \| \*\*checkpoint", table)]
    assert f"**Late at {checkpoints[1]}.**" in room
    sixty = re.search(r"^\*\*Sixty minutes\*\*.*", room, re.MULTILINE)[0]
    kernel, predict, third, budget, decide = map(int, re.findall(r"\((\d+)\)", sixty))
    paper = starts[1]
    earlier = accumulate((paper + kernel, budget, predict + third, decide))
    then = [one - so_much for one, so_much in zip(checkpoints, earlier, strict=True)]
    said = re.search(r"then at (\d+), (\d+), (\d+) and (\d+)", sixty).groups()
    assert [*map(int, said)] == then
    hands = starts[starts.index(checkpoints[-1]) + 1] - checkpoints[-1]
    part_4 = int(re.search(r"\((\d+) minutes\)", sixty)[1])
    assert f"you end at {then[-1] + hands + part_4}." in sixty
