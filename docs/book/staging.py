"""Copy the pages to where Sphinx finds them, in the same folders as in the repository.

Their relative links therefore work.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docs.book.contents import CARDS, START, Part, toctrees

LINK = re.compile(r"\]\(([^()\s]+)\)")

SITE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(?:deployments/[\w-]+|releases)\)")
"""Link on the first page to parts of the repository's site that aren't files."""

_FINISHED = re.compile(r"\]\(notebooks/finished/(\w+)\.md\)")
"""Link to a finished lesson. In the book, every lesson is finished."""

_ON_THE_BOOK = re.compile(r" \[The published book\][^\n]*")
"""Text on the first page about the book itself."""

_CLONED = re.compile(r"git clone URL (\S+) +# URL: [^\n]*")
_ISSUE = "Open an issue here"
"""Text on the first page that the book replaces with a link to the repository's issues."""


def stage_page(repository: Path, page: str, target: Path, parts: tuple[Part, ...]) -> None:
    """Copy one Markdown page into `target`, and copy the files that it links to next to the pages.

    The first page gets the cards and the table of contents.
    """
    text = (repository / page).read_text(encoding="utf-8")
    text = _FINISHED.sub(r"](notebooks/\1.ipynb)", SITE.sub(r"\1", _ON_THE_BOOK.sub("", text)))
    if page == START:
        text = with_address(text)
    stage_linked(repository, page, text, target)
    if page == START:
        heading, _, rest = text.partition("\n")
        write_if_new(target / "index.md", f"{heading}\n{CARDS}{rest}\n{toctrees(parts)}")
    else:
        write_if_new(target / page, text)


def with_address(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the first page with the repository's address, if GitHub publishes the book.

    See https://docs.github.com/en/actions/reference/workflows-and-actions/variables.
    """
    server, name = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    if not server or not name:
        return text.replace(_ISSUE, "Open an issue on the repository's page")
    address = f"{server}/{name}"
    text = _CLONED.sub(rf"git clone {address} \1", text)
    return text.replace(_ISSUE, f"[Open an issue]({address}/issues)")


def write_if_new(path: Path, text: str) -> None:
    """Write `text` unless the file already contains it.

    An unchanged file keeps its date, so Sphinx doesn't read it again.
    """
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def remove_others(target: Path, pages: set[str]) -> None:
    """Delete pages of an earlier book that are no longer part of it."""
    for path in [*target.rglob("*.md"), *target.rglob("*.ipynb")]:
        if str(path.relative_to(target)) not in pages:
            path.unlink()


def stage_linked(repository: Path, page: str, text: str, target: Path) -> None:
    """Copy the files that a page links to, except pages, so that readers can download them."""
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
