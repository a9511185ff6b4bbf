"""The book in a browser: nothing that keeps somebody from reading it, no dead link.

There is no book before the lessons were run, so `make test` asks for this file by its name
afterwards.
"""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote_plus, unquote, urlsplit

import pytest

from tests.browser.pages import LOOKS, barriers, hard_to_read, overhang, show
from tests.conftest import LONG, REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

SITE = REPOSITORY / "build/book/html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
LOOKED_AT = (
    PAGES
    if LONG
    else ["index.html", "notebooks/02_torch_profiler_timeline.html", "docs/known-issues.html"]
)
"""In a long run every page, else one of each kind."""
SEARCHED = {
    "straggler": "Glossary",
    "rpd SQL": "06 · Can I ask my own question?",
    "segmentation fault": "Known issues",
}
"""Words -> a page that must be among the first three results."""
NOT_OURS = re.compile(r"_static/|genindex\.html")


def looks_of(page: str) -> list[tuple[str, int]]:
    """Return all ways to look at a page in a long run, and otherwise one that differs by page."""
    return LOOKS if LONG else [LOOKS[LOOKED_AT.index(page) % len(LOOKS)]]


@pytest.mark.parametrize("page", [page for page in LOOKED_AT if not NOT_OURS.match(page)])
def test_a_page_can_be_read_by_everybody_and_fits_its_window(page: str, browser: Any):
    for scheme, width in looks_of(page):
        show(browser, f"{SITE.as_uri()}/{page}", scheme, width)
        assert overhang(browser) <= 0, (scheme, width)
        assert barriers(browser, contrast=LONG) == [], (scheme, width)
        texts, hard = hard_to_read(browser, "body", "svg, [aria-hidden=true]")
        assert texts > 10
        assert hard == [], (scheme, width)


@pytest.mark.parametrize(("words", "title"), SEARCHED.items())
def test_the_search_leads_to_the_page_that_answers(words: str, title: str, browser: Any):
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, f"{SITE.as_uri()}/search.html?q={quote_plus(words)}", "light", 1280)
    selector = "#search-results li a"
    found = WebDriverWait(browser, PATIENCE_S).until(
        lambda _: browser.find_elements("css selector", selector)
    )
    assert title in [link.text for link in found[:3]]


class _Links(HTMLParser):
    """Where a page leads, and the names within it."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        self.targets += [given[key] for key in ("href", "src") if given.get(key)]


def test_no_link_within_the_book_is_dead():
    links = {}
    for page in PAGES:
        links[page] = _Links()
        links[page].feed((SITE / page).read_text(encoding="utf-8"))
    dead = []
    for page, found in links.items():
        for target in found.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (SITE / page).parent / unquote(parts.path) if parts.path else SITE / page
            known = links.get(os.path.relpath(path, SITE))
            if not path.is_file() or (
                known and parts.fragment and unquote(parts.fragment) not in known.names
            ):
                dead.append(f"{page}: {target}")
    assert dead == []
