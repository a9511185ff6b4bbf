"""The book in a browser: nothing that keeps somebody from reading it, no dead link, search without a network.

There is no book before the lessons were run, so `make test` asks for this file by its name afterwards.
"""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import LONG, REPOSITORY
from tests.patience import PATIENCE_S

SITE = REPOSITORY / "build/book/html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_static" not in path.parts)
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]
LARGEST_MB = 30
NOT_OURS = {"genindex.html"}

AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then(result => done(result.violations
    .filter(found => ['serious', 'critical'].includes(found.impact))
    .map(found => found.id + ': ' + found.nodes.length + ' times, first ' + found.nodes[0].html.slice(0, 160)
        + ' ' + (found.nodes[0].any[0]?.message ?? ''))));
"""


def looks_of(page: str) -> list[tuple[str, int]]:
    """In a long run every page is looked at in all ways, else in one, another for the next page."""
    return LOOKS if LONG else [LOOKS[PAGES.index(page) % len(LOOKS)]]


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    import selenium_axe_python

    return (Path(selenium_axe_python.__file__).parent / "axe-core/axe.min.js").read_text(encoding="utf-8")


def show(browser: Any, page: str, scheme: str, width: int) -> None:
    """Open a page of the site as a file, in a window of this width in CSS pixels."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"{SITE.as_uri()}/{page}")


def test_there_is_a_book_of_a_size_to_hand_on():
    assert len(PAGES) > 20, "no book: run `make book`"
    assert sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file()) < LARGEST_MB * 1e6


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_OURS])
def test_a_page_can_be_read_by_everybody_and_fits_its_window(page: str, browser: Any, axe: str):
    for scheme, width in looks_of(page):
        show(browser, page, scheme, width)
        assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0, (scheme, width)
        browser.execute_script(axe)
        assert browser.execute_async_script(AXE) == [], (scheme, width)


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
            if not path.is_file() or (known and parts.fragment and unquote(parts.fragment) not in known.names):
                dead.append(f"{page}: {target}")
    assert dead == []


def test_the_search_works_from_a_file(browser: Any):
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, "search.html?q=occupancy", *LOOKS[0])
    results = "return document.querySelectorAll('#search-results li').length"
    WebDriverWait(browser, PATIENCE_S).until(lambda _: browser.execute_script(results) > 0)
    summary = browser.execute_script("return document.querySelector('#search-results').innerText")
    assert re.search(r"found \d+ pages?", summary)
