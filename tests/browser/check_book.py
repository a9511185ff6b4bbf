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

SITE = REPOSITORY / "build/book/html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
LOOKED_AT = (
    PAGES
    if LONG
    else ["index.html", "notebooks/02_torch_profiler_timeline.html", "docs/known-issues.html"]
)
"""In a long run every page, else one of each kind."""
SEARCHED = {
    "segfault profiler": "segfault-in-",
    "flash attention fallback": "attention-falls-back",
    "dataloader slow Lustre": "reading-many-small-files-from-lustre",
    "NUMA pinned memory": "copies-are-slow-because-cpu-and-gpu-are-on-different-numa-nodes",
    "XNACK": "xnack",
    "MI300A unified memory": "mi300a-pytorch-copies",
    "hipGraphLaunch slow": "hipgraphlaunch-is-slow",
    "power throttling": "power-throttling",
    "low GPU utilization": "low-gpu-utilization",
    "hipMemcpy": "hipmemcpy-or-hipstreamsynchronize",
    "roofline model": "roofline",
    "srun": "the-profiler-records-the-launcher",
    "launch bound": "launch-bound",
    "why is my GPU idle": "low-gpu-utilization",
    "trace has no kernels": "no-kernels-in-the-trace",
    "out of memory but free": "out-of-memory-although-memory-is-free",
    "rocprofv3 hangs": "rocprofv3-hangs",
    "compile slower than eager": "a-compiled-model-is-slower-than-eager",
    "straggler": "straggler",
    "rpd SQL": "rpd",
    "hipmemcpyas": "segfault-in-profilingend",
    "timeout: NCCL/RCCL (watchdog)": "the-rccl-watchdog-ends-a-profiled-job",
}
"""Words of a search -> the start of an anchor that must be among the first three results."""
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


@pytest.mark.parametrize(("words", "anchor"), SEARCHED.items())
def test_the_search_leads_to_the_section_that_answers(words: str, anchor: str, browser: Any):
    show(browser, f"{SITE.as_uri()}/search.html?q={quote_plus(words)}", "light", 1280)
    found = browser.find_elements("css selector", "#search-results li a")
    anchors = [urlsplit(link.get_attribute("href")).fragment for link in found[:3]]
    assert any(one.startswith(anchor) for one in anchors), anchors


def test_a_search_without_a_result_says_so(browser: Any):
    show(browser, f"{SITE.as_uri()}/search.html?q=xylophone", "light", 1280)
    assert "xylophone" in browser.find_element("id", "search-results").text
    assert not browser.find_elements("css selector", "#search-results li")


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
