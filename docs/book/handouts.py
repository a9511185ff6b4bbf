"""What an instructor shows and prints, as pages that need no network: `python -m docs.book.handouts`.

Slides of the core lessons come from the executed lessons, without solutions; docs/cheat-sheet.md becomes one sheet of
A4. The pages are made here, not by `nbconvert --to slides`: what that writes loads reveal.js, which no package of the
course brings, from the network.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from docs.book.__main__ import REPOSITORY, executed
from docs.book.lesson_pages import FOLDED, lesson_page
from proflab.display import inline_html
from proflab.lessons import lessons
from tidyprof.harmless import html_text
from tools.course_commands import markdown_tokens
from tools.notebooks import QUESTION_TAG, Folders, build

if TYPE_CHECKING:
    from nbformat import NotebookNode

TARGET = REPOSITORY / "build/handouts"
STATIC = Path(__file__).with_name("static")

WHOLE = re.compile(r"\b(traps?|lies?|predict|decide|picture to keep in mind|key points)\b", re.IGNORECASE)
"""Sections that are shown with all their text, tables and figures; of others the first paragraph and the figures."""

LEFT_OUT = ("Known issues", "At work, without this course")
"""Sections to read at home."""

CASE_SHEET = "Case sheet: "
"""How the caption of the table begins that has no room on a slide."""

PICTURE = 'class="tidy-light"'
_PREDICTED = "predict"
_LINK_WITHIN = re.compile(r'<a href="(?!https?:)[^"]*">(.*?)</a>', re.DOTALL)


@dataclass(frozen=True)
class Slide:
    """What stands on one slide: the heading of its section, and HTML."""

    heading: str
    body: str


def main() -> int:
    """Write the sheet, and the slides of all lessons of the core. Returns 2 if a lesson was not run."""
    TARGET.mkdir(parents=True, exist_ok=True)
    write_sheet()
    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    texts = build(folders)
    try:
        for lesson in (one for one in lessons().values() if one.core):
            name = f"{lesson.folder.name}.ipynb"
            learner, combined = (_read(texts[folder / name]) for folder in (folders.notebooks, folders.combined))
            page = lesson_page(
                lesson.number, executed(folders.combined / name, combined), learner, f"You look with {lesson.view}."
            )
            write_slides(lesson.folder.name, lesson.question, slides(page))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"the sheet and the slides: {TARGET.relative_to(REPOSITORY)}")
    return 0


def slides(page: NotebookNode) -> Iterator[Slide]:
    """The slides of a lesson's page: each heading, question, prediction, figure, trap and decision; no solution."""
    heading, rest = "", False
    for cell in page.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "code":
            if FOLDED not in tags and heading not in LEFT_OUT:
                yield from (Slide(heading, body) for body in _of_code(cell, bool(WHOLE.search(heading))))
            continue
        for title, text in _pieces(cell.source):
            asked = QUESTION_TAG in tags
            heading, rest = (title, False) if title and not asked else (heading, rest)
            if heading in LEFT_OUT or not (title or text):
                continue
            if asked or WHOLE.search(heading):
                yield Slide(title or heading, markdown(text))
            elif not rest:
                yield Slide(heading, markdown(text.split("\n\n")[0]))
            rest = True


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """The headings of a text, each with what follows it; what stands before the first one has none."""
    lines = text.splitlines()
    # A comment in a block of code is no heading.
    starts = [token.map[0] for token in markdown_tokens(text) if token.type == "heading_open"]
    yield "", "\n".join(lines[: min(starts, default=len(lines))]).strip()
    for start, end in itertools.pairwise([*starts, len(lines)]):
        yield lines[start].lstrip("# "), "\n".join(lines[start + 1 : end]).strip()


def _of_code(cell: NotebookNode, whole: bool) -> Iterator[str]:
    """What a cell of code gives to a slide: what it lets people predict, and its pictures or, if `whole`, outputs."""
    if asked := _predictions(cell.source):
        yield f"<ul>{''.join(f'<li>{inline_html(what)}?</li>' for what in asked)}</ul>"
    shown = [output.data.get("text/html", "") for output in cell.outputs if "data" in output]
    if body := "".join(html for html in shown if (whole and CASE_SHEET not in html) or PICTURE in html):
        yield body


def _predictions(source: str) -> list[str]:
    """What the calls of `proflab.predict` in a cell ask for."""
    if _PREDICTED not in source:
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == _PREDICTED]
    return [word.value.value for call in named for word in call.keywords if word.arg == "what"]


def markdown(text: str) -> str:
    """HTML of a text; links to other files of the course, which are not beside the page, become plain text."""
    from markdown_it import MarkdownIt

    return _LINK_WITHIN.sub(r"\1", MarkdownIt("commonmark").enable("table").render(text))


def write(name: str, title: str, body: str, style: str) -> None:
    """Write one page of HTML with its style sheet inside."""
    css = (STATIC / style).read_text(encoding="utf-8")
    head = f'<head><meta charset="utf-8"><title>{html_text(title)}</title><style>{css}</style></head>'
    text = f'<!doctype html>\n<html lang="en">{head}<body>\n{body}\n</body></html>\n'
    (TARGET / f"{name}.html").write_text(text, encoding="utf-8")


def write_sheet() -> None:
    """Write the cheat sheet as a page to print."""
    sheet = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    write("cheat-sheet", "Cheat sheet", markdown(sheet), "sheet.css")


def write_slides(name: str, title: str, found: Iterable[Slide]) -> None:
    """Write slides as one page."""
    script = (STATIC / "slides.js").read_text(encoding="utf-8")
    body = "\n".join(map(_section, found))
    write(name, title, f"{body}\n<script>{script}</script>", "slides.css")


def _section(slide: Slide) -> str:
    return f"<section><div><h2>{inline_html(slide.heading)}</h2>{slide.body}</div></section>"


def _read(text: str) -> NotebookNode:
    import nbformat

    return nbformat.reads(text, 4)


if __name__ == "__main__":
    raise SystemExit(main())
