"""The finished lesson that the repository's page shows: today's text and code, all pictures, and
nothing that only a notebook can do.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import NotebookNode, reads, v4

from docs.book.finished_lesson import FOLDER, LESSON, Pictures, document, ending, write
from docs.book.lesson_pages import lesson_page
from proflab.lessons import lessons
from proflab.perfetto_button import PerfettoButton
from proflab.perfetto_trace import Trace
from tests.browser.test_viewer import timeline
from tests.conftest import REPOSITORY
from tidyprof.plots import viewer
from tools.notebooks import Folders, build

NAME = lessons()[LESSON].folder.name
FINISHED = REPOSITORY / "notebooks" / FOLDER


@pytest.fixture(scope="module")
def today() -> NotebookNode:
    """The lesson as it is now, without outputs."""
    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    texts = build(folders)
    combined, learner = (
        reads(texts[folder / f"{NAME}.ipynb"], 4)
        for folder in (folders.combined, folders.notebooks)
    )
    return lesson_page(LESSON, combined, learner, "")


def blocks(text: str) -> list[str]:
    return re.split(r"\n{2,}", text.strip())


def test_a_finished_lesson_is_todays_lesson(today: NotebookNode, tmp_path: Path):
    found = iter(blocks((FINISHED / f"{NAME}.md").read_text(encoding="utf-8")))
    for block in blocks(document(today, Pictures(tmp_path))):
        assert block in found, f"make lesson-{LESSON}, then python -m docs.book --finished: {block}"


def test_a_page_becomes_markdown(tmp_path: Path):
    shown = (
        '<img alt="A" class="tidy-figure" style="x" src="data:image/png;base64,AAAA" width="816">'
        f"<style>a{{}}</style>{viewer.panel(timeline('{}'.format).closer)}{viewer.script()}"
        "<details><summary>In words</summary><p>A.\n\nB.</p></details>"
    )
    button = PerfettoButton(Trace("a.json.gz", b"x"), "https://ui.perfetto.dev/", "A")
    outputs = [
        v4.new_output("display_data", data={"text/html": html})
        for html in (shown, shown, button._repr_html_())
    ]
    cells = [
        v4.new_markdown_cell("[a](../docs/a.md#b) [c](03_c.ipynb) [d](https://d.example) [e](#f)"),
        v4.new_markdown_cell("Read it. *Look closer* zooms."),
        v4.new_code_cell("%%bash\nls", outputs=[v4.new_output("stream", text="```\nfile\n")]),
        v4.new_code_cell("answer = 1", metadata={"tags": ["hide-cell"]}),
        v4.new_code_cell("show()", outputs=outputs),
    ]
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "old.png").write_text("of the run before")
    text = write(v4.new_notebook(cells=cells), lessons()[LESSON], tmp_path).read_text()
    picture = (
        '<p><img src="figure_1.png" alt="A" width="816"></p>'
        "<details><summary>In words</summary><p>A. B.</p></details>"
    )
    assert blocks(text) == [
        "[a](../../docs/a.md#b) [c](../03_c.ipynb) [d](https://d.example) [e](#f)",
        "Read it. In JupyterLab and in the published book *Look closer* zooms.",
        "```bash\nls\n```",
        "````text\n```\nfile\n````",
        "<details>\n<summary>A solution and its output</summary>",
        "```python\nanswer = 1\n```",
        "</details>",
        "```python\nshow()\n```",
        picture,
        picture,
        "<p><em>In JupyterLab, a button here opens this step in Perfetto.</em></p>",
        ending(lessons()[LESSON]).strip(),
    ]
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {
        f"{NAME}.md",
        "figure_1.png",
    }
