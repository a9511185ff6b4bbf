"""Print the book as one PDF, with cover, contents and page numbers: `python -m docs.book.pdf`,
after the site is built.

A browser without a screen prints one page that holds all pages of the site. It prints twice: on
which sheet a page begins is known only from the first print, and stands in the contents of the
second.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cifar_train.errors import UserError
from docs.book.__main__ import REPOSITORY, TARGET
from docs.book.contents import Part, contents
from docs.book.finish import ARTICLE, first_words
from docs.book.lesson_pages import VIEWER

NAME = "profiling-pytorch-on-amd-gpus.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONGEST_PRINT_S = 1800
"""A browser that prints longer than half an hour hangs."""

_TITLE = re.compile(r'<h1>(.*?)<a class="headerlink"', re.DOTALL)
_NAMED = re.compile(r'\b(id|href|src|for|aria-labelledby)="([^"]*)"')
_STYLE = re.compile(r'<link rel="stylesheet"[^>]*>|<style>.*?</style>', re.DOTALL)
_NEXT = re.compile(r"<p>Next question: [^<]*</p>")
"""The last line of a lesson. On paper the next lesson follows anyway, and the line might need a
sheet of its own.
"""
_LEVEL = re.compile(r"(</?h)([1-5])\b")


def main() -> int:
    """Print the book. Returns 2 where the site or a browser is missing, or the browser can't
    print.
    """
    try:
        pdf = print_book(TARGET / "html", contents(REPOSITORY))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"the book on paper: {pdf.relative_to(REPOSITORY)}")
    return 0


def print_book(site: Path, parts: tuple[Part, ...]) -> Path:
    """Print the site in the folder `site` into a PDF beside it, and return its path. Raises
    UserError.
    """
    if not (site / "index.html").is_file():
        raise UserError(f"{site}: the book is not here; run `make book` first")
    page, pdf = site.with_name("whole.html"), site.with_name(NAME)
    numbers: dict[str, int] = {}
    for _ in range(2):
        page.write_text(whole_book(site, parts, numbers), encoding="utf-8")
        to_paper(page, pdf)
        numbers = sheets(pdf)
    return pdf


def sheets(pdf: Path) -> dict[str, int]:
    """On which sheet, from 1, each anchor of a PDF is that something links to."""
    from pypdf import PdfReader

    reader = PdfReader(pdf)
    found = reader.named_destinations.items()
    return {
        name.lstrip("/"): reader.get_destination_page_number(place) + 1 for name, place in found
    }


def to_paper(page: Path, pdf: Path) -> None:
    """Let a browser print a page. Raises UserError where there is none, or where it wrote
    nothing.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        raise UserError(
            f"no browser is here that could print the book; install one of {', '.join(BROWSERS)}"
        )
    pdf.unlink(missing_ok=True)
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-pdf-header-footer",
    ]
    # Root, as in a container, can't have the sandbox; only this page of ours is opened.
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    command += ["--generate-pdf-document-outline", f"--print-to-pdf={pdf}", page.as_uri()]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LONGEST_PRINT_S
        ).stderr
    except subprocess.TimeoutExpired:
        said = f"it took longer than {LONGEST_PRINT_S} s"
    if not pdf.is_file():
        raise UserError(
            f"{browser} printed nothing: {said.strip()[-200:]}; try it by hand on {page}"
        )


def whole_book(site: Path, parts: tuple[Part, ...], numbers: dict[str, int]) -> str:
    """All pages as one that lies beside the folder `site`, after a cover and the contents.

    numbers -- anchor of a page, as `anchor` names it -> the sheet on which it begins; empty while
               nobody knows.
    """
    page = Pages(site, {"index.html", *(address(name) for part in parts for name in part.pages)})
    first = page.read("index.html")
    title, about = title_of(first), first_words(ARTICLE.search(first)[1])
    entries, articles = page.entry("index.html", numbers), page.article("index.html")
    for part in parts:
        entries += f"<h2>{escape(part.caption)}</h2>"
        heading = f'<h1 class="part">{escape(part.caption)}</h1>'
        for name in map(address, part.pages):
            articles += page.article(name, heading)
            heading = ""
            entries += page.entry(name, numbers)
    styles = "".join(_STYLE.findall(first.partition("<body")[0])).replace(
        'href="', f'href="{site.name}/'
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>{styles}'
        f'<link rel="stylesheet" href="{site.name}/_static/paper.css"></head><body'
        ' data-theme="light">'
        f'<header><h1>{title}</h1><p>{escape(about)}</p><img alt=""'
        f' src="{site.name}/_images/cover.svg"></header>'
        f"<nav><h1>Contents</h1>{entries}</nav>{articles}</body></html>"
    )


@dataclass(frozen=True)
class Pages:
    """The finished pages of the site in the folder `site`; `known` are the addresses of those in
    the book.
    """

    site: Path
    known: set[str]

    def read(self, name: str) -> str:
        """The text of a page."""
        return (self.site / name).read_text(encoding="utf-8")

    def entry(self, name: str, numbers: dict[str, int]) -> str:
        """The line of the contents for a page, with the sheet on which it begins."""
        title, number = title_of(self.read(name)), numbers.get(anchor(name), "")
        return f'<p><a href="#{anchor(name)}">{title}</a><span>{number}</span></p>'

    def article(self, name: str, heading: str = "") -> str:
        """What a page holds, below the heading of its part, its own headings a level deeper if it
        belongs to one.
        """
        body = (
            ARTICLE.search(self.read(name))[1]
            .replace(' loading="lazy"', "")
            .replace("<details", "<details open")
        )
        body = VIEWER.sub("", _NEXT.sub("", body))
        body = _NAMED.sub(lambda found: self._renamed(name, found[1], found[2]), body)
        if name != "index.html":
            body = _LEVEL.sub(lambda found: f"{found[1]}{int(found[2]) + 1}", body)
        return f'<article role="main" id="{anchor(name)}">{heading}{body}</article>\n'

    def _renamed(self, name: str, attribute: str, value: str) -> str:
        """An attribute as it is in the whole book: names carry their page, links between pages stay
        within the book.
        """
        if attribute not in ("href", "src"):
            return f'{attribute}="{anchor(name)}--{value}"'
        parts = urlsplit(unescape(value))
        if parts.scheme:
            return f'{attribute}="{value}"'
        target = (
            posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
            if parts.path
            else name
        )
        if attribute == "src":
            return f'src="{self.site.name}/{escape(target)}"'
        inner = f"--{parts.fragment}" if parts.fragment else ""
        return f'href="#{anchor(target)}{inner}"' if target in self.known else ""


def address(page: str) -> str:
    """Where the site has a page of the repository."""
    return str(Path(page).with_suffix(".html"))


def anchor(name: str) -> str:
    """The name of a page within the whole book."""
    return name.removesuffix(".html").replace("/", "-")


def title_of(page: str) -> str:
    """The title of a page, as HTML without tags."""
    return re.sub(r"<[^>]+>", "", _TITLE.search(page)[1])


if __name__ == "__main__":
    raise SystemExit(main())
