"""Print the book as one PDF: `python -m docs.book.pdf`, after `python -m docs.book` has staged its
pages.

Sphinx makes one page of all, and a browser without a screen prints it; the outline of the PDF is
its contents.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.book.__main__ import REPOSITORY, TARGET, build_site
from tidyprof.errors import UserError

NAME = "profiling-pytorch-on-amd-gpus.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONGEST_PRINT_S = 1800
"""A browser that prints for longer than half an hour hangs."""

_TO_A_FILE = re.compile(r'<a\b([^>]*) href="(?!#|\w+:)[^"]*"')


def main() -> int:
    """Print the book. Returns 0, or 2 if its pages or a browser are missing, or the browser can't
    print.
    """
    try:
        pdf = print_book(TARGET / "pages")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"the book on paper: {pdf.relative_to(REPOSITORY)}")
    return 0


def print_book(pages: Path) -> Path:
    """Print the book of the folder `pages` into a PDF beside it, and return its path. Raises
    UserError if that fails.
    """
    if not (pages / "index.md").is_file():
        raise UserError(f"{pages}: the book is not here; run `make book` first")
    paper, pdf = pages.with_name("paper"), pages.with_name(NAME)
    shutil.copytree(pages, paper, dirs_exist_ok=True)
    first = (pages / "index.md").read_text(encoding="utf-8")
    # Pages after a section of the first page would become parts of that section.
    under_one = first.replace("```{toctree}", "# All pages\n\n```{toctree}", 1)
    (paper / "index.md").write_text(under_one, encoding="utf-8")
    whole = pages.with_name("whole")
    if build_site(paper, whole, "singlehtml"):
        raise UserError(f"{paper}: Sphinx made no page of it")
    page = whole / "index.html"
    text = page.read_text(encoding="utf-8").replace(' loading="lazy"', "")
    page.write_text(_TO_A_FILE.sub(r"<a\1", text), encoding="utf-8")
    to_paper(page, pdf)
    return pdf


def to_paper(page: Path, pdf: Path) -> None:
    """Let a browser print a page. Raises UserError if there is no browser, or if it wrote
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
    # Root, as in a container, can't have the sandbox; only this page of our own is opened.
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


if __name__ == "__main__":
    raise SystemExit(main())
