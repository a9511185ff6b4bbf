"""Pages for an instructor to show and print, which don't need a network.

Run `python -m docs.book.handouts`. Each core lesson and each workshop has slides, which show the
cells that the lesson marks with a sentence (`# %% slide="..."`). docs/cheat-sheet.md becomes one A4
sheet, and the questions for a workshop become separate pages.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from docs.book import traces
from docs.book.__main__ import REPOSITORY, executed
from docs.book.lesson_pages import FOLDED, lesson_page
from proflab.lessons import Lesson, lessons
from tidyprof.errors import UserError
from tools.notebooks import Folders, build, read_workshops

if TYPE_CHECKING:
    from nbformat import NotebookNode

TARGET = REPOSITORY / "build/handouts"
STATIC = Path(__file__).with_name("static")

SHEETS = ("cheat-sheet", "hands", "before-and-after")
"""Pages of docs that are printed or shown. sheet.css uses these names."""

SHORT = (2, 4, 7, 12)
"""Questions in docs/before-and-after.md whose ideas the 90-minute session teaches."""

SHORT_ABOUT = """
You have three minutes, on paper and without help. Write one letter for each question. Leave out
what you don't know. The numbers are those of the complete quiz.

Name, or a sign that you will recognize: ______________________________
"""

_PARTS = ("dist/reveal.js", "dist/reveal.css", "dist/theme/white.css")
_FONTS = "dist/theme/fonts/source-sans-pro"
_TAKEAWAYS = re.compile(r"^## Three takeaways\n.*?(?=^## |\Z)", flags=re.DOTALL | re.MULTILINE)
_OUTPUT_ALONE = "output-alone"
_SHOWN_TEXT = re.compile(
    r"^!\[[^\]]*\]\([^)]*\)|^```.*?^```|(?:^\|[^\n]*\n)+", flags=re.DOTALL | re.MULTILINE
)
"""A drawing, a code block or a table in a text."""

_LINK_WITHIN = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)")


def main() -> int:
    """Write the sheets, and the slides of the core lessons. Return 0, or 2 if a lesson wasn't
    run.
    """
    TARGET.mkdir(parents=True, exist_ok=True)
    write_sheets()
    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    texts = build(folders)
    try:
        cores = [lesson for lesson in lessons().values() if lesson.core]
        workshops = [source.lesson for source in read_workshops(folders.lessons)]
        for lesson in (*cores, *workshops):
            name = f"{lesson.folder.name}.ipynb"
            learner, combined = (
                _read(texts[folder / name]) for folder in (folders.notebooks, folders.combined)
            )
            page = lesson_page(
                lesson.number, executed(folders.combined / name, combined), learner, opening(lesson)
            )
            write_slides(lesson.folder.name, page)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"the sheets and the slides: {TARGET.relative_to(REPOSITORY)}")
    return 0


def opening(lesson: Lesson) -> str:
    """Return the text below the title: the lesson's question, its tool, and its duration. A
    workshop has no such text.
    """
    if not lesson.core:
        return ""
    return (
        f"**{lesson.question}** You look with {lesson.view}. The lesson takes about"
        f" {lesson.minutes} minutes."
    )


def write_sheets() -> None:
    """Write all pages that are printed or shown unchanged."""
    for name in SHEETS:
        write_sheet(name, (REPOSITORY / f"docs/{name}.md").read_text(encoding="utf-8"))
    write_sheet("before-and-after-short", short_forms())


def short_forms() -> str:
    """Return the before and after forms with only the questions of the 90-minute session."""
    sheet = (REPOSITORY / "docs/before-and-after.md").read_text(encoding="utf-8")
    _, *forms = re.split(r"^(?=## )", sheet, flags=re.MULTILINE)
    pages = []
    for form in forms:
        heading, *questions = re.split(r"^(?=\*\*[AB]\d+\.)", form, flags=re.MULTILINE)
        kept = [one for one in questions if int(one[3 : one.index(".")]) in SHORT]
        pages += [heading.rstrip(), SHORT_ABOUT, *kept]
    return "\n".join(["# Before and after: four questions", *pages])


def write_sheet(name: str, sheet: str) -> None:
    """Write Markdown text as a page for printing."""
    from markdown_it import MarkdownIt

    title = sheet.partition("\n")[0].lstrip("# ")
    body = MarkdownIt("commonmark").enable("table").render(_LINK_WITHIN.sub(r"\1", sheet))
    # Each command line is an element, so that a folded line can be indented below its start.
    parts = re.split(r"(?<=<code class=\"language-bash\">)(.*?)(?=</code>)", body, flags=re.DOTALL)
    parts[1::2] = [
        "".join(f"<span>{line}</span>" for line in part.splitlines()) for part in parts[1::2]
    ]
    head, *questions = re.split(r"(?=<h2>)", "".join(parts))
    sections = "".join(f"<section>\n{one}</section>\n" for one in questions)
    css = (STATIC / "sheet.css").read_text(encoding="utf-8")
    meta = f'<head><meta charset="utf-8"><title>{title}</title><style>{css}</style></head>'
    page = f'<body class="{name}">\n<main>\n<header>\n{head}</header>\n{sections}</main></body>'
    text = f'<!doctype html>\n<html lang="en">{meta}{page}</html>\n'
    (TARGET / f"{name}.html").write_text(text, encoding="utf-8")


def write_slides(name: str, page: NotebookNode) -> None:
    """Write the slides of a lesson's page, and copy reveal.js next to them."""
    from nbconvert import SlidesExporter
    from traitlets.config import Config

    # Use only reveal.js from this package. The package itself makes slides from Sphinx pages.
    reveal = Path(find_spec("sphinx_revealjs").origin).parent / "_static/revealjs"
    shutil.copytree(reveal / _FONTS, TARGET / "reveal.js" / _FONTS, dirs_exist_ok=True)
    for part in _PARTS:
        shutil.copy(reveal / part, TARGET / "reveal.js" / part)
    exporter = SlidesExporter(
        raw_template=(STATIC / "slides.html.j2").read_text(encoding="utf-8"),
        reveal_url_prefix="reveal.js",
        reveal_theme="white",
        embed_images=True,
        config=Config(
            {"TagRemovePreprocessor": {"enabled": True, "remove_input_tags": {_OUTPUT_ALONE}}}
        ),
    )
    # nbconvert searches for images in this folder and its subfolders.
    place = {"name": name, "path": str(REPOSITORY)}
    text, _ = exporter.from_notebook_node(slides(page), {"metadata": place})
    (TARGET / f"{name}.html").write_text(text, encoding="utf-8")


def slides(page: NotebookNode) -> NotebookNode:
    """Return a lesson's slides as nbconvert needs them.

    The first slide has the lesson's title and question, and the last one its takeaways. Between
    them, each cell that its lesson marks with a sentence becomes a slide. The slide shows the
    section's heading, the sentence, and one thing: the first figure or table of the cell's output,
    the first drawing, table or code block of its text, or else its code.
    """
    from nbformat import v4

    cells = [_slide("\n\n".join(page.cells[0].source.split("\n\n")[:2]))]
    heading = ""
    for cell in page.cells:
        headings = re.findall(r"^##+ (?!Exercise)(.+)$", cell.source, flags=re.MULTILINE)
        is_text = cell.cell_type == "markdown"
        heading = headings[-1] if is_text and headings else heading
        sentence = cell.metadata.get("slide", "")
        if sentence and FOLDED not in cell.metadata.get("tags", []):
            cells += _marked(headings[0] if is_text and headings else heading, sentence, cell)
    cells += [_slide(text) for text in _TAKEAWAYS.findall(_texts(page))]
    return v4.new_notebook(metadata=page.metadata, cells=cells)


def _marked(heading: str, sentence: str, cell: NotebookNode) -> list[NotebookNode]:
    """Return the cells of one slide."""
    from nbformat import v4

    text = f"## {heading}\n\n{sentence}"
    if cell.cell_type == "markdown":
        shown = _SHOWN_TEXT.search(cell.source.replace("](../docs/", "](docs/"))
        return [_slide(f"{text}\n\n{shown[0] if shown else ''}")]
    outputs = sorted(filter(_can_be_shown, cell.outputs), key=_is_text)[:1]
    tags = [_OUTPUT_ALONE] if outputs else []
    metadata = {"slideshow": {"slide_type": "-"}, "tags": tags}
    return [_slide(text), v4.new_code_cell(cell.source, outputs=outputs, metadata=metadata)]


def _is_text(output: NotebookNode) -> bool:
    return not re.search("<img|<table", output["data"]["text/html"])


def _slide(text: str) -> NotebookNode:
    from nbformat import v4

    text = _LINK_WITHIN.sub(r"\1", text)
    return v4.new_markdown_cell(text, metadata={"slideshow": {"slide_type": "slide"}})


def _texts(page: NotebookNode) -> str:
    return "\n".join(cell.source for cell in page.cells if cell.cell_type == "markdown")


def _can_be_shown(output: NotebookNode) -> bool:
    """Return True for a figure or a table. Buttons would include megabytes of trace."""
    html = output.get("data", {}).get("text/html", "").strip()
    return bool(html) and not traces.BUTTON.fullmatch(html)


def _read(text: str) -> NotebookNode:
    import nbformat

    return nbformat.reads(text, 4)


if __name__ == "__main__":
    raise SystemExit(main())
