"""An instructor's pages to print and to show: the cheat sheet is one page of A4, slides follow the
keys.
"""

from __future__ import annotations

import base64
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from nbformat import v4
from selenium.webdriver.common.keys import Keys

from docs.book import handouts
from docs.book.offline import remote_resources
from tests.browser.lab import console_errors, set_size
from tests.conftest import require

LONG = "word " * 2_000
"""More than has room on a slide."""

HERE = "const {h, v} = Reveal.getIndices(); return [h, v]"


@pytest.mark.parametrize(
    ("name", "count"),
    [("cheat-sheet", 1), ("hands", 4), ("before-and-after", 2), ("before-and-after-short", 2)],
)
def test_a_sheet_has_its_pages_of_a4(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    handouts.write_sheets()
    browser.get(f"file://{tmp_path}/{name}.html")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    pages = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", base64.b64decode(printed))
    assert [tuple(round(float(length) / 72 * 25.4) for length in page) for page in pages] == [
        (210, 297)
    ] * count


def test_slides_follow_the_keys_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    require(find_spec("sphinx_revealjs") is not None, "what makes slides: make .venv/.book")
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    cells = [v4.new_markdown_cell(text) for text in ("# One\n\nWords.", "## Two", LONG)]
    handouts.write_slides("02_tiny", v4.new_notebook(cells=cells))
    assert remote_resources(tmp_path) == []
    set_size(browser, 1280, 720)
    console_errors(browser)  # of other pages
    browser.get(f"file://{tmp_path}/02_tiny.html")
    places = [browser.execute_script(HERE)]
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT):
        browser.find_element("css selector", "body").send_keys(key)
        places.append(browser.execute_script(HERE))
    assert places == [[0, 0], [1, 0], [1, 1], [0, 0]]
    browser.execute_script("Reveal.slide(1, 1)")
    scrolls = (
        "const slide = Reveal.getCurrentSlide(); return slide.scrollHeight > slide.clientHeight"
        " && getComputedStyle(slide).overflowY === 'auto'"
    )
    assert browser.execute_script(scrolls)
    assert console_errors(browser) == []
