"""Puts the pages where Sphinx finds them: in the same folders as in the repository, so that their
links hold.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docs.book.contents import START, Part, toctrees

LINK = re.compile(r"\]\(([^()\s]+)\)")

SITE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(?:deployments/[\w-]+|releases)\)")
"""A link of the first page to parts of the repository's site that are not files."""

_FINISHED = re.compile(r"\]\(notebooks/finished/(\w+)\.md\)")
"""A link to a finished lesson: in the book every lesson is one."""

_ON_THE_BOOK = re.compile(r" \[The published book\][^\n]*")
"""The first page's words on the book itself."""

_CLONED = re.compile(r"git clone URL (\S+) +# URL: [^\n]*")
_ISSUE = "Open an issue here"
"""What the first page says of the repository's address, which its own page need not know."""


def stage_page(repository: Path, page: str, target: Path, parts: tuple[Part, ...]) -> None:
    """Copy one Markdown page into `target`, and the files that it links to beside the pages. The
    first page gets the contents.
    """
    text = (repository / page).read_text(encoding="utf-8")
    text = _FINISHED.sub(r"](notebooks/\1.ipynb)", SITE.sub(r"\1", _ON_THE_BOOK.sub("", text)))
    if page == START:
        text = with_address(text)
    stage_linked(repository, page, text, target)
    if page == START:
        write_if_new(target / "index.md", f"{text}\n{toctrees(parts)}")
    else:
        write_if_new(target / page, text)


def with_address(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The first page with the repository's address, where GitHub publishes the book:
    https://docs.github.com/en/actions/reference/workflows-and-actions/variables.
    """
    server, name = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    if not server or not name:
        return text.replace(_ISSUE, "Open an issue on the repository's page")
    address = f"{server}/{name}"
    text = _CLONED.sub(rf"git clone {address} \1", text)
    return text.replace(_ISSUE, f"[Open an issue]({address}/issues)")


def write_if_new(path: Path, text: str) -> None:
    """Write `text`; a file that already holds it keeps its date, so that Sphinx need not read it
    again.
    """
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def remove_others(target: Path, pages: set[str]) -> None:
    """Delete pages of an earlier book that are no longer in it."""
    for path in [*target.rglob("*.md"), *target.rglob("*.ipynb")]:
        if str(path.relative_to(target)) not in pages:
            path.unlink()


def stage_linked(repository: Path, page: str, text: str, target: Path) -> None:
    """Copy the files that a page links to and that are not pages; a reader of the book can download
    them.
    """
    for link in LINK.findall(text):
        parts = urlsplit(link)
        linked = (repository / page).parent / unquote(parts.path)
        if (
            parts.scheme
            or not parts.path
            or linked.suffix in (".md", ".ipynb")
            or not linked.is_file()
        ):
            continue
        copy = target / linked.resolve().relative_to(repository.resolve())
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(linked, copy)
