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

QUESTION = """
const [number] = arguments, headings = [...document.querySelectorAll('h2')];
headings[number].scrollIntoView();
const shows = element => element && element.getBoundingClientRect().bottom > 0
    && element.getBoundingClientRect().top < innerHeight;
const its = headings[number].parentElement.querySelectorAll(':scope > :is(p, ul)');
const cut = [...its].some(one => one.getBoundingClientRect().bottom > innerHeight);
return [number > 0 && shows(headings[number - 1].parentElement.lastElementChild),
    cut || shows(headings[number + 1]) || false,
    Math.min(...[...its].map(one => parseFloat(getComputedStyle(one).fontSize)))];
"""
"""Whether a question's screen shows one before it, cuts it off or shows one after it; and its
letters, in pixels.
"""

LEAST_LINES = 25
"""A letter on the wall has at least this part of the picture's height."""

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


def test_a_question_on_the_wall_has_a_screen_of_its_own_and_can_be_read_from_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    handouts.write_sheets()
    for width, height in ((1280, 720), (1920, 1080), (1024, 768)):
        set_size(browser, width, height)
        browser.get(f"file://{tmp_path}/hands.html")
        seen = [
            browser.execute_script(QUESTION, number)
            for number in range(len(browser.find_elements("css selector", "h2")))
        ]
        assert [(above, below) for above, below, _ in seen] == [(False, False)] * 4, width
        assert min(letters for *_, letters in seen) >= height / LEAST_LINES, width


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
