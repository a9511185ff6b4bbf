"""One lesson with its outputs, as Markdown that GitHub shows directly.

Build it with `python -m docs.book --finished`. Its images are in the same folder.
Parts that only a notebook can show, such as buttons, scripts and widgets, are left out. Styles are
also left out because GitHub drops them.
"""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass, field
from datetime import date
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from docs.book import traces
from docs.book.lesson_pages import FOLDED
from docs.book.staging import LINK
from proflab.lessons import Lesson, lessons

if TYPE_CHECKING:
    from nbformat import NotebookNode

LESSON = "02"
"""Lesson that shows what the course is about: a trace, a diagnosis and three exercises."""

FOLDER = "finished"
"""Name of the page's folder, next to the notebooks."""

SITE = "../../../../deployments/github-pages"
"""Path from a page in that folder to the published book on the repository's site."""

_SCRIPT = re.compile(
    r'<(script|style)\b.*?</\1>|<small class="tidy-untrusted">.*?</small>', re.DOTALL
)
_VIEWER = re.compile(r'<div class="tidy-viewer">\s*</div>')
_NOTICE = re.compile(r'<div style="[^"]*border-left[^"]*">(.*?)</div>', re.DOTALL)
_CAPTION = re.compile(r"<caption[^>]*>(.*?)</caption>", re.DOTALL)
_RIGHT = re.compile(r'style="[^"]*text-align:right[^"]*"')
_LOOK = re.compile(r' (?:style|class|scope|id)="[^"]*"')
_LINES = re.compile(r"\s*\n\s*")
_PICTURE = re.compile(
    r'<img alt="(?P<words>[^"]*)"[^>]*base64,(?P<data>[^"]*)" width="(?P<width>\d+)">'
)
_FENCE = re.compile(r"`{3,}")
_CLOSER = re.compile(r"\*Look closer\* (?=[a-z])")
_SOLUTION = "A solution and its output"
_SKIPPED = {
    "proflab.start(": "The versions of the tools, and the findings log",
    "lesson.recall(": "A quiz on earlier lessons",
}
"""The summary of folded cells that only set up a notebook, by the call in their code."""

_WHERE_CLOSER = "In JupyterLab and in the published book *Look closer* "
_IN_A_NOTEBOOK = "<p><em>In JupyterLab, a button here opens this step in Perfetto.</em></p>"


def note(minutes: int, day: date) -> str:
    """Return the text below the title, which explains this page and links to the book."""
    return (
        f"*This is a finished lesson with all its outputs from {day.isoformat()}, run on two CPU"
        " cores without a GPU. GPU results come from recordings, and each figure names its GPU."
        f" Solutions are folded. To do the lesson yourself in about {minutes} minutes, run `make"
        f" lab`. For all finished lessons, see* [*the published book*]({SITE})*.*"
    )


@dataclass
class Pictures:
    """The images of a page, each stored once as a file in a folder."""

    folder: Path
    names: dict[bytes, str] = field(default_factory=dict)

    def stored(self, found: re.Match[str]) -> str:
        """Return an image as HTML that refers to its file."""
        content = base64.b64decode(found["data"])
        name = self.names.setdefault(content, f"figure_{len(self.names) + 1}.png")
        (self.folder / name).write_bytes(content)
        return f'<p><img src="{name}" alt="{found["words"]}" width="{found["width"]}"></p>'


def write(page: NotebookNode, lesson: Lesson, notebooks: Path) -> Path:
    """Write a lesson's page into the folder of finished lessons, and return its path.

    Files in the folder are replaced.
    """
    folder = notebooks / FOLDER
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    path = folder / f"{lesson.folder.name}.md"
    text = f"{document(page, Pictures(folder))}\n{ending(lesson)}"
    path.write_text(text, encoding="utf-8")
    return path


def ending(lesson: Lesson) -> str:
    """Return the text that leads a reader from a finished lesson to the next page."""
    later = lessons()[f"{int(lesson.number) + 1:02}"]
    return (
        f"Continue with lesson {later.number},"
        f" [{later.question}](../{later.folder.name}.ipynb), which doesn't show outputs here,"
        f" or read all finished lessons in [the published book]({SITE}).\n"
    )


def document(page: NotebookNode, pictures: Pictures) -> str:
    """Return a lesson's page as Markdown, with links for a folder that is one level deeper."""
    parts = [part for cell in page.cells for part in _cell(cell, pictures)]
    return "\n\n".join(parts) + "\n"


def _cell(cell: NotebookNode, pictures: Pictures) -> list[str]:
    if cell.cell_type == "markdown":
        text = _CLOSER.sub(_WHERE_CLOSER, _LOOK.sub("", cell.source.strip()))
        return [LINK.sub(_deeper, text)]
    shell = cell.source.startswith("%%bash\n")
    code = cell.source.removeprefix("%%bash\n").strip("\n")
    parts = [fenced(code, "bash" if shell else "python")]
    parts += [text for output in cell.outputs if (text := _output(output, pictures))]
    summary = _SOLUTION if FOLDED in cell.metadata.get("tags", []) else _folded(code)
    if not summary:
        return parts
    return [f"<details>\n<summary>{summary}</summary>", *parts, "</details>"]


def _folded(code: str) -> str:
    """Return the summary of a cell that a reader without a notebook can skip, or ""."""
    return next((summary for call, summary in _SKIPPED.items() if call in code), "")


def _output(output: NotebookNode, pictures: Pictures) -> str:
    if output.output_type == "stream":
        return fenced(output.text.strip("\n"), "text")
    data = output.get("data", {})
    shown = data.get("text/html")
    return simple(shown, pictures) if shown else fenced(data.get("text/plain", ""), "text")


def fenced(text: str, language: str) -> str:
    """Return a code block with a fence of more backticks than any of its lines contains."""
    marks = "`" * (1 + max((len(marks) for marks in _FENCE.findall(text)), default=2))
    return f"{marks}{language}\n{text}\n{marks}"


def simple(shown: str, pictures: Pictures) -> str:
    """Return a notebook's HTML in one line, without parts that need a script or a style.

    A blank line would end the HTML block.
    """
    shown = traces.BUTTON.sub(_IN_A_NOTEBOOK, shown)
    shown = _PICTURE.sub(pictures.stored, _VIEWER.sub("", _SCRIPT.sub("", shown)))
    shown = _NOTICE.sub(r"<blockquote>\1</blockquote>", shown)
    shown = _CAPTION.sub(r"<caption><strong>\1</strong></caption>", shown)
    return _LINES.sub(" ", _LOOK.sub("", _RIGHT.sub('align="right"', shown))).strip()


def _deeper(found: re.Match[str]) -> str:
    parts = urlsplit(unescape(found[1]))
    if parts.scheme or not parts.path or found[1] == SITE:
        return found[0]
    return f"]({os.path.normpath(f'../{found[1]}')})"
