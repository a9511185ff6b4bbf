"""What an instructor shows and prints, as pages that need no network: `python -m
docs.book.handouts`.

Slides of the core lessons come from the executed lessons, without solutions; docs/cheat-sheet.md
becomes one sheet of A4. The pages are made here, not by `nbconvert --to slides`: what that writes
loads reveal.js, which no package of the course brings, from the network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from docs.book.__main__ import REPOSITORY, executed
from docs.book.deck import Slide, markdown, slides
from docs.book.lesson_pages import lesson_page
from proflab.display import inline_html
from proflab.lessons import Lesson, lessons
from tidyprof.errors import UserError
from tidyprof.harmless import html_text
from tools.notebooks import Folders, build

if TYPE_CHECKING:
    from nbformat import NotebookNode

TARGET = REPOSITORY / "build/handouts"
STATIC = Path(__file__).with_name("static")


def main() -> int:
    """Write the sheet, and the slides of all lessons of the core. Returns 2 if a lesson was not
    run.
    """
    TARGET.mkdir(parents=True, exist_ok=True)
    write_sheet()
    folders = Folders(REPOSITORY / "lessons", REPOSITORY / "notebooks")
    texts = build(folders)
    try:
        for lesson in (one for one in lessons().values() if one.core):
            name = f"{lesson.folder.name}.ipynb"
            learner, combined = (
                _read(texts[folder / name]) for folder in (folders.notebooks, folders.combined)
            )
            page = lesson_page(
                lesson.number, executed(folders.combined / name, combined), learner, opening(lesson)
            )
            write_slides(lesson.folder.name, lesson.question, slides(page))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"the sheet and the slides: {TARGET.relative_to(REPOSITORY)}")
    return 0


def opening(lesson: Lesson) -> str:
    """What stands below the title: the lesson's question, what it looks with, and how long it
    takes.
    """
    return (
        f"**{lesson.question}** You look with {lesson.view}. The lesson takes about"
        f" {lesson.minutes} minutes."
    )


def write(name: str, title: str, body: str, style: str) -> None:
    """Write one page of HTML with its style sheet inside."""
    css = (STATIC / style).read_text(encoding="utf-8")
    head = (
        f'<head><meta charset="utf-8"><title>{html_text(title)}</title><style>{css}</style></head>'
    )
    text = f'<!doctype html>\n<html lang="en">{head}<body>\n{body}\n</body></html>\n'
    (TARGET / f"{name}.html").write_text(text, encoding="utf-8")


def write_sheet() -> None:
    """Write the cheat sheet as a page to print."""
    sheet = (REPOSITORY / "docs/cheat-sheet.md").read_text(encoding="utf-8")
    # Each line of the commands is an element, so that what wraps can hang below its begin.
    parts = re.split(
        r"(?<=<code class=\"language-bash\">)(.*?)(?=</code>)", markdown(sheet), flags=re.DOTALL
    )
    parts[1::2] = [
        "".join(f"<span>{line}</span>" for line in part.splitlines()) for part in parts[1::2]
    ]
    write("cheat-sheet", "Cheat sheet", "".join(parts), "sheet.css")


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
